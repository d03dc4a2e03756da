"""Exact scores and complete orders: the same whatever the batch, the blocks and the threads."""

import hashlib
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from desa_ray.core.ranking import (
    complete_order,
    exact_scores,
    float32_scores,
    quantise,
    sparse_order,
)
from desa_ray.errors import DesaError

THREADED = """
import hashlib, numpy as np
from desa_ray.core.ranking import complete_order, exact_scores, quantise
rng = np.random.default_rng(5)
def unit(n):
    v = rng.normal(size=(n, 384))
    return (v / np.linalg.norm(v, axis=1, keepdims=True)).astype(np.float32)
scores = exact_scores(quantise(unit(64)), quantise(unit(3000)))
print(hashlib.sha256(scores.tobytes() + complete_order(scores).tobytes()).hexdigest())
"""


def unit(rng: np.random.Generator, count: int, dimensions: int = 384) -> np.ndarray:
    vectors = rng.normal(size=(count, dimensions))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def vectors() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return unit(rng, 64), unit(rng, 3000)


def test_exact_scores_are_the_rounded_integer_dot_products(vectors):
    queries, documents = vectors
    scores = exact_scores(quantise(queries), quantise(documents))
    for q, d in ((0, 0), (3, 2999), (63, 17)):
        integers = [
            [round(Fraction(float(x)) * 2**26) for x in row] for row in (queries[q], documents[d])
        ]
        exact = Fraction(sum(a * b for a, b in zip(*integers, strict=True)), 2**52)
        assert float(scores[q, d]) == float(np.float32(float(exact)))
    np.testing.assert_allclose(scores, float32_scores(queries, documents), atol=1e-6)


def test_ranks_do_not_depend_on_batch_size_or_column_blocks(vectors):
    queries, documents = map(quantise, vectors)
    expected = exact_scores(queries, documents)
    order = complete_order(expected)
    for batch in (1, 7, 64):
        parts = [exact_scores(queries[i : i + batch], documents) for i in range(0, 64, batch)]
        assert np.concatenate(parts).tobytes() == expected.tobytes()
        assert np.concatenate([complete_order(part) for part in parts]).tobytes() == order.tobytes()
    for block in (1, 333, 1024):
        if block > 1:
            parts = [exact_scores(queries, documents[i : i + block]) for i in range(0, 3000, block)]
        else:
            parts = [exact_scores(queries, documents[i : i + 1]) for i in range(100)]
        assert (
            np.hstack(parts).tobytes()
            == np.ascontiguousarray(expected[:, : sum(p.shape[1] for p in parts)]).tobytes()
        )


@pytest.mark.long
def test_ranks_do_not_depend_on_the_number_of_blas_threads(vectors):
    queries, documents = map(quantise, vectors)
    scores = exact_scores(queries, documents)
    expected = hashlib.sha256(scores.tobytes() + complete_order(scores).tobytes()).hexdigest()
    for threads in ("1", "2"):
        environment = os.environ | {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        command = [sys.executable, "-c", THREADED]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        assert done.stdout.strip() == expected


def test_longer_or_broken_vectors_are_not_scored():
    for broken in (
        np.full((1, 4), 0.6),
        np.array([[np.nan, 0, 0, 0]]),
        np.array([[np.inf, 0, 0, 0]]),
    ):
        with pytest.raises(AssertionError, match="longer than"):
            quantise(broken.astype(np.float32))


def test_products_of_signed_zeros_score_plain_zero():
    left = quantise(np.array([[-1, 0]], np.float32))
    right = quantise(np.array([[0, -1], [-0.0, 0]], np.float32))
    assert not np.signbit(exact_scores(left, right)).any()


def test_complete_order_is_descending_with_ties_by_number():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(6, 5000)).astype(np.float32)
    scores[:, ::3] = np.round(scores[:, ::3], 1)
    scores[0, :8] = [0.0, -0.0, np.inf, -np.inf, -0.0, 0.0, 1e-45, -1e-45]
    order = complete_order(scores)
    assert order.dtype == np.int32
    for row in range(6):
        by_rule = sorted(range(5000), key=lambda d, row=row: (-scores[row, d], d))
        assert order[row].tolist() == by_rule
    assert complete_order(np.zeros((2, 0), np.float32)).shape == (2, 0)


def test_sparse_order_keeps_every_hit_and_puts_zero_scores_last():
    """Sparse order keeps every hit and puts zero scores last by number."""
    docs = np.array([2, 5, 6, 9, 12], np.int32)
    assert sparse_order(docs, np.array([0.0, 1.5, 0.0, 1.5, 2.0])).tolist() == [12, 5, 9, 2, 6]
    assert sparse_order(docs, np.zeros(5, np.float32)).tolist() == docs.tolist()
    assert sparse_order(docs[:0], np.zeros(0)).size == 0


def test_nan_scores_are_refused():
    scores = np.ones((3, 4), np.float32)
    scores[1, 2] = np.nan
    with pytest.raises(DesaError, match="query row 1"):
        complete_order(scores)
    with pytest.raises(DesaError, match="not a number"):
        sparse_order(np.arange(4, dtype=np.int32), scores[1])
