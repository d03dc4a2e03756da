"""Content hashes over logical rows in order: equal rows give equal hashes, however they are split,
chunked or stored.

A table is hashed column by column: every column is one or more byte streams (validity, values,
lengths, ...) to which each further frame appends, so the digests depend on the concatenated rows
only. The header holds the schema and the number of rows. An array is hashed as its rows'
little-endian bytes in C order behind a header of dtype and row shape. A large one is hashed by the
hashes of its rows, which are made where the rows are and put together without them.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import DTypeLike
from polars.datatypes import DataType, DataTypeClass

from desa_ray.errors import DesaError
from desa_ray.types import canonical_json, sha256_json

INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
TEXTS: tuple[Any, ...] = (pl.String, pl.Binary)
FIXED: tuple[Any, ...] = (
    *INTEGERS,
    pl.Float32,
    pl.Float64,
    pl.Boolean,
    pl.Date,
    pl.Datetime,
    pl.Duration,
    pl.Time,
)
HASH_BYTES = 32
OLDEST = pl.CompatLevel.oldest()
Schema = Mapping[str, DataType | DataTypeClass]


class RowHasher:
    """SHA-256 over the rows of the frames of one schema, in the order they are given.

    Nulls differ from every value; floats count by their bits (so -0.0 is not 0.0).

    Args:
        schema: column names to dtypes: numbers, Boolean, String, Binary, times, and List, Array,
            Struct of these.

    Raises:
        DesaError: a column of another type (categories and objects have no bytes of their own).
    """

    def __init__(self, schema: Schema):
        self.schema = pl.Schema(schema)
        self.rows = 0
        self._streams: dict[str, Any] = {}  # of hashlib, whose class has no public name
        for number, (name, dtype) in enumerate(self.schema.items()):
            for path in _streams(str(number), dtype, name):
                self._streams[path] = hashlib.sha256()

    def update(self, frame: pl.DataFrame) -> None:
        """Append rows; the frame's columns, order and dtypes are the schema's."""
        assert list(frame.schema.items()) == list(self.schema.items()), (frame.schema, self.schema)
        for number, column in enumerate(frame.iter_columns()):
            self._append(str(number), column)
        self.rows += frame.height

    def hexdigest(self) -> str:
        header = [[name, str(dtype)] for name, dtype in self.schema.items()]
        streams = {path: stream.hexdigest() for path, stream in self._streams.items()}
        return sha256_json({"schema": header, "rows": self.rows, "streams": streams})

    def _append(self, path: str, values: pl.Series) -> None:
        # Straight from the buffers where that can be: polars' own operations take longer than a
        # small column's hash.
        dtype, full = values.dtype, values.null_count() == 0
        self._write(
            f"{path}/valid",
            np.ones(len(values), np.bool_) if full else values.is_not_null().to_numpy(),
        )
        if isinstance(dtype, pl.Struct):
            for number, field in enumerate(dtype.fields):
                self._append(f"{path}/{number}", values.struct.field(field.name))
        elif isinstance(dtype, pl.Array):
            self._append(f"{path}/array", values.arr.to_list())
        elif isinstance(dtype, pl.List):
            lists: Any = _arrow(values)
            lengths = (
                np.diff(_offsets(lists)) if full else values.list.len().fill_null(0).to_numpy()
            )
            self._write(f"{path}/length", lengths.astype(np.uint64))
            self._append(f"{path}/item", pl.Series(lists.flatten(), dtype=dtype.inner))
        elif dtype in TEXTS:
            strings: Any = _arrow(
                values if full else values.fill_null("" if dtype == pl.String else b"")
            )
            offsets: Any = _offsets(strings)
            data: Any = strings.buffers()[2]
            self._write(f"{path}/length", np.diff(offsets).astype(np.uint64))
            if data is not None:
                self._streams[f"{path}/bytes"].update(memoryview(data)[offsets[0] : offsets[-1]])
        else:
            numbers = values.to_physical()
            if not full:
                numbers = numbers.fill_null(False if dtype == pl.Boolean else 0)
            self._write(f"{path}/value", numbers.to_numpy())

    def _write(self, path: str, values: np.ndarray) -> None:
        self._streams[path].update(row_bytes(values))


def _arrow(values: pl.Series) -> Any:
    """The Arrow array of a column; pyarrow comes without types."""
    return cast(Any, values).to_arrow(compat_level=OLDEST)


def _streams(path: str, dtype: DataType | DataTypeClass, column: str) -> Iterator[str]:
    """The byte streams of a column of this type."""
    yield f"{path}/valid"
    if isinstance(dtype, pl.Struct):
        for number, field in enumerate(dtype.fields):
            yield from _streams(f"{path}/{number}", field.dtype, column)
    elif isinstance(dtype, pl.Array):
        yield from _streams(f"{path}/array", pl.List(dtype.inner), column)
    elif isinstance(dtype, pl.List):
        yield f"{path}/length"
        yield from _streams(f"{path}/item", dtype.inner, column)
    elif dtype in TEXTS:
        yield from (f"{path}/length", f"{path}/bytes")
    elif dtype in FIXED:
        yield f"{path}/value"
    else:
        hint = "cast it to String or to numbers"
        raise DesaError(f"{dtype} has no stable bytes", where=f"column {column}", hint=hint)


def _offsets(array: Any) -> np.ndarray:
    """Where the items of a large list or string array of Arrow begin, and where the last
    one ends.
    """
    if len(array) == 0:
        return np.zeros(1, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]


class ArrayHasher:
    """SHA-256 over the rows (first axis) of arrays of one dtype and row shape, in the order they
    are given.
    """

    def __init__(self, dtype: DTypeLike, row_shape: tuple[int, ...] = ()):
        self.dtype, self.row_shape = np.dtype(dtype).newbyteorder("<"), row_shape
        header = canonical_json({"dtype": self.dtype.str, "row_shape": list(row_shape)}).encode()
        self._hash = hashlib.sha256(header)

    def update(self, rows: np.ndarray) -> None:
        """Append rows, shape [n, *row_shape], of the dtype (in either byte order)."""
        assert (rows.dtype.newbyteorder("<"), rows.shape[1:]) == (self.dtype, self.row_shape), (
            rows.dtype,
            rows.shape,
        )
        self._hash.update(row_bytes(rows))

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def row_hashes(array: np.ndarray) -> np.ndarray:
    """uint8 [n, 32]: the SHA-256 of every row (first axis) of an array."""
    data, size = row_bytes(array), array.nbytes // max(1, len(array))
    found = bytearray()
    for first in range(0, len(data), size):
        found += hashlib.sha256(data[first : first + size]).digest()
    return np.frombuffer(bytes(found), np.uint8).reshape(len(array), HASH_BYTES)


class HashedRowsHasher:
    """SHA-256 over the hashes of an array's rows in order, behind a header of dtype and row shape:
    what `row_hashes` gave for its pieces, however it was cut.
    """

    def __init__(self, dtype: DTypeLike, row_shape: tuple[int, ...]):
        own = {"dtype": np.dtype(dtype).newbyteorder("<").str, "row_shape": list(row_shape)}
        self._hash = hashlib.sha256(canonical_json({**own, "rows": "sha256"}).encode())

    def update(self, hashes: np.ndarray) -> None:
        """Append rows by their hashes, uint8 [n, 32]."""
        assert hashes.dtype == np.uint8, hashes.dtype
        assert hashes.shape[1:] == (HASH_BYTES,), hashes.shape
        self._hash.update(row_bytes(hashes))

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def rows_content(frame: pl.DataFrame) -> str:
    """Hex SHA-256 over the frame's rows in order; equals a `RowHasher` fed with its pieces."""
    hasher = RowHasher(frame.schema)
    hasher.update(frame)
    return hasher.hexdigest()


def array_content(array: np.ndarray) -> str:
    """Hex SHA-256 over the array's rows in order; equals an `ArrayHasher` fed with its pieces."""
    hasher = ArrayHasher(array.dtype, array.shape[1:])
    hasher.update(array)
    return hasher.hexdigest()


def row_bytes(array: np.ndarray) -> memoryview:
    """The array's elements in C order, little-endian, as bytes. Raises DesaError for other than
    plain numbers.
    """
    if array.dtype.kind not in "biufc":
        raise DesaError(
            f"an array of dtype {array.dtype} has no stable bytes", hint="store numbers"
        )
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8).data
