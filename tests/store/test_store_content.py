"""Content hashes depend on the rows and their order, and on nothing about how they are cut or
stored.
"""

import datetime
import hashlib
import itertools

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desa_ray.errors import DesaError
from desa_ray.store.content import ArrayHasher, RowHasher, array_content, rows_content

SCHEMA = pl.Schema(
    {
        "id": pl.String,
        "rank": pl.Int32,
        "score": pl.Float64,
        "flag": pl.Boolean,
        "raw": pl.Binary,
        "day": pl.Date,
        "top": pl.List(pl.UInt32),
        "texts": pl.List(pl.String),
        "pair": pl.Array(pl.Float32, 2),
        "depth": pl.Struct({"dense": pl.Int64, "name": pl.String}),
    }
)
TEXT = st.text(max_size=4)
ROW = st.tuples(
    st.none() | TEXT,
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.booleans(),
    st.none() | st.binary(max_size=3),
    st.none() | st.dates(datetime.date(1980, 1, 1)),
    st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3),
    st.none() | st.lists(st.none() | TEXT, max_size=3),
    st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.none()
    | st.fixed_dictionaries({"dense": st.none() | st.integers(0, 9), "name": st.none() | TEXT}),
)


def frame_of(rows) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(ROW, max_size=7), cuts=st.lists(st.integers(0, 7), max_size=4))
def test_a_split_or_chunked_table_has_the_hash_of_the_whole(rows, cuts):
    whole = frame_of(rows)
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(bounds)]
    hasher = RowHasher(SCHEMA)
    for piece in pieces:
        hasher.update(piece)
    assert hasher.hexdigest() == rows_content(whole)
    assert rows_content(pl.concat(pieces, rechunk=False)) == rows_content(whole)


@settings(max_examples=60, deadline=None)
@given(one=st.lists(ROW, max_size=3), other=st.lists(ROW, max_size=3))
def test_hashes_are_equal_exactly_when_the_rows_are(one, other):
    a, b = frame_of(one), frame_of(other)
    same = repr(a.rows()) == repr(b.rows())  # repr tells -0.0 from 0.0, as the hash does
    assert (rows_content(a) == rows_content(b)) == same


def test_a_parquet_round_trip_keeps_the_hash(tmp_path):
    rows = [
        ("a", 1, 0.5, True, b"x", None, [1, None], [], (1, 2), {"dense": 1, "name": None}),
        (None,) * 10,
    ]
    frame = frame_of(rows * 50)
    for group in (None, 7):
        frame.write_parquet(tmp_path / "x.parquet", row_group_size=group)
        assert rows_content(pl.read_parquet(tmp_path / "x.parquet")) == rows_content(frame)


@pytest.mark.parametrize(
    "other",
    [
        pl.DataFrame({"a": ["x", "y"], "b": [2, 1]}),  # rows in another order within a column
        pl.DataFrame({"a": ["xy", ""], "b": [1, 2]}),  # the same bytes cut elsewhere
        pl.DataFrame({"a": ["x", None], "b": [1, 2]}),
        pl.DataFrame({"b": [1, 2], "a": ["x", "y"]}),
        pl.DataFrame({"a": ["x", "y"], "c": [1, 2]}),
        pl.DataFrame({"a": ["x", "y"], "b": [1, 2]}, schema_overrides={"b": pl.Int32}),
        pl.DataFrame({"a": ["x"], "b": [1]}),
    ],
)
def test_every_difference_of_rows_or_schema_changes_the_hash(other):
    assert rows_content(other) != rows_content(pl.DataFrame({"a": ["x", "y"], "b": [1, 2]}))


def test_values_hidden_under_a_null_do_not_count():
    values = pl.DataFrame({"s": [{"a": 1}, {"a": 2}], "n": [5, 6]})
    hidden = values.select(pl.when(pl.col("n") == 5).then(pl.all()))
    plain = pl.DataFrame({"s": [{"a": 1}, None], "n": [5, None]}, schema=values.schema)
    assert hidden.equals(plain)
    assert rows_content(hidden) == rows_content(plain)


@pytest.mark.parametrize(
    "dtype", [pl.Categorical(), pl.Enum(["a"]), pl.Decimal(10, 2), pl.Null, pl.Object]
)
def test_types_without_stable_bytes_are_refused_by_column(dtype):
    with pytest.raises(DesaError, match=r"column c: .* has no stable bytes \(cast it"):
        RowHasher({"a": pl.Int64, "c": dtype})


def test_a_table_hash_is_what_the_docstring_says():
    streams = {
        "0/valid": bytes([1, 0]),
        "0/value": np.array([7, 0], "<i8").tobytes(),
        "1/valid": bytes([1, 1]),
        "1/length": np.array([2, 1], "<u8").tobytes(),
        "1/bytes": "éx".encode(),
    }
    digests = ",".join(
        f'"{path}":"{hashlib.sha256(streams[path]).hexdigest()}"' for path in sorted(streams)
    )
    text = '{"rows":2,"schema":[["n","Int64"],["t","String"]],"streams":{' + digests + "}}"
    assert (
        rows_content(pl.DataFrame({"n": [7, None], "t": ["é", "x"]}))
        == hashlib.sha256(text.encode()).hexdigest()
    )


def test_an_array_hash_is_its_header_and_its_little_endian_rows():
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    expected = hashlib.sha256(b'{"dtype":"<f4","row_shape":[2]}' + array.tobytes()).hexdigest()
    assert array_content(array) == expected
    assert array_content(np.asfortranarray(array)) == expected
    assert array_content(array.astype(">f4")) == expected
    assert array_content(np.repeat(array, 2, axis=0)[::2]) == expected
    hasher = ArrayHasher(np.float32, (2,))
    for piece in (array[:1], array[1:1], array[1:]):
        hasher.update(piece)
    assert hasher.hexdigest() == expected


def test_dtype_and_row_shape_change_an_arrays_hash():
    array = np.zeros((4, 2), np.int32)
    others = [array.view(np.float32), array.reshape(2, 4), array.reshape(8), array[:3]]
    assert len({array_content(other) for other in [array, *others]}) == 5


def test_arrays_of_objects_are_refused():
    with pytest.raises(DesaError, match="no stable bytes"):
        array_content(np.array(["a", None], dtype=object))
