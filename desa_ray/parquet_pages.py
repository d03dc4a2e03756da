"""What the pages of a parquet file unpack to, read from the pages themselves.

The footer of a file from elsewhere may state any size. A reader follows the header of each page: it
unpacks to as many bytes, holds as many values and uses the encoding that stand there, and fails
where the page differs. The headers are structs of Thrift's compact protocol
(https://parquet.apache.org/docs/file-format/data-pages/,
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
"""

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from desa_ray.errors import DesaError
from desa_ray.lines import shown

MOST_HEADER = 16 << 20  # bytes, as Arrow's reader has it
FIRST_READ = 256
DEEPEST = 16
DATA, INDEX, DICTIONARY, DATA_2 = range(4)  # types of pages
HEADS = {DATA: 5, DICTIONARY: 7, DATA_2: 8}  # type -> the field with its own header
ENCODED = {DATA: 2, DICTIONARY: 2, DATA_2: 4}  # type -> the field there that names the encoding
DELTA_BYTE_ARRAY = 7
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
DECIMAL_WIDTH = 32  # of the widest, which fewer bytes may keep
INDEX_WIDTH = 4  # of a text in a dictionary, or of its length
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)


class ColumnPage(NamedTuple):
    """A page as its header describes it: bytes when unpacked, values, and their encoding."""

    unpacked: int
    values: int
    encoding: int | None

    def held(self, width: int) -> int:
        """Bytes that a reader makes of it, texts of a dictionary aside."""
        return max(self.unpacked, self.values * width)


def pages(stream: BinaryIO, chunk: Any, label: str) -> Iterator[ColumnPage]:
    """The pages of a column chunk.

    Args:
        chunk: its metadata, as pyarrow has it; only its place in the file is used.
        label: the file's name in errors.

    Raises:
        DesaError: a header cannot be read.
    """
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and (chunk.dictionary_page_offset or 0) > 0:  # 0 is none
        start = min(start, chunk.dictionary_page_offset)
    stop = start + chunk.total_compressed_size
    while start < stop:
        try:
            header, length = _header(stream, start)
            packed, page = _size(header[3]), _page(header)
        except (LookupError, ValueError, TypeError):
            what = f"has no page of column {shown(chunk.path_in_schema)} at byte {start}"
            raise DesaError(what, where=label, hint="write or download it again") from None
        start += length + packed
        yield page


def width_of(column: Any) -> int:
    """Bytes of each value of a column, as pyarrow's parquet schema has it, once read: those of an
    index, of texts.
    """
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return max(column.length, DECIMAL_WIDTH)
    return WIDTHS.get(column.physical_type, INDEX_WIDTH)


def _page(header: Mapping[int, Any]) -> ColumnPage:
    kind = header[1]
    if kind not in HEADS:
        return ColumnPage(_size(header[2]), 0, None)
    own = header[HEADS[kind]]
    return ColumnPage(_size(header[2]), _size(own[1]), own[ENCODED[kind]])


def _size(value: Any) -> int:
    """Raises ValueError unless it is a whole number of 0 or more."""
    if not isinstance(value, int) or value < 0:
        raise ValueError
    return value


def _wrapped(number: int) -> int:
    """A field's number as the 16 bits that readers keep of it."""
    return (number + 0x8000) % 0x10000 - 0x8000


def _header(stream: BinaryIO, start: int) -> tuple[dict[int, Any], int]:
    """A page's header, field by field, and its bytes."""
    size = FIRST_READ
    while True:
        stream.seek(start)
        data = stream.read(size)
        reader = _Compact(data)
        try:
            return reader.struct(DEEPEST), reader.at
        except IndexError:  # it ends before the header does
            if len(data) < size or size >= MOST_HEADER:
                raise
            size *= 8


class _Compact:
    """Reads values of Thrift's compact protocol; IndexError where the bytes end."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def struct(self, depth: int) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while True:
            head = self._byte()
            if head == 0:
                return found
            delta, kind = head >> 4, head & 15
            number = _wrapped(number + delta if delta else self._signed())
            if kind not in (TRUE, FALSE):
                value = self._value(kind, depth - 1)
                # A reader skips what has another type than the field should have
                if kind in (I32, STRUCT):
                    found[number] = value

    def _value(self, kind: int, depth: int) -> Any:
        if depth < 0:
            raise ValueError
        if kind in (BYTE, TRUE, FALSE):
            return self._byte()
        if kind in (I16, I32, I64):
            return self._signed()
        if kind == STRUCT:
            return self.struct(depth)
        if kind in (DOUBLE, BINARY):
            self._skip(8 if kind == DOUBLE else self._varint())
        elif kind in (LIST, SET):
            self._items(depth)
        elif kind == MAP:
            self._map(depth)
        else:
            raise ValueError
        return None

    def _items(self, depth: int) -> None:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()
        for _ in range(count):
            self._value(head & 15, depth)

    def _map(self, depth: int) -> None:
        count = self._varint()
        kinds = self._byte() if count else 0
        for _ in range(count):
            self._value(kinds >> 4, depth)
            self._value(kinds & 15, depth)

    def _byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self.data):
            raise IndexError

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError

    def _signed(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
