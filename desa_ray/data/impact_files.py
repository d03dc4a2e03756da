"""Files of impacts: documents' learned sparse weights, one JSON object per line,
{"id": ..., "vector": {term: weight}}, as Anserini's JsonVectorCollection reads them; other fields
are not looked at.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from desa_ray.core.impacts import checked_weights, quantised
from desa_ray.errors import DesaError
from desa_ray.lines import Findings, json_rows, shown, shown_value

BLOCK = 1 << 20
EXPORT = "export one line per document: its id, and its terms with numbers from 0 up"


def read_impacts(
    path: Path, scale: float, wanted: Sequence[str], known: Collection[str], empty: Collection[str]
) -> list[dict[str, int]]:
    """The quantised impacts of documents, in the order of `wanted`.

    Args:
        wanted: ids of the documents.
        known: ids that the file may have: those of the whole collection.
        empty: ids of documents without text, which the file may lack.

    Raises:
        Problems: the file cannot be read, or is wrong: every kind of fault once.
    """
    findings, file = Findings(), str(path)
    places = {name: place for place, name in enumerate(wanted)}
    found: list[dict[str, int] | None] = [None] * len(wanted)
    seen: set[str] = set()
    unknown: list[str] = []
    for number, row in json_rows(_blocks(path), file, findings):
        name = row.get("id")
        if not isinstance(name, str):
            what = f"id is {shown_value(name)}" if "id" in row else "no id"
            findings.line(file, number, "not the id of a document", what, hint=EXPORT)
            continue
        if name in seen:
            findings.line(file, number, "listed twice", f"document {shown(name)}", hint=EXPORT)
            continue
        seen.add(name)
        bag = _bag(row.get("vector"), scale, (file, number), findings)
        if name in places:
            found[places[name]] = bag
        elif name not in known:
            unknown.append(name)
    findings.items(
        file,
        "documents that the collection lacks",
        unknown,
        hint="use the impacts of this data set",
    )
    lacking = [name for name in wanted if name not in seen and name not in empty]
    findings.items(file, "documents without impacts", lacking, hint=EXPORT)
    findings.raise_if_any()
    return [bag or {} for bag in found]


def _blocks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                yield block
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise DesaError(what, where=str(path), hint="set sparse.impacts to a JSONL file") from None


def _bag(vector: Any, scale: float, place: tuple[str, int], findings: Findings) -> dict[str, int]:
    if not isinstance(vector, dict):
        what = f"vector is {shown_value(vector)}, expected terms with weights"
        findings.line(*place, "no impacts", what, hint=EXPORT)
        return {}
    given = cast(dict[str, Any], vector)
    try:
        return quantised(checked_weights(given), scale)
    except DesaError as error:
        findings.line(*place, "wrong impact", error.what, hint=error.hint or EXPORT)
    return {}
