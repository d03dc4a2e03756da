"""Parquet and arrow files from elsewhere, bounded in what they unpack to.

Such a file says a value once and repeats it as often as it likes: besides a compressor's, it has
dictionaries, shared prefixes and runs. What a reader would make of it is worked out before it is
made, and may be as much as of any packed file of that size (`unpacking.limit_of`).
"""

import importlib
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from desa_ray.errors import DesaError
from desa_ray.lines import shown
from desa_ray.parquet_pages import DELTA_BYTE_ARRAY, pages, width_of
from desa_ray.unpacking import BOMB, limit_of

arrow: Any = importlib.import_module("pyarrow")  # it comes without types
BATCH_ROWS = 4096  # held at once, where rows are small
BATCH_BYTES = 256 << 20  # held at once, about
SHARED_PREFIXES = "DELTA_BYTE_ARRAY"  # every value may repeat the whole one before it
FEW_ROWS = 16  # held at once where values share prefixes
HEADER_TYPES = {2: "dictionary", 3: "batch"}  # of arrow's messages
OLD_WRITERS = re.compile(r"parquet-mr( version 1\.[012]\b|$)|parquet-mr version 0")
Rows = Iterator[Mapping[str, Any]]


class Unpacked:
    """Counts what is made of a file, and refuses it where that is too much."""

    def __init__(self, packed_bytes: int, label: str):
        self.limit, self.label, self.total = limit_of(packed_bytes), label, 0

    def add(self, size: int) -> None:
        """Raises DesaError where the sum of all sizes is above the limit."""
        self.total += size
        if self.total > self.limit:
            what = f"unpacks to more than {self.limit >> 20} MiB"
            raise DesaError(what, where=self.label, hint=BOMB)


def parquet_table(stream: BinaryIO, size: int, label: str) -> Any:
    """All columns of a parquet file as an arrow table.

    Args:
        size: bytes of the file.
        label: its name in errors.

    Raises:
        DesaError: it would unpack to more than a file of that size may.
        ArrowException: as pyarrow raises it for damaged files.
    """
    parquet: Any = importlib.import_module("pyarrow.parquet")
    plain = parquet.ParquetFile(stream)
    found = _measured(stream, plain.metadata, size, label)
    if found.shared:
        what = f"has columns in the encoding {SHARED_PREFIXES}"
        raise DesaError(what, where=label, hint="write it with dictionaries or plain values")
    file = parquet.ParquetFile(stream, read_dictionary=_texts(plain, found.shared))
    made = Unpacked(size, label)
    for number in range(file.metadata.num_row_groups):
        for column in file.read_row_group(number).columns:
            for chunk in column.chunks:
                made.add(_expanded(chunk, label))
    stream.seek(0)
    return parquet.ParquetFile(stream).read()


def parquet_rows(path: Path, size: int, label: str, wanted: Collection[str]) -> Rows:
    """The rows of a parquet file, the wanted columns of those it has; errors as `parquet_table`."""
    parquet: Any = importlib.import_module("pyarrow.parquet")
    with path.open("rb") as stream, parquet.ParquetFile(stream) as plain:
        names = [name for name in plain.schema_arrow.names if name in wanted]
        for name in names:
            _check_kind(name, plain.schema_arrow.field(name).type, label)
        found = _measured(stream, plain.metadata, size, label)
        texts = [path for path in _texts(plain, found.shared) if path in wanted]
        rows = found.batch_rows(plain.metadata.num_rows)
    with parquet.ParquetFile(path, read_dictionary=texts) as file:
        batches = file.iter_batches(batch_size=rows, columns=names)
        yield from _rows(batches, wanted, Unpacked(size, label), label)


def arrow_rows(path: Path, size: int, label: str, wanted: Collection[str]) -> Rows:
    """The rows of an arrow file: a stream, as `datasets` writes it, or one with an index.

    Raises:
        DesaError: it would unpack to more than a file of that size may.
        ArrowException, LookupError, struct.error: for damaged files.
    """
    with arrow.memory_map(str(path)) as source:
        _check_messages(source, Unpacked(size, label))
        source.seek(0)
        yield from _rows(_pieces(source), wanted, Unpacked(size, label), label)


def _pieces(source: Any) -> Iterator[Any]:
    indexed = source.read(6) == b"ARROW1"
    source.seek(0)
    if indexed:
        reader = arrow.ipc.open_file(source)
        batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        batches = arrow.ipc.open_stream(source)
    for batch in batches:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)


def _rows(batches: Iterator[Any], wanted: Collection[str], made: Unpacked, label: str) -> Rows:
    """Rows one by one, of batches whose size is counted before Python's values are made."""
    for batch in batches:
        own = batch.select([name for name in batch.schema.names if name in wanted])
        own.validate(full=True)
        made.add(own.num_rows)  # a file without any buffer may have any number of them
        names = own.schema.names
        for name, kind in zip(names, own.schema.types, strict=True):
            _check_kind(name, kind, label)
        columns = [_values(column, made) for column in own.columns]
        for number in range(own.num_rows):
            yield {
                name: _plain(values[number], made)
                for name, values in zip(names, columns, strict=True)
            }


def _values(column: Any, made: Unpacked) -> Sequence[Any]:
    """Python's values of a column; arrow's, to be made one by one, of kinds that may repeat what
    they keep once.
    """
    kinds = arrow.types
    if kinds.is_dictionary(column.type) and _is_text(column.type.value_type):
        made.add(_expanded(column, made.label))
        return column.dictionary_decode().to_pylist()
    simple = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, _is_text)
    if any(of(column.type) for of in simple):
        made.add(column.nbytes)
        return column.to_pylist()
    return column


def _check_kind(name: str, kind: Any, label: str) -> None:
    """Refuses columns of lists, structs and the like, whose rows are of any size, and of bytes of a
    fixed number.
    """
    own = kind.value_type if arrow.types.is_dictionary(kind) else kind
    kinds = arrow.types
    refused = (kinds.is_nested, kinds.is_fixed_size_binary, kinds.is_decimal)
    if any(of(own) for of in refused) or isinstance(own, arrow.BaseExtensionType):
        what = f"column {shown(name)} holds {shown(str(kind))}"
        raise DesaError(what, where=label, hint="write texts or whole numbers")


def _is_text(kind: Any) -> bool:
    return arrow.types.is_string(kind) or arrow.types.is_large_string(kind)


def _plain(value: Any, made: Unpacked) -> Any:
    if not isinstance(value, arrow.Scalar):
        return value
    value = value.as_py()
    made.add(len(value) if isinstance(value, Sized) else 8)
    return value


# Parquet


def _texts(file: Any, shared: Collection[str]) -> list[str]:
    """The columns of bytes or text, nested ones too, that can be read as dictionaries."""
    every = [file.schema.column(number) for number in range(len(file.schema.names))]
    found = [own.path for own in every if own.physical_type == "BYTE_ARRAY"]
    return [path for path in found if path not in shared]


class _Measured(NamedTuple):
    """What the pages of a file hold: their bytes when unpacked, and the columns whose values share
    prefixes.
    """

    unpacked: int
    shared: frozenset[str]

    def batch_rows(self, count: int) -> int:
        """Rows that are read at once, of `count`."""
        if self.shared:
            return FEW_ROWS
        row = self.unpacked // max(count, 1) + 1
        return max(1, min(BATCH_ROWS, BATCH_BYTES // row))


def _measured(stream: BinaryIO, metadata: Any, size: int, label: str) -> _Measured:
    """Measured page by page; what the footer states of sizes and encodings is not believed.

    Raises:
        DesaError: it would unpack to more than a file of that size may.
    """
    made, shared = Unpacked(size, label), set[str]()
    if OLD_WRITERS.match(metadata.created_by or ""):  # readers look for pages after a chunk's end
        what = f"was written by {shown(metadata.created_by)}"
        raise DesaError(what, where=label, hint="write it again with a newer version")
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            chunk, width = group.column(place), width_of(metadata.schema.column(place))
            for page in pages(stream, chunk, label):
                made.add(page.held(width))
                if page.encoding == DELTA_BYTE_ARRAY:
                    shared.add(chunk.path_in_schema)
    stream.seek(0)
    return _Measured(made.total, frozenset(shared))


def _expanded(array: Any, label: str) -> int:
    """Bytes of an array without dictionaries."""
    kinds = arrow.types
    if isinstance(array, arrow.ExtensionArray):
        return _expanded(array.storage, label)
    if kinds.is_dictionary(array.type):
        compute: Any = importlib.import_module("pyarrow.compute")
        lengths = compute.binary_length(array.dictionary)
        return compute.sum(lengths.take(array.indices)).as_py() or 0
    if kinds.is_map(array.type):
        return _expanded(array.keys, label) + _expanded(array.items, label)
    if any(of(array.type) for of in (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)):
        return _expanded(array.flatten(), label)
    if kinds.is_struct(array.type):
        return sum(_expanded(own, label) for own in array.flatten())
    if kinds.is_nested(array.type):
        what = f"has a column of {shown(str(array.type))}"
        raise DesaError(what, where=label, hint="write lists, texts and numbers")
    return array.nbytes


# Arrow: the sizes that buffers unpack to stand before them, and where they are in a flatbuffer
# (https://arrow.apache.org/docs/format/Columnar.html, Message.fbs).


def _check_messages(source: Any, made: Unpacked) -> None:
    source.seek(8 if source.read(6) == b"ARROW1" else 0)
    reader = arrow.ipc.MessageReader.open_stream(source)
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        made.add(_unpacked_bytes(message.metadata.to_pybytes(), message.body))


def _unpacked_bytes(metadata: bytes, body: Any) -> int:
    """What the buffers of a message take; 0 for one that has none."""
    root = struct.unpack_from("<I", metadata)[0]
    kind = HEADER_TYPES.get(metadata[at]) if (at := _field(metadata, root, 1)) else None
    if kind is None:
        return 0
    batch = _table(metadata, root, 2)
    batch = _table(metadata, batch, 1) if kind == "dictionary" else batch
    at = _field(metadata, batch, 2)
    packed = _field(metadata, batch, 3) != 0
    if not packed or not at:
        return body.size if body is not None else 0
    vector = at + struct.unpack_from("<I", metadata, at)[0]
    total = 0
    for number in range(struct.unpack_from("<I", metadata, vector)[0]):
        place, length = struct.unpack_from("<qq", metadata, vector + 4 + 16 * number)
        if length >= 8:
            size = struct.unpack("<q", body.slice(place, 8).to_pybytes())[0]
            total += size if size >= 0 else length
    return total


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffer's table is; 0 where it has none."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, vtable)[0]:
        return 0
    offset = struct.unpack_from("<H", data, vtable + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _table(data: bytes, table: int, number: int) -> int:
    at = _field(data, table, number)
    return at + struct.unpack_from("<I", data, at)[0]
