"""Data that looks like real data, from a seed: clustered vectors, Zipfian text,
correlated scores.
"""

from collections.abc import Iterator

import numpy as np

DIMENSIONS = 384
WORDS = 200_000


def unit_vectors(
    rng: np.random.Generator, count: int, centres: np.ndarray, spread: float = 1.0
) -> np.ndarray:
    """float32 [count, D] unit rows around some of the centres."""
    rows = centres[rng.integers(0, len(centres), count)]
    rows = rows + rng.standard_normal((count, rows.shape[1]), np.float32) * np.float32(
        spread / rows.shape[1] ** 0.5
    )
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def centres(rng: np.random.Generator, count: int = 500) -> np.ndarray:
    rows = rng.standard_normal((count, DIMENSIONS), np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def zipf_texts(rng: np.random.Generator, count: int, mean_length: int = 60) -> Iterator[str]:
    """Texts of words w1x, w2x, ...: the r-th most frequent word is r times rarer than the first."""
    shares = 1 / np.arange(1, WORDS + 1)
    edges = np.cumsum(shares / shares.sum())
    for _ in range(count):
        picks = np.searchsorted(edges, rng.random(max(1, int(rng.poisson(mean_length))))) + 1
        yield " ".join(f"w{pick}x" for pick in picks)


def two_score_lists(documents: int, seed: int, noise: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
    """Dense float32 [N] scores, and sparse ones, 0 for the half of the documents that match
    nothing.
    """
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(documents, np.float32)
    dense = common + np.float32(noise) * rng.standard_normal(documents, np.float32)
    sparse = common + np.float32(noise) * rng.standard_normal(documents, np.float32) + np.float32(9)
    sparse[rng.random(documents) < 0.5] = 0
    return dense, sparse


def two_rankings(documents: int, seed: int, noise: float = 0.9) -> list[np.ndarray]:
    """Complete dense and sparse rankings of those scores, int32 document numbers, best first."""
    dense, sparse = two_score_lists(documents, seed, noise)
    hits = np.flatnonzero(sparse)
    return [
        np.argsort(-dense, kind="stable").astype(np.int32),
        hits[np.argsort(-sparse[hits], kind="stable")].astype(np.int32),
    ]
