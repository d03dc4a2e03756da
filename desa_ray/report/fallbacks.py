"""Shares of fallbacks, of query-draws and of queries: wherever one is shown, it says which of the
two it is.
"""

from collections.abc import Sequence

from desa_ray.core.statistics.aggregate import fallback_pct, macro
from desa_ray.report.cells import RecordedCell
from desa_ray.report.table import Column, Value

FALLBACKS = (
    Column(
        "fallback", "fallback % of query-draws", "{:.2f}", help="that fell back to the query alone"
    ),
    Column(
        "fallback_queries", "fallback % of queries", "{:.2f}", help="with a draw that fell back"
    ),
)


def fallback_values(cells: Sequence[RecordedCell]) -> dict[str, Value]:
    """Macro shares of query-draws that fell back, and of queries with one that did, in percent."""
    shares = [fallback_pct(cell.records) for cell in cells]
    found: dict[str, Value] = {}
    for place, column in enumerate(FALLBACKS):
        found[column.key] = macro([share[place] for share in shares])
    return found
