"""Lines of text files with their numbers, and findings that name file and line, for all input from
users.

A reader does not stop at the first bad line: it notes a finding and goes on, and
`Findings.raise_if_any` reports all of them together, one line for each kind in each file.
"""

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from desa_ray.errors import DesaError, Problems, listed

MAX_LINE_BYTES = 1 << 20  # of an identifier's line: two ids of the greatest length and some numbers
# A document of 50 MB, which escapes like \u0431 may treble, and its neighbours
MAX_JSON_BYTES = 256 << 20
TOLD = 10  # further lines that a finding names
CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f]")  # C0, DEL and C1
DIGITS = "a number of more than 4300 digits"
ONE_OBJECT = "write one JSON object per line"
BOM = b"\xef\xbb\xbf"


def shown(text: str, limit: int = 80) -> str:
    """A quoted, printable, bounded form of any string (lone surrogates and control characters are
    escaped).
    """
    quoted = repr(text[:limit])
    return quoted if len(text) <= limit else f"{quoted}…"


def shown_value(value: object, limit: int = 80) -> str:
    """A value out of JSON, as it is written: 0 and not '0', a text in quotes; printable and
    bounded.
    """
    if isinstance(value, str):
        return shown(value, limit)
    return shown(json.dumps(value, default=repr), limit)[1:].removesuffix("…").removesuffix("'")


def has_control(text: str) -> bool:
    """True for a string with a control character, which ends it early in C or breaks a line of a
    file.
    """
    return CONTROL.search(text) is not None


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
        self._lines: dict[tuple[str, str], tuple[str, str, array[int]]] = {}
        self._others: list[DesaError] = []

    def __bool__(self) -> bool:
        """Whether something is wrong."""
        return bool(self._lines or self._others)

    def line(self, file: str, number: int, kind: str, detail: str = "", *, hint: str = "") -> None:
        """Notes one bad line (numbered from 1); of equal kinds in one file, the first detail and
        fix are told.
        """
        self._lines.setdefault((file, kind), (detail, hint, array("q")))[2].append(number)

    def items(self, where: str, what: str, items: Sequence[str], *, hint: str = "") -> None:
        """Notes bad ids, where there are any: tells how many and names the first ten."""
        if items:
            self._others.append(
                DesaError(
                    f"{what} ({len(items)}): {listed(map(shown, items))}", where=where, hint=hint
                )
            )

    def add(self, error: DesaError) -> None:
        self._others.append(error)

    def told(self) -> list[list[Any]]:
        """The bad lines, as plain data: file, kind, detail, hint and numbers."""
        return [[*key, *own[:2], own[2].tolist()] for key, own in self._lines.items()]

    def retell(self, told: list[list[Any]], shift: int = 0) -> None:
        """Notes the bad lines that another reader `told`, their numbers moved by `shift`."""
        for file, kind, detail, hint, numbers in told:
            for number in numbers:
                self.line(file, number + shift, kind, detail, hint=hint)

    def raise_if_any(self) -> None:
        """Raises `Problems` with everything found so far."""
        problems = [_line_error(*key, *value) for key, value in self._lines.items()] + self._others
        if problems:
            raise Problems(problems)


def _line_error(file: str, kind: str, detail: str, hint: str, numbers: "array[int]") -> DesaError:
    also = (
        f"; {len(numbers)} such lines, also {', '.join(map(str, numbers[1 : TOLD + 1]))}"
        if numbers[1:]
        else ""
    )
    also += f" and {len(numbers) - TOLD - 1} more" if len(numbers) > TOLD + 1 else ""
    what = (f"{kind}: {detail}" if detail else kind) + also
    return DesaError(what, where=f"{file}:{numbers[0]}", hint=hint)


def numbered_lines(
    blocks: Iterable[bytes], file: str, findings: Findings, longest: int | None = None
) -> Iterator[tuple[int, str]]:
    """(number from 1, text without its line end) of every line that is not blank.

    A byte order mark and CRLF are tolerated; only a line feed ends a line (never U+2028, as
    `str.splitlines` would).

    Args:
        blocks: the file's bytes in pieces of any size.
        file: its name in findings.
        longest: bytes of the longest line that is possible, `MAX_LINE_BYTES` where left out.
    """
    for number, line in enumerate(_split(blocks, file, longest or MAX_LINE_BYTES), start=1):
        data = line.removeprefix(BOM) if number == 1 else line
        try:
            text = data.decode().removesuffix("\r")
        except UnicodeDecodeError as error:
            detail = f"byte {data[error.start]:#04x} at column {error.start + 1}"
            findings.line(file, number, "not UTF-8", detail, hint="save the file as UTF-8")
            continue
        if text.strip():
            yield number, text


def _split(blocks: Iterable[bytes], file: str, longest: int) -> Iterator[bytes]:
    pieces: list[bytes] = []  # of the line that has not ended yet
    held, number = 0, 1
    for block in blocks:
        *complete, rest = block.split(b"\n")
        for line in complete:
            if held + len(line) > longest:
                raise _too_long(file, number, longest)
            yield b"".join([*pieces, line]) if pieces else line
            pieces.clear()
            held = 0
            number += 1
        pieces += [rest] if rest else []
        held += len(rest)
        if held > longest:
            raise _too_long(file, number, longest)
    yield b"".join(pieces)


def _too_long(file: str, number: int, longest: int) -> DesaError:
    size = f"{longest >> 20} MiB" if longest >> 20 else f"{longest} bytes"
    return DesaError(
        f"a line is longer than {size}",
        where=f"{file}:{number}",
        hint="is this really a file of lines?",
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these names and values; JSON itself would keep the last of equal names."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{shown(twice)} is listed twice")
    return found


OBJECTS = json.JSONDecoder(object_pairs_hook=_once)


def json_rows(
    blocks: Iterable[bytes], file: str, findings: Findings
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, object) of every line; a line that is no JSON object becomes a finding."""
    for number, line in numbered_lines(blocks, file, findings, MAX_JSON_BYTES):
        try:
            row = OBJECTS.decode(line)
        except json.JSONDecodeError as error:
            detail = f"{error.msg} at column {error.colno}"
            findings.line(file, number, "malformed JSON", detail, hint=ONE_OBJECT)
        except RecursionError:
            findings.line(file, number, "malformed JSON", "nested too deeply", hint=ONE_OBJECT)
        except ValueError as error:
            detail = DIGITS if "set_int_max_str_digits" in str(error) else str(error)
            findings.line(file, number, "malformed JSON", detail, hint=ONE_OBJECT)
        else:
            if isinstance(row, dict):
                yield number, row
            else:
                kind = f"not a JSON object but {type(row).__name__}"
                findings.line(file, number, kind, hint=ONE_OBJECT)
