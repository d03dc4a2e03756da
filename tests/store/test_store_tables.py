"""Tables and arrays come back as they were, under their declared schema; the same rows give the
same bytes.
"""

from uuid import uuid4

import numpy as np
import polars as pl
import pytest

from desa_ray.errors import CorruptArtifact, DesaError
from desa_ray.store.artifact import Artifact
from desa_ray.store.artifacts import Store
from desa_ray.store.content import array_content, rows_content
from desa_ray.store.keys import Key
from desa_ray.store.tables import read_array, read_table, write_array, write_table

SCHEMA = {"query_id": pl.String, "top": pl.List(pl.UInt32), "depth": pl.Int32}


def artifact_in(root, name: str = "demo") -> Artifact:
    return Store(root).artifact(Key("records", 1, {"name": name}, {}))


@pytest.fixture(params=["local", "memory"])
def artifact(request, tmp_path) -> Artifact:
    return artifact_in(tmp_path if request.param == "local" else f"memory://{uuid4().hex}")


@pytest.fixture
def frame() -> pl.DataFrame:
    rows = [(f"q{i}", [i, i + 1], i % 7) for i in range(1000)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def test_a_table_comes_back_with_its_rows_and_content_hash(artifact, frame):
    info = write_table(artifact, "part-00000.parquet", frame, SCHEMA)
    assert (info.rows, info.content) == (1000, rows_content(frame))
    assert read_table(artifact, "part-00000.parquet", SCHEMA).equals(frame)


def test_the_same_rows_give_the_same_bytes_however_the_frame(tmp_path, frame):
    """The same rows give the same bytes however the frame was made."""
    pieces = pl.concat([frame[:3], frame[3:500], frame[500:]], rechunk=False)
    sliced = pl.concat([frame[-5:], frame])[5:]
    infos = [
        write_table(artifact_in(tmp_path, str(i)), "x.parquet", made, SCHEMA)
        for i, made in enumerate(
            [frame, frame, pieces, sliced, pl.DataFrame(frame.to_dicts(), schema=SCHEMA)]
        )
    ]
    assert len({info.sha256 for info in infos}) == 1


def test_an_empty_table_is_a_table(artifact, frame):
    write_table(artifact, "x.parquet", frame[:0], SCHEMA)
    assert read_table(artifact, "x.parquet", SCHEMA).schema == pl.Schema(SCHEMA)


def test_every_difference_from_the_schema_is_listed_when_written(artifact, frame):
    wrong = frame.select(pl.col("depth").cast(pl.Int64), "query_id", extra=1)
    with pytest.raises(DesaError) as error:
        write_table(artifact, "x.parquet", wrong, SCHEMA)
    for words in (
        "top (List(UInt32)) is missing",
        "extra (Int32) is unknown",
        "depth is Int64, not Int32",
        "x.parquet",
    ):
        assert words in str(error.value)
    assert artifact.parts() == {}


def test_the_order_of_columns_is_part_of_the_schema(artifact, frame):
    with pytest.raises(
        DesaError, match="in the order depth, query_id, top, not query_id, top, depth"
    ):
        write_table(artifact, "x.parquet", frame.select("depth", "query_id", "top"), SCHEMA)


def test_a_stored_table_of_another_schema_is_refused_when_read(artifact, frame):
    write_table(artifact, "x.parquet", frame, SCHEMA)
    with pytest.raises(DesaError, match="depth is Int32, not Float64"):
        read_table(artifact, "x.parquet", {**SCHEMA, "depth": pl.Float64})


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(4, 3),
        np.asfortranarray(np.arange(12, dtype=np.int64).reshape(4, 3)),
        np.arange(4, dtype=">u4"),
        np.zeros((0, 5), np.float64),
        np.array([True, False]),
    ],
)
def test_an_array_comes_back_with_its_values_shape_and_dtype(artifact, array):
    info = write_array(artifact, "x.npy", array)
    back = read_array(artifact, "x.npy")
    assert (info.rows, info.content) == (len(array), array_content(array))
    assert back.dtype == array.dtype.newbyteorder("<")
    assert np.array_equal(back, array)
    assert not back.flags.writeable
    assert array_content(back) == info.content


def test_memory_order_and_byte_order_leave_no_trace_in_the_file(tmp_path):
    array = np.arange(6, dtype="<i4").reshape(2, 3)
    made = [array, np.asfortranarray(array), array.astype(">i4"), np.repeat(array, 2, axis=0)[::2]]
    infos = [write_array(artifact_in(tmp_path, str(i)), "x.npy", a) for i, a in enumerate(made)]
    assert len({info.sha256 for info in infos}) == 1


def test_objects_are_refused_and_never_unpickled(artifact):
    with pytest.raises(DesaError, match="no stable bytes"):
        write_array(artifact, "x.npy", np.array([{}], dtype=object))
    artifact.write_part(
        "y.npy", lambda path: np.save(path, np.array([{}]), allow_pickle=True), rows=1
    )
    with pytest.raises(CorruptArtifact, match="Python objects"):
        read_array(artifact, "y.npy")


def test_a_flipped_byte_in_a_table_is_never_decoded(tmp_path, frame):
    artifact = artifact_in(tmp_path)
    info = write_table(artifact, "x.parquet", frame, SCHEMA)
    path = tmp_path / "records" / artifact.key.short / info.file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptArtifact, match=info.file):
        read_table(artifact, "x.parquet", SCHEMA)
