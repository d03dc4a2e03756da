"""Shard files: bits and shape survive, equal vectors give equal files, and nothing wrong is written
or read.
"""

import gc

import faiss
import numpy as np
import pytest

from desa_ray.engines.dense_index import read_shard, write_shard
from desa_ray.errors import CorruptArtifact, DesaError


def unit_rows(rows: int, dimension: int = 384, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(rows, dimension))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_rows_survive_bit_for_bit(rows, tmp_path):
    vectors = unit_rows(rows)
    write_shard(vectors, tmp_path / "a.faiss")
    back = read_shard(tmp_path / "a.faiss", rows, 384)
    assert back.dtype == np.float32
    assert back.shape == (rows, 384)
    assert not back.flags.writeable
    gc.collect()  # the index itself is out of reach by now; its memory must not be
    [np.ones(1 << 16) for _ in range(50)]
    assert back.tobytes() == vectors.tobytes()


def test_equal_vectors_give_equal_bytes_whatever_their_layout(tmp_path):
    vectors = unit_rows(50)
    for name, layout in {
        "a": vectors,
        "b": np.asfortranarray(vectors),
        "c": unit_rows(100)[:50],
    }.items():
        write_shard(layout, tmp_path / name)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b
    assert (a == c) == np.array_equal(vectors, unit_rows(100)[:50])


def test_faiss_itself_reads_the_file_as_a_flat_inner_product(tmp_path):
    """Faiss itself reads the file as a flat inner product index."""
    vectors = unit_rows(200)
    write_shard(vectors, tmp_path / "a.faiss")
    index = faiss.read_index(str(tmp_path / "a.faiss"))
    scores, numbers = index.search(vectors[7:8], 1)
    assert numbers[0, 0] == 7
    assert abs(scores[0, 0] - 1) < 1e-6


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.2, 3e38])
def test_rows_that_are_not_unit_vectors_are_refused_and_nothing(value, tmp_path):
    """Rows that are not unit vectors are refused and nothing is written."""
    vectors = unit_rows(10)
    vectors[3, 5] = value
    with pytest.raises(DesaError, match="length one: 3 "):
        write_shard(vectors, tmp_path / "a.faiss")
    assert not (tmp_path / "a.faiss").exists()


@pytest.mark.parametrize("vectors", [unit_rows(3).astype(np.float64), unit_rows(3)[0]])
def test_other_types_and_shapes_are_refused(vectors, tmp_path):
    with pytest.raises(DesaError, match="expected float32"):
        write_shard(vectors, tmp_path / "a.faiss")


def test_a_file_that_is_not_what_the_reader_expects_is_refused(tmp_path):
    """A file that is not what the reader expects is refused by name."""
    path = tmp_path / "part-0007.faiss"
    write_shard(unit_rows(10), path)
    for rows, dimension in [(9, 384), (10, 383), (3840, 1)]:
        with pytest.raises(
            CorruptArtifact, match=r"part-0007\.faiss: 10 vectors of 384 dimensions"
        ):
            read_shard(path, rows, dimension)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CorruptArtifact, match=r"part-0007\.faiss: FAISS cannot read it"):
        read_shard(path, 10, 384)
    for other in (faiss.IndexFlatL2(384), faiss.IndexHNSWFlat(384, 8)):
        faiss.write_index(other, str(path))
        with pytest.raises(CorruptArtifact, match="not a flat inner-product index"):
            read_shard(path, 0, 384)
    with pytest.raises(CorruptArtifact, match="absent"):
        read_shard(tmp_path / "absent.faiss", 10, 384)
