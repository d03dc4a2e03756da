"""Dense vectors on the CPU with onnxruntime, bit for bit the same whatever the batch, order,
neighbours or threads.

How: a text's tokens are padded to the next multiple of eight and batched only with texts of equal
padded length, so that the graph sees shapes that the text alone decides; the graph ends at the
hidden states, and each text is pooled by itself, in float64, over its own tokens.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from desa_ray.config import EncoderConfig
from desa_ray.engines.bert_files import read_architecture, read_header
from desa_ray.engines.model_files import ModelFiles, quantises, sha256_file
from desa_ray.engines.tokenizer import load_tokenizer
from desa_ray.engines.vectors import VERSIONS, check_unit_rows
from desa_ray.errors import DesaError
from desa_ray.files import whole
from desa_ray.types import sha256_json

PAD_MULTIPLE = 8
CUDA = "CUDAExecutionProvider"

Opened = Callable[[bytes | Path, int, Path], ort.InferenceSession]  # graph, threads, weights


class OnnxEncoder:
    """Encodes texts with one onnxruntime session of `threads` threads.

    Attributes:
        dimension: length of a vector.
        block_size: 1, as every text is encoded by itself.
    """

    def __init__(
        self,
        config: EncoderConfig,
        files: ModelFiles,
        *,
        threads: int,
        model_home: Path,
        batch_size: int,
    ):
        self._pool = POOLING[config.pooling]
        # Scales of numbers that a graph quantises as it runs depend on a batch
        at_once = 1 if quantises(files) else batch_size
        self.block_size, self._batch_size = self._sizes(config, at_once)
        self._ids = load_tokenizer(files.tokenizer, config.max_tokens)
        self._graph = TokenGraph(files, model_home, threads, self._opened)
        self.dimension = self._graph.width

    def _sizes(self, config: EncoderConfig, batch_size: int) -> tuple[int, int]:
        """Texts that affect one another's vectors, and texts that are encoded at once."""
        return 1, batch_size

    def _opened(self, graph: bytes | Path, threads: int, weights: Path) -> ort.InferenceSession:
        return on_cpu(graph, threads, weights)

    def encode(self, texts: Sequence[str], names: Sequence[str] | None = None) -> np.ndarray:
        """Unit vectors, float32 [len(texts), dimension], in the order of `texts`.

        Args:
            names: identifiers of the texts for error messages.

        Raises:
            DesaError: a vector is not finite or has no length; names its text.
        """
        tokens = [self._ids(text) for text in texts]
        vectors_ND = np.empty((len(texts), self.dimension), np.float32)
        for batch in batches([len(ids) for ids in tokens], self._batch_size):
            hidden_BTD = self._graph.run([tokens[row] for row in batch])
            for row, hidden_TD in zip(batch, hidden_BTD, strict=True):
                pooled_D = self._pool(hidden_TD[: len(tokens[row])])
                with np.errstate(invalid="ignore", divide="ignore"):
                    # A vector without length is found below, by name
                    vectors_ND[row] = pooled_D / np.sqrt(np.sum(pooled_D * pooled_D))
        check_unit_rows(vectors_ND, len(texts), self.dimension, names=names)
        return vectors_ND


class TokenGraph:
    """A graph from tokens to a vector for each: hidden states, or logits with `head`.

    Attributes:
        width: length of such a vector.
    """

    def __init__(
        self,
        files: ModelFiles,
        model_home: Path,
        threads: int,
        opened: Opened,
        *,
        head: bool = False,
    ):
        self._session = opened(_graph(files, model_home, head), threads, files.weights)
        self._hidden, self.width = _hidden_output(self._session, files.weights)
        self._weights, self._words = files.weights, _words(files)
        self._typed = any(own.name == "token_type_ids" for own in self._session.get_inputs())

    def run(self, tokens: Sequence[Sequence[int]]) -> np.ndarray:
        """The vectors of a batch of equal padded length, float32 [B, T, D]."""
        ids_BT, mask_BT = _padded(tokens)
        if self._words is not None and ids_BT.max(initial=0) >= self._words:
            what = f"the tokenizer gives token {ids_BT.max()}, but the weights have {self._words}"
            raise DesaError(
                what,
                where=str(self._weights),
                hint="use the tokenizer.json and the weights of the same model",
            )
        given = {"input_ids": ids_BT, "attention_mask": mask_BT}
        if self._typed:
            given["token_type_ids"] = np.zeros_like(ids_BT)
        try:
            found = self._session.run([self._hidden], given)[0]
        except Exception as error:
            # onnxruntime has one class per error code, all derived from Exception alone
            what = (
                f"the model cannot run {ids_BT.shape[1]} tokens:"
                f" {' '.join(str(error).split())[:300]}"
            )
            raise DesaError(
                what, where=str(self._weights), hint="lower encoder.max_tokens, or fetch it again"
            ) from None
        return np.asarray(found)


class OnnxCudaEncoder(OnnxEncoder):
    """Encodes blocks of `block_size` texts on the first GPU that the process sees, by onnxruntime's
    CUDA provider (onnxruntime-gpu); a text's bits may depend on the other texts of its block.
    """

    def _sizes(self, config: EncoderConfig, batch_size: int) -> tuple[int, int]:
        """A block is a batch, however many texts a CPU takes at once."""
        return config.block_size, config.block_size

    def _opened(self, graph: bytes | Path, threads: int, weights: Path) -> ort.InferenceSession:
        return cuda_session(graph, threads, weights)

    def encode(self, texts: Sequence[str], names: Sequence[str] | None = None) -> np.ndarray:
        """As `OnnxEncoder.encode`, block by block."""
        vectors_ND = np.empty((len(texts), self.dimension), np.float32)
        for start in range(0, len(texts), self.block_size):
            block = slice(start, start + self.block_size)
            own = None if names is None else names[block]
            vectors_ND[block] = super().encode(texts[block], own)
        return vectors_ND


def cuda_session(graph: bytes | Path, threads: int, weights: Path) -> ort.InferenceSession:
    """A session on a GPU. Where CUDA does not start, onnxruntime goes on with CPUs and only notes
    it, so what the session uses is looked at.

    Raises:
        DesaError: it does not use a GPU.
    """
    if CUDA in ort.get_available_providers():
        session = _session(graph, threads, weights, [(CUDA, {"use_tf32": "0"})])
        if CUDA in session.get_providers():
            return session
    raise DesaError(
        f"onnxruntime {ort.__version__} finds no GPU that it can use here",
        where="encoder.engine",
        hint="install onnxruntime-gpu with the CUDA libraries it needs, or set encoder.engine=cpu",
    )


def _words(files: ModelFiles) -> int | None:
    """How many tokens the weights know; None for a ready-made graph."""
    if files.config is None:
        return None
    return read_header(files.weights)["embeddings.word_embeddings.weight"].shape[0]


def _mean(hidden_TD: np.ndarray) -> np.ndarray:
    return hidden_TD.mean(axis=0, dtype=np.float64)


def _first_token(hidden_TD: np.ndarray) -> np.ndarray:
    return hidden_TD[0].astype(np.float64)


POOLING = {"mean": _mean, "cls": _first_token}


def batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Row numbers, at most `batch_size` together, of texts with equal padded length; long texts
    first.

    Long first: a machine with too little memory fails at once, and later batches fit what is
    already allocated.
    """
    groups: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        groups.setdefault(-(-length // PAD_MULTIPLE), []).append(row)
    for _, rows in sorted(groups.items(), reverse=True):
        for start in range(0, len(rows), batch_size):
            yield rows[start : start + batch_size]


def _padded(tokens: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and mask, int64 [B, T], T the next multiple of eight; what pads is masked, so its
    id is any id.
    """
    length = -(-len(tokens[0]) // PAD_MULTIPLE) * PAD_MULTIPLE
    ids_BT = np.zeros((len(tokens), length), np.int64)
    mask_BT = np.zeros_like(ids_BT)
    for row, ids in enumerate(tokens):
        ids_BT[row, : len(ids)] = ids
        mask_BT[row, : len(ids)] = 1
    return ids_BT, mask_BT


def on_cpu(graph: bytes | Path, threads: int, weights: Path) -> ort.InferenceSession:
    """A session of so many threads on the CPU; `weights` are for errors."""
    return _session(graph, threads, weights, ["CPUExecutionProvider"])


def _session(
    graph: bytes | Path, threads: int, weights: Path, providers: Sequence[Any]
) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that wait without spinning: beside other processes, spinning halved the texts per
    # CPU-second.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Shapes vary, and both of these keep memory for every shape seen; without them the speed is the
    # same.
    options.enable_mem_pattern = options.enable_cpu_mem_arena = False
    try:
        return ort.InferenceSession(
            graph if isinstance(graph, bytes) else str(graph), options, providers
        )
    except Exception as error:
        # onnxruntime has one class per error code, all derived from Exception alone
        raise DesaError(
            f"not a readable ONNX graph: {error}", where=str(weights), hint="fetch it again"
        ) from None


def _hidden_output(session: ort.InferenceSession, weights: Path) -> tuple[str, int]:
    """Name and width of the graph's one float output [batch, length, width]; a ready-made graph may
    have others.
    """
    inputs = {value.name for value in session.get_inputs()} - {"token_type_ids"}
    outputs = [
        value
        for value in session.get_outputs()
        if value.type == "tensor(float)" and len(value.shape) == 3
    ]
    if (
        inputs != {"input_ids", "attention_mask"}
        or len(outputs) != 1
        or not isinstance(outputs[0].shape[2], int)
    ):
        raise DesaError(
            f"a graph from {sorted(inputs)} to"
            f" {[(value.name, value.shape) for value in session.get_outputs()]}",
            where=str(weights),
            hint=(
                "give safetensors, or a graph from input_ids and attention_mask to one float"
                " [batch, length, width]"
            ),
        )
    return outputs[0].name, outputs[0].shape[2]


def _graph(files: ModelFiles, model_home: Path, head: bool) -> bytes | Path:
    """The ready-made graph's path, else the converted graph's bytes, converted once per content and
    kept.

    The kept copy counts only if it has the hash that was written after it; anything else is
    converted again.
    """
    if files.config is None:
        return files.weights
    architecture = read_architecture(files.config)
    own = [VERSIONS["onnx"], sha256_file(files.weights), asdict(architecture)]
    key = sha256_json([*own, *(["head"] if head else [])])
    kept, digest = model_home / f"bert-{key[:12]}.onnx", model_home / f"bert-{key[:12]}.sha256"
    try:
        graph = kept.read_bytes()
        if digest.read_text(encoding="ascii") == hashlib.sha256(graph).hexdigest():
            return graph
    except (FileNotFoundError, UnicodeDecodeError):
        pass  # never converted, or cut off between the two files

    from desa_ray.engines.bert_onnx import convert

    graph = convert(files.weights, architecture, head=head)
    try:
        model_home.mkdir(parents=True, exist_ok=True)
        _write(kept, graph)
        _write(digest, hashlib.sha256(graph).hexdigest().encode())
    except OSError as error:
        raise DesaError(
            f"cannot save the converted model: {error}", where=str(kept), hint="make it writable"
        ) from None
    return graph


def _write(path: Path, data: bytes) -> None:
    """All of `data` or nothing under the final name, also with several writers and a crash."""
    with whole(path, durable=True) as temporary:
        temporary.write_bytes(data)
