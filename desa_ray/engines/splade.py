"""SPLADE with onnxruntime: term weights of a text from a BERT model with its masked-language-model
head, the same whatever the batch, order, neighbours or threads (method.md section 4.3).

The graph ends at the logits of every token. A token's logits depend on its text and padded length
alone, as hidden states do (`desa_ray.engines.onnx_encoder`); each text is pooled by itself over its
own tokens, and the largest of some numbers has no order of summation.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from desa_ray.config import SparseConfig
from desa_ray.engines.model_files import quantises
from desa_ray.engines.onnx_encoder import TokenGraph, batches, on_cpu
from desa_ray.engines.splade_files import chosen, splade_files, tokens_of
from desa_ray.engines.tokenizer import load_tokenizer


class SpladeEncoder:
    """Weighs the terms of texts with one onnxruntime session of `threads` threads."""

    def __init__(self, config: SparseConfig, *, threads: int, model_home: Path, batch_size: int):
        files = splade_files(config, model_home)
        self._choice = chosen(config, files)
        # Scales of numbers that a graph quantises as it runs depend on a batch
        self._batch_size = 1 if quantises(files) else batch_size
        self._ids = load_tokenizer(files.tokenizer, tokens_of(config))
        self._graph = TokenGraph(files, model_home, threads, on_cpu, head=True)
        self._terms = _terms(self._ids.tokenizer, self._graph.width)

    def weigh(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """Term -> weight above 0, of each text; special tokens are no terms.

        Raises:
            DesaError: the model cannot run a text, or gives it a weight that is not finite.
        """
        tokens = [self._ids(text) for text in texts]
        found: list[dict[str, float]] = [{} for _ in texts]
        for batch in batches([len(ids) for ids in tokens], self._batch_size):
            logits_BTV = self._graph.run([tokens[row] for row in batch])
            for row, logits_TV in zip(batch, logits_BTV, strict=True):
                weights_V = self._pooled(logits_TV[: len(tokens[row])])
                found[row] = {
                    self._terms[number]: float(weights_V[number])
                    for number in np.flatnonzero(weights_V).tolist()
                    if number in self._terms
                }
        return found

    def _pooled(self, logits_TV: np.ndarray) -> np.ndarray:
        """float64 [V]. Activations rise with the logit, so the largest logit has the largest."""
        if self._choice["pooling"] == "max":
            return self._activated(logits_TV.max(axis=0))
        total_V = np.zeros(logits_TV.shape[1])
        for logits_V in logits_TV:  # in the order of tokens
            total_V += self._activated(logits_V)
        return total_V

    def _activated(self, logits_V: np.ndarray) -> np.ndarray:
        weights_V = np.log1p(np.maximum(logits_V.astype(np.float64), 0.0))
        return np.log1p(weights_V) if self._choice["activation"] == "log1p_relu" else weights_V


def _terms(tokenizer: Any, width: int) -> dict[int, str]:
    """Token id -> token, without special ones; ids beyond the logits' width never have a weight."""
    special = {n for n, own in tokenizer.get_added_tokens_decoder().items() if own.special}
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    return {
        number: token
        for token, number in vocabulary.items()
        if token and number < width and number not in special
    }
