"""Columns of lists, against polars' own way through Python's lists."""

import numpy as np
import polars as pl
import pytest

from desa_ray.stages.columns import edges, frame_of, list_column

SCHEMA = pl.Schema(
    {
        "number": pl.Int64,
        "name": pl.String,
        "ids": pl.List(pl.String),
        "values": pl.List(pl.Float64),
        "flags": pl.List(pl.Boolean),
    }
)
ROWS = {
    "number": [1, None, 3],
    "name": ["a", "é", None],
    "ids": [["x", "日本"], [], ["y"]],
    "values": [[0.5], None, [1.0, 2.0]],  # a list that is not there
    "flags": [[], [], []],
}


@pytest.mark.parametrize("count", [3, 1, 0])
def test_a_frame_is_what_polars_makes_of_the_same_lists(count):
    columns = {name: values[:count] for name, values in ROWS.items()}
    made = frame_of(columns, SCHEMA)
    assert made.equals(pl.DataFrame(columns, SCHEMA))
    assert made.schema == SCHEMA


def test_a_value_of_another_type_is_refused():
    with pytest.raises(TypeError):
        frame_of({**ROWS, "ids": [["x"], [1], []]}, SCHEMA)


def test_lists_begin_where_the_edges_say():
    starts = edges([2, 0, 1])
    assert starts.tolist() == [0, 2, 2, 3]
    assert list_column(pl.Series(np.arange(3, dtype=np.int32)), starts).to_list() == [
        [0, 1],
        [],
        [2],
    ]
