"""Files of impacts: learned sparse weights of documents, or of queries, one JSON object per line,
{"id": ..., "vector": {term: weight}}, as Anserini's JsonVectorCollection reads them; other fields
are not looked at.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from desa_ray.core.impacts import checked_weights, quantised
from desa_ray.data.id_files import IdFile, Place, read_by_id
from desa_ray.errors import DesaError
from desa_ray.lines import Findings, shown_value

EXPORT = "export one line per {}: its id, and its terms with numbers from 0 up"
DOCUMENT_IMPACTS = IdFile(
    "sparse.impacts", "document", "documents", "impacts", EXPORT.format("document")
)
QUERY_VECTORS = IdFile(
    "sparse.query_vectors", "query", "queries", "vectors", EXPORT.format("query")
)


def read_impacts(
    path: Path,
    scale: float,
    wanted: Sequence[str],
    known: Collection[str] | None,
    empty: Collection[str],
    kind: IdFile = DOCUMENT_IMPACTS,
) -> list[dict[str, int]]:
    """The quantised impacts of documents, or weights of queries, in the order of `wanted`.

    Args:
        wanted: ids of the documents or queries.
        known: ids that the file may have: those of the whole collection; None: any.
        empty: ids of those without text, which the file may lack.

    Raises:
        Problems: the file cannot be read, or is wrong: every kind of fault once.
    """

    def read(row: Mapping[str, Any], place: Place, findings: Findings) -> dict[str, int]:
        return _bag(row.get("vector"), scale, place, findings, kind.hint)

    return [bag or {} for bag in read_by_id(path, kind, (wanted, known, empty), read)]


def _bag(
    vector: Any, scale: float, place: Place, findings: Findings, export: str
) -> dict[str, int]:
    if not isinstance(vector, dict):
        what = f"vector is {shown_value(vector)}, expected terms with weights"
        findings.line(*place, "no impacts", what, hint=export)
        return {}
    given = cast(dict[str, Any], vector)
    try:
        return quantised(checked_weights(given), scale)
    except DesaError as error:
        findings.line(*place, "wrong impact", error.what, hint=error.hint or export)
    return {}
