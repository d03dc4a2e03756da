"""Columns of lists from flat values: polars converts Python's lists one by one, Arrow only needs
their offsets.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from polars.datatypes import DataType, DataTypeClass

from desa_ray.store.content import OLDEST


def edges(sizes: Sequence[int]) -> NDArray[np.int64]:
    """int64 [n + 1]: where each of n lists begins in all of them together, and where the last one
    ends.
    """
    return np.cumsum([0, *sizes])


def list_column(flat: pl.Series, starts: NDArray[np.int64]) -> pl.Series:
    """The values as lists; `starts` as from `edges`."""
    values: Any = flat.to_arrow(compat_level=OLDEST)
    # pa.array imports pandas
    offsets = pa.Array.from_buffers(pa.int64(), starts.size, [None, pa.py_buffer(starts)])
    return pl.Series(pa.LargeListArray.from_arrays(offsets, values))


def frame_of(columns: dict[str, list[Any]], schema: pl.Schema) -> pl.DataFrame:
    """A frame of one Python list per column, in the schema's order. Raises TypeError for a value of
    another type.
    """
    return pl.DataFrame(
        {name: _column(columns[name], dtype) for name, dtype in schema.items()}, schema, strict=True
    )


def _column(values: list[Any], dtype: DataType | DataTypeClass) -> pl.Series:
    if not isinstance(dtype, pl.List) or None in values:
        return pl.Series(values=values, dtype=dtype, strict=True)
    flat = pl.Series(values=list(chain.from_iterable(values)), dtype=dtype.inner, strict=True)
    return list_column(flat, edges([len(own) for own in values]))
