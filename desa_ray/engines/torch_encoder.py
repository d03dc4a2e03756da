"""Dense vectors with sentence-transformers (torch), on a GPU or CPUs; heavy imports happen when it
is loaded.

Torch's kernels are not batch-invariant: a text's bits may change with its neighbours. So texts go
in fixed blocks by number, each block in one call, and the block size belongs to the identity of the
vectors.
"""

from collections.abc import Sequence

import numpy as np

from desa_ray.config import EncoderConfig
from desa_ray.engines.model_files import ModelFiles
from desa_ray.engines.vectors import check_unit_rows


class TorchEncoder:
    """Encodes blocks of `block_size` texts on `device`, cuda or cpu, there with `threads` threads.

    Attributes:
        dimension: length of a vector.
        block_size: callers hand over whole blocks, counted from text 0; only the last may be
            shorter.
    """

    def __init__(self, config: EncoderConfig, files: ModelFiles, *, threads: int, device: str):
        import torch  # pyright: ignore[reportMissingImports]
        from sentence_transformers import SentenceTransformer, models  # pyright: ignore

        torch.set_num_threads(threads)
        transformer = models.Transformer(
            str(files.weights.parent), max_seq_length=config.max_tokens
        )
        self.dimension = int(transformer.auto_model.config.hidden_size)
        self.block_size = config.block_size
        # Pooling and length come from our configuration; what the model's folder says about them is
        # not read.
        pooling = models.Pooling(self.dimension, pooling_mode=config.pooling)
        self._model = SentenceTransformer(
            modules=[transformer, pooling, models.Normalize()], device=device
        )

    def encode(self, texts: Sequence[str], names: Sequence[str] | None = None) -> np.ndarray:
        """Unit vectors, float32 [len(texts), dimension], in the order of `texts`; errors as
        `OnnxEncoder.encode`.
        """
        vectors_ND = np.empty((len(texts), self.dimension), np.float32)
        for start in range(0, len(texts), self.block_size):
            block = list(texts[start : start + self.block_size])
            vectors_ND[start : start + len(block)] = self._model.encode(
                block, batch_size=self.block_size, convert_to_numpy=True, show_progress_bar=False
            )
        check_unit_rows(vectors_ND, len(texts), self.dimension, names=names)
        return vectors_ND
