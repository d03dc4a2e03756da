"""Every way of multiplying gives the exact scores, bit for bit."""

import importlib.util

import faiss
import numpy as np
import pytest

from desa_ray.core.ranking import complete_order, exact_scores, quantise
from desa_ray.engines.gemm import CpuGemm, DigitsGemm, TorchGemm, best_gemm, faiss_gpu, gemm_named
from desa_ray.errors import DesaError


def unit(rng: np.random.Generator, count: int, dimensions: int) -> np.ndarray:
    vectors = rng.normal(size=(count, dimensions)) * rng.choice(
        [1, 1, 1e-3, 0], size=(count, dimensions)
    )
    vectors[:, 0] += 0.1
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _product(left, right):
    return faiss.pairwise_distances(left, right, metric=faiss.METRIC_INNER_PRODUCT)


def _ways():
    yield pytest.param(CpuGemm, id="numpy")
    yield pytest.param(lambda: DigitsGemm("faiss on the CPU", _product), id="faiss-cpu")
    if importlib.util.find_spec("torch"):
        yield pytest.param(lambda: TorchGemm("cpu"), id="torch-cpu")


@pytest.mark.parametrize("way", _ways())
@pytest.mark.parametrize("dimensions", [1, 3, 384, 1024])
def test_scores_are_the_exact_ones(way, dimensions):
    rng = np.random.default_rng(dimensions)
    queries, documents = unit(rng, 9, dimensions), unit(rng, 700, dimensions)
    documents[:3] = queries[:3]
    documents[3] = -queries[0]
    gemm = way()
    found = gemm.scores(gemm.prepared(queries), gemm.prepared(documents))
    expected = exact_scores(quantise(queries), quantise(documents))
    assert found.dtype == np.float32
    assert found.tobytes() == expected.tobytes()


def test_digits_put_together_are_the_vector():
    vectors = unit(np.random.default_rng(0), 50, 100)
    digits = DigitsGemm("", _product).prepared(vectors)
    assert all(np.abs(digit).max() <= 64 and (digit == np.rint(digit)).all() for digit in digits)
    whole = sum(digit.astype(np.float64) * 2.0 ** (7 * place) for place, digit in enumerate(digits))
    assert (whole == quantise(vectors)).all()


def test_too_many_dimensions_for_digits_are_refused():
    with pytest.raises(DesaError, match="1025 dimensions"):
        DigitsGemm("", _product).prepared(unit(np.random.default_rng(0), 2, 1025))


def _on_gpu() -> bool:
    return best_gemm().name != "numpy"


@pytest.mark.skipif(not _on_gpu(), reason="no GPU that torch or FAISS can use")
def test_gpu_rankings_have_the_hashes_of_the_cpu():
    rng = np.random.default_rng(1)
    queries, documents = unit(rng, 49, 384), unit(rng, 382_000, 384)
    expected = complete_order(exact_scores(quantise(queries), quantise(documents)))
    for gemm in filter(None, (best_gemm(), faiss_gpu())):
        found = complete_order(gemm.scores(gemm.prepared(queries), gemm.prepared(documents)))
        assert found.tobytes() == expected.tobytes(), gemm.name


def test_without_a_gpu_the_cpu_multiplies():
    gemm = best_gemm()
    assert isinstance(gemm, CpuGemm) or gemm.name in ("torch cuda", "faiss-gpu")


@pytest.mark.parametrize("scorer", ["torch", "faiss_gpu"])
def test_a_scorer_that_is_not_here_is_refused(scorer):
    if _on_gpu():
        assert gemm_named(scorer).name in ("torch cuda", "faiss-gpu")
        return
    with pytest.raises(DesaError, match=rf"encoder\.scorer: {scorer} finds no GPU"):
        gemm_named(scorer)


def test_a_scorer_by_name_is_the_one_that_was_asked_for():
    assert isinstance(gemm_named("cpu"), CpuGemm)
    assert gemm_named("auto").name == best_gemm().name
