"""The view in which MLflow compares a sweep's cells: what it varied against its headline metrics.

MLflow's UI reads a shared view from a tag of the experiment, named in the address as
`viewStateShareKey`; its own compare page takes no choice of params and metrics by address.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from desa_ray.tracking.notes import HEADLINE, LABELS

TAG = "mlflow.sharedViewState."
VALUE_LIMIT = 5000  # characters of an experiment's tag
MOST_SWEPT = 8  # axes that parallel coordinates still show apart
METHOD = "method"
NONE = {"None"}  # of a label that the cell's method does not use


class Varied:
    """Which params tell the cells of a sweep apart; told one cell after the other."""

    def __init__(self) -> None:
        self._labels: dict[str, set[str]] = {}
        self._first: dict[tuple[str, ...], Mapping[str, str]] = {}
        self._further: dict[str, None] = {}

    def add(self, params: Mapping[str, str]) -> None:
        """Note a cell's params."""
        for name in LABELS:
            self._labels.setdefault(name, set()).add(params.get(name, "None"))
        # What differs between cells of equal labels was varied beside them.
        first = self._first.setdefault(tuple(params.get(n, "None") for n in LABELS), params)
        self._further |= {n: None for n in first if first[n] != params.get(n)}

    def names(self) -> list[str]:
        """The method, labels of more than one value (having none follows from the method), then
        settings; at most `MOST_SWEPT`.
        """
        labels = [n for n in LABELS if n != METHOD and len(self._labels.get(n, set()) - NONE) > 1]
        return [METHOD, *labels, *self._further][:MOST_SWEPT]


def compared_view(parent: str, swept: Sequence[str], metrics: Iterable[str]) -> tuple[str, str]:
    """Name and value of the experiment's tag: the children of `parent` in one chart of parallel
    coordinates and a bar chart per metric, with the same columns in the table.

    Args:
        parent: id of the sweep's run; it is the view's key too.
        swept: params, in the order of the axes; the last are left out where the tag is too short.
        metrics: of which the headline ones are shown.
    """
    there = set(metrics)
    shown = [name for name in HEADLINE if name in there]
    for count in range(len(swept), -1, -1):
        text = json.dumps(_view(parent, swept[:count], shown), separators=(",", ":"))
        if len(text) <= VALUE_LIMIT:
            break
    else:
        raise AssertionError
    return TAG + parent, text


def _view(parent: str, swept: Sequence[str], shown: Sequence[str]) -> dict[str, Any]:
    section = str(uuid5(NAMESPACE_URL, f"{parent}/section"))

    def chart(kind: str, title: str, **more: Any) -> dict[str, Any]:
        own = {"type": kind, "uuid": str(uuid5(NAMESPACE_URL, f"{parent}/{title}"))}
        own |= {"runsCountToCompare": 100, "metricSectionId": section}
        return own | {"deleted": False, "isGenerated": False, "displayName": title} | more

    axes = {"selectedParams": [*swept], "selectedMetrics": [*shown], "showAllRuns": True}
    charts = [chart("PARALLEL", "What was swept, and what it gave", **axes)]
    charts += [chart("BAR", HEADLINE[name][0], metricKey=name) for name in shown]
    own_section = {"uuid": section, "name": "Sweep", "display": True}
    own_section |= {"columns": 2, "isReordered": True, "deleted": False, "isGenerated": False}
    return {
        "searchFilter": f"tags.`mlflow.parentRunId` = '{parent}'",
        # By creation, the UI would fold the children into their parent, which is then all it draws.
        "orderByKey": f"metrics.`{shown[0]}`" if shown else f"params.`{METHOD}`",
        "orderByAsc": False,
        "selectedColumns": [f"params.`{n}`" for n in swept] + [f"metrics.`{n}`" for n in shown],
        "runsHiddenMode": "SHOW_ALL",
        "compareRunCharts": charts,
        "compareRunSections": [own_section],
        "isAccordionReordered": True,
    }
