"""Lines of text files with their numbers, and findings that name file and line: for everything a user hands in.

A reader does not stop at the first bad line: it notes a finding and goes on, and `Findings.raise_if_any` reports all of
them together, one line for each kind in each file.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from desa_ray.errors import DesaError, Problems, listed

MAX_LINE_BYTES = 64 << 20
BOM = b"\xef\xbb\xbf"


def shown(text: str, limit: int = 80) -> str:
    """A quoted, printable, bounded form of any string (lone surrogates and control characters are escaped)."""
    quoted = repr(text[:limit])
    return quoted if len(text) <= limit else f"{quoted}…"


def has_lone_surrogate(text: str) -> bool:
    """True for a string without a UTF-8 form, such as JSON's escape `\\ud800` leaves behind."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


class Findings:
    """What is wrong with an input, collected while reading."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], tuple[str, list[int]]] = {}
        self._others: list[DesaError] = []

    def line(self, file: str, number: int, kind: str, detail: str = "") -> None:
        """Notes one bad line (numbered from 1); of equal kinds in one file, the first detail is told."""
        self._lines.setdefault((file, kind), (detail, []))[1].append(number)

    def items(self, where: str, what: str, items: Sequence[str], *, mend: str = "") -> None:
        """Notes bad ids, where there are any: tells how many and names the first ten."""
        if items:
            self._others.append(
                DesaError(f"{what} ({len(items)}): {listed(map(shown, items))}", where=where, mend=mend)
            )

    def add(self, error: DesaError) -> None:
        self._others.append(error)

    def raise_if_any(self) -> None:
        """Raises `Problems` with everything found so far."""
        problems = [_line_error(*key, *value) for key, value in self._lines.items()] + self._others
        if problems:
            raise Problems(problems)


def _line_error(file: str, kind: str, detail: str, numbers: list[int]) -> DesaError:
    first, *others = numbers
    also = f"; {len(numbers)} such lines, also {listed(others)}" if others else ""
    return DesaError((f"{kind}: {detail}" if detail else kind) + also, where=f"{file}:{first}")


def file_blocks(file: Path) -> Iterator[bytes]:
    """The bytes of a plain file, in blocks of at most 1 MiB.

    Raises:
        DesaError: the file cannot be read.
    """
    try:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                yield block
    except OSError as error:
        raise DesaError(f"cannot be read: {error.strerror or error}", where=str(file)) from error


def numbered_lines(blocks: Iterable[bytes], file: str, findings: Findings) -> Iterator[tuple[int, str]]:
    """(number from 1, text without its line end) of every line that is not blank.

    A byte order mark and CRLF are tolerated; only a line feed ends a line (never U+2028, as `str.splitlines` would).

    Args:
        blocks: the file's bytes in pieces of any size.
        file: its name in findings.
    """
    for number, line in enumerate(_split(blocks, file), start=1):
        data = line.removeprefix(BOM) if number == 1 else line
        try:
            text = data.decode().removesuffix("\r")
        except UnicodeDecodeError as error:
            findings.line(file, number, "not UTF-8", f"byte {data[error.start]:#04x} at column {error.start + 1}")
            continue
        if text.strip():
            yield number, text


def _split(blocks: Iterable[bytes], file: str) -> Iterator[bytes]:
    carry = bytearray()
    for block in blocks:
        *complete, rest = block.split(b"\n")
        for line in complete:
            yield bytes(carry) + line if carry else line
            carry.clear()
        carry += rest
        if len(carry) > MAX_LINE_BYTES:
            raise DesaError(f"a line is longer than {MAX_LINE_BYTES >> 20} MiB", where=file, mend="is this JSON lines?")
    yield bytes(carry)


def json_rows(blocks: Iterable[bytes], file: str, findings: Findings) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, object) of every line; a line that is no JSON object becomes a finding."""
    for number, line in numbered_lines(blocks, file, findings):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            findings.line(file, number, "malformed JSON", f"{error.msg} at column {error.colno}")
        except (ValueError, RecursionError) as error:  # numbers of thousands of digits, nesting beyond the stack
            findings.line(file, number, "malformed JSON", str(error))
        else:
            if isinstance(row, dict):
                yield number, row
            else:
                findings.line(file, number, f"not a JSON object but {type(row).__name__}")
