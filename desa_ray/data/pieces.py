"""A corpus in pieces that tasks read on their own: byte ranges of plain files of lines, cut between
lines, and whole files where they are packed or columnar.
"""

import io
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, BinaryIO, cast

from desa_ray.data.source import SourceFile
from desa_ray.lines import Findings
from desa_ray.unpacking import packing, without_suffix

LINES = (".jsonl", ".tsv")  # endings of files whose rows are lines
BLOCK = 1 << 20
Document = tuple[str, str, str]


@dataclass(frozen=True)
class CorpusFiles:
    """The files that hold a collection's documents, in order, and how the rows of one are read.

    Attributes:
        rows: (id, title, text) of every readable row of a file; the others go to the findings.
        beside: the collection's other files.
    """

    files: Sequence[SourceFile]
    rows: Callable[[SourceFile, Findings], Iterator[Document]]
    beside: Sequence[SourceFile]

    def size(self) -> int:
        """Bytes of all files as they are kept."""
        return sum(kept_bytes(file) for file in self.files)

    def states(self) -> list[list[Any]]:
        """What shows that all files are still the same and packed alike: labels, whose endings say
        how they are packed, with size, time and inode of what holds them.
        """
        return [[file.label, *file.state] for file in (*self.files, *self.beside)]


@dataclass(frozen=True)
class Piece:
    """Bytes start..stop of a file of lines, both line starts; the whole file where `stop` is 0."""

    file: int
    start: int
    stop: int


def kept_bytes(file: SourceFile) -> int:
    """Bytes of a file as it is kept; of an archive's member unpacked."""
    return file.state[0] if file.size is None else file.size


def cut(corpus: CorpusFiles, size: int) -> list[Piece]:
    """Pieces of about `size` bytes, in the order of the rows."""
    pieces: list[Piece] = []
    for number, file in enumerate(corpus.files):
        if not without_suffix(file.label).endswith(LINES) or file.size is not None:
            pieces.append(Piece(number, 0, 0))
            continue
        with file.open() as stream:
            plain = packing(stream.read(16)) is None
            total = file.state[0]
            count = max(1, -(-total // size)) if plain else 1
            inner = [_line_start(stream, total * n // count, total) for n in range(1, count)]
        edges = sorted({0, *inner, total}) if total else [0, 0]
        if len(edges) == 2:
            pieces.append(Piece(number, 0, 0))
        else:
            pieces += [Piece(number, a, b) for a, b in pairwise(edges)]
    return pieces


def _line_start(stream: BinaryIO, place: int, total: int) -> int:
    """Where the first line begins at or after a place."""
    stream.seek(place - 1)
    at = place - 1
    while block := stream.read(BLOCK):
        found = block.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(block)
    return total


class CountedLines:
    """A piece as a file of its own, and how many line feeds were read of it.

    Lines of a piece that begins inside its file are numbered from 2: a blank line goes before them,
    so that a byte order mark there is one of the line's characters, as in the whole file.
    """

    def __init__(self, file: SourceFile, piece: Piece):
        self.feeds, self.shift = 0, 1 if piece.start else 0
        self._piece = piece
        opener = partial(self._opened, file)
        self.file = replace(file, open=opener) if piece.stop else file

    @contextmanager
    def _opened(self, file: SourceFile) -> Generator[BinaryIO]:
        with file.open() as stream:
            stream.seek(self._piece.start)
            own = _Range(stream, self._piece.stop - self._piece.start, self)
            yield cast(BinaryIO, own)


class _Range(io.RawIOBase):
    """The next bytes of a stream, behind a line feed where they begin inside a file."""

    def __init__(self, stream: BinaryIO, left: int, lines: CountedLines):
        self._stream, self._left, self._lines = stream, left, lines
        self._blank = bool(lines.shift)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._blank:
            self._blank = False
            return b"\n"
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._stream.read(wanted) if wanted else b""
        self._left -= len(data)
        self._lines.feeds += data.count(b"\n")
        return data
