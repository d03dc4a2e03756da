"""JSONL files with one object per document or query, matched to a collection by their ids: what a
line holds is up to the reader; ids are checked here.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from desa_ray.errors import DesaError
from desa_ray.lines import Findings, json_rows, shown, shown_value

BLOCK = 1 << 20
Held = TypeVar("Held")
Place = tuple[str, int]  # a file and the number of a line


@dataclass(frozen=True)
class IdFile:
    """A kind of such files, in the words of its errors.

    Attributes:
        setting: that names the file.
        noun: what its ids are of: document or query.
        nouns: several of these.
        holds: what it has of each.
        hint: how to make a right one.
    """

    setting: str
    noun: str
    nouns: str
    holds: str
    hint: str


def read_by_id(
    path: Path,
    kind: IdFile,
    ids: tuple[Sequence[str], Collection[str] | None, Collection[str]],
    read: Callable[[Mapping[str, Any], Place, Findings], Held],
) -> list[Held | None]:
    """What a file holds, in the order of the ids wanted; None for those that it may lack.

    Args:
        ids: those wanted, those that the file may have (of the whole collection; None: any), and
            those that it may lack.
        read: an object and its place to what is held, with findings about what is wrong.

    Raises:
        Problems: the file cannot be read, or is wrong: every kind of fault once.
    """
    wanted, known, spared = ids
    findings, file, hint = Findings(), str(path), kind.hint
    places = {name: place for place, name in enumerate(wanted)}
    found: list[Held | None] = [None] * len(wanted)
    seen: set[str] = set()
    unknown: list[str] = []
    for number, row in json_rows(_blocks(path, kind.setting), file, findings):
        name = row.get("id")
        if not isinstance(name, str):
            what = f"id is {shown_value(name)}" if "id" in row else "no id"
            findings.line(file, number, f"not the id of a {kind.noun}", what, hint=hint)
            continue
        if name in seen:
            findings.line(file, number, "listed twice", f"{kind.noun} {shown(name)}", hint=hint)
            continue
        seen.add(name)
        held = read(row, (file, number), findings)
        if name in places:
            found[places[name]] = held
        elif known is not None and name not in known:
            unknown.append(name)
    what, use = f"{kind.nouns} that the collection lacks", f"use the {kind.holds} of this data set"
    findings.items(file, what, unknown, hint=use)
    lacking = [name for name in wanted if name not in seen and name not in spared]
    findings.items(file, f"{kind.nouns} without {kind.holds}", lacking, hint=hint)
    findings.raise_if_any()
    return found


def _blocks(path: Path, setting: str) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                yield block
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise DesaError(what, where=str(path), hint=f"set {setting} to a JSONL file") from None
