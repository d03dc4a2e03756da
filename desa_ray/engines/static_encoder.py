"""Static vectors with numpy: a text's vector is the mean of one stored vector per token, such as
those of WordLlama and model2vec; no network is run.

Sums are made in float64 in the order of a text's tokens, so that bits depend on the text alone. A
text without tokens has the mean of all stored vectors. Tokens are those of the tokenizer without
special ones.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from desa_ray.config import EncoderConfig
from desa_ray.engines.bert_files import read_header
from desa_ray.engines.model_files import ModelFiles
from desa_ray.engines.tokenizer import load_tokenizer
from desa_ray.engines.vectors import check_unit_rows
from desa_ray.errors import DesaError

EXPECTED = "give a safetensors file with one table [tokens, dimensions] and nothing else"


def static_shape(weights: Path) -> tuple[int, int]:
    """Tokens and dimensions of the table of vectors.

    Raises:
        DesaError: the file is not one table.
    """
    tensors = read_header(weights)
    shapes = [tensor.shape for tensor in tensors.values()]
    if len(shapes) != 1 or len(shapes[0]) != 2 or 0 in shapes[0]:
        listed = ", ".join(f"{name} {list(own.shape)}" for name, own in sorted(tensors.items()))
        raise DesaError(f"holds {listed or 'nothing'}", where=str(weights), hint=EXPECTED)
    return shapes[0][0], shapes[0][1]


class StaticEncoder:
    """Encodes texts by a table of token vectors.

    Attributes:
        dimension: length of a vector.
        block_size: 1, as every text is encoded by itself.
    """

    block_size = 1

    def __init__(self, config: EncoderConfig, files: ModelFiles):
        self._tokens, self.dimension = static_shape(files.weights)
        self._ids = load_tokenizer(files.tokenizer, config.max_tokens, special=False)
        self._where = files.weights
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            (table_VD,) = load_file(files.weights).values()
        except (SafetensorError, OSError, TypeError, ValueError) as error:
            what = f"not a readable safetensors file: {' '.join(str(error).split())}"
            raise DesaError(what, where=str(files.weights), hint="fetch it again") from None
        self._table_VD = table_VD.astype(np.float32)
        self._empty_D = _mean(self._table_VD)

    def encode(self, texts: Sequence[str], names: Sequence[str] | None = None) -> np.ndarray:
        """Unit vectors, float32 [len(texts), dimension], in the order of `texts`.

        Args:
            names: identifiers of the texts for error messages.

        Raises:
            DesaError: a vector is not finite or has no length; names its text.
        """
        vectors_ND = np.empty((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            ids = self._ids(text)
            if max(ids, default=0) >= self._tokens:
                what = f"the tokenizer gives token {max(ids)}, but the table has {self._tokens}"
                hint = "use the tokenizer and the table of the same model"
                raise DesaError(what, where=str(self._where), hint=hint)
            pooled_D = _mean(self._table_VD[ids]) if ids else self._empty_D
            with np.errstate(invalid="ignore", divide="ignore"):
                # A vector without length is found below, by name
                vectors_ND[row] = pooled_D / np.sqrt(np.sum(pooled_D * pooled_D))
        check_unit_rows(vectors_ND, len(texts), self.dimension, names=names)
        return vectors_ND


def _mean(rows_TD: np.ndarray) -> np.ndarray:
    return rows_TD.mean(axis=0, dtype=np.float64)
