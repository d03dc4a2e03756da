"""A paper's printed numbers next to the report's own, each with the differences in how it was made.

The numbers are data (conf/compare/NAME.yaml): table, row keys, column, value. Nothing is compared
silently: each row says for data set, encoder, generator and protocol whether the report's cell
    equals the paper's, and otherwise what it is.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from desa_ray.core.statistics.aggregate import gain_pct, macro, mean_reduction_pct
from desa_ray.errors import DesaError
from desa_ray.path_names import path_name
from desa_ray.report.names import DEPTH_DENSE, DEPTH_SPARSE, NDCG, PRIMARY, RECALL, dataset_name
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value

# How the rows of a table are found: by these of the things a row is about.
KEYS: Mapping[str, tuple[str, ...]] = {
    "main": ("method",),
    "per_dataset": ("dataset", "method"),
    "channel_evidence": ("dataset",),
    "external": ("method",),
    "primary_tests": ("comparator", "outcome"),
    "operator_controls": ("method",),
    "operator_effects": ("control", "outcome"),
    "qudar_effects": ("comparator", "outcome"),
    "qudar_weights": ("lists",),
    "cutoffs": ("length",),
    "mechanism": ("dataset",),
    "mechanism_quartiles": ("diagnostic", "quartile"),
    "mechanism_quartiles_by_dataset": ("dataset", "diagnostic", "quartile"),
    "correlations": ("correlation",),
    "correlations_by_dataset": ("dataset", "correlation"),
    "ablations": ("ablation",),
    "macro_intervals": ("method",),
    "outcome_labels": ("comparator",),
    "calibrated": ("dataset", "method"),
    "generation_cost": ("dataset", "generator", "prompt"),
    "gains_over_shared": ("comparator",),
    "access_changes": ("dataset", "method"),
    "held_out": ("group", "method"),
    "robustness": ("axis", "value", "dataset"),
}
WITHOUT_TEXT = ("original", "bm25", "dense_original")  # methods that need no generator
COLUMNS = (
    Column("row", "row"),
    Column("column", "number"),
    Column("own", "here", "{:.4f}"),
    Column("printed", "printed", "{:.4f}"),
    Column("difference", "difference", "{:+.4f}"),
    Column("dataset", "data set"),
    Column("encoder", "encoder"),
    Column("generator", "generator"),
    Column("protocol", "protocol", help="kappa, K, references, draws"),
)
SAME, UNUSED = "same", "–"


class Published:
    """Printed numbers and the setting they belong to.

    Args:
        data: `name`, `setting` (encoder, generator, kappa, k, n_refs, draws), `queries` (data set
            -> judged queries), and one mapping per table, nested by the row keys of `KEYS`.
    """

    def __init__(self, data: Mapping[str, Any]):
        if missing := [key for key in ("name", "setting", "queries") if key not in data]:
            raise DesaError(f"published numbers lack {', '.join(missing)}", where="compare")
        self.data, self.name = data, path_name(str(data["name"]), where="compare.name")
        self.setting: Mapping[str, Any] = data["setting"]
        self.queries: Mapping[str, int] = data["queries"]

    def beside(self, table: Table, study: Study) -> Table | None:
        """A line for every printed number that the table has a row and column for; None where there
        is none.
        """
        rows = []
        for row in table.rows:
            flags = self._flags(row, study)
            texts = [
                row.values.get(c.key)
                for c in table.columns
                if c.form is None and c.key != "construction"
            ]
            label = " / ".join(str(text) for text in texts if text is not None)
            for key, title, own, value in _numbers(
                table, row, self._printed(table.name, row, study)
            ):
                form = (
                    row.forms.get(key)
                    or next(c.form for c in table.columns if c.key == key)
                    or "{}"
                )
                form = form.replace("d}", ".0f}")  # counts of the two stand as floats here
                signed = form if form.startswith("{:+") else form.replace("{:", "{:+")
                values: dict[str, Value] = {
                    "row": label,
                    "column": title,
                    "own": own,
                    "printed": value,
                }
                values["difference"] = None if own is None else own - value
                forms = {"own": form, "printed": form, "difference": signed}
                rows.append(Row({**values, **flags}, row.about, forms))
        setting = ", ".join(f"{name} {value}" for name, value in self.setting.items())
        notes = [
            f"printed with {setting}",
            (
                "rows that differ in some respect are shown next to the printed numbers but do not"
                " reproduce them"
            ),
        ]
        title = f"{table.title}: next to the {self.name}"
        return (
            Table(f"{table.name}_beside_{self.name}", title, COLUMNS, rows, notes) if rows else None
        )

    def _printed(self, table: str, row: Row, study: Study) -> Mapping[str, Any]:
        """Printed numbers of a row by column; macros only stand for exactly the paper's
        data sets.
        """
        if table not in KEYS:
            return {}
        about = {**row.about, "dataset": "macro"} if row.about.get("macro") else row.about
        whole = set(study.datasets) == set(self.queries)
        if table == "main" and not whole:
            return self._main_of_some(str(row.about["method"]), study)
        found: Any = self.data.get(table, {})
        if "datasets" in about:  # a macro of its own
            printed = found.get(str(about["axis"]), {}).get(str(about["value"]), {})
            whole = set(printed) - {"macro"} == set(about["datasets"])
        if about.get("dataset") not in self.queries and not whole:
            return {}
        for key in KEYS[table]:
            found = found.get(str(about.get(key)), {}) if isinstance(found, Mapping) else {}
        return found if isinstance(found, Mapping) else {"spearman": found}

    def _main_of_some(self, method: str, study: Study) -> dict[str, float]:
        """The main table over some of the paper's data sets, from its rows a data set, where it
        prints them.
        """
        rows = [self.data.get("per_dataset", {}).get(dataset, {}) for dataset in study.datasets]
        if not rows or not all(method in row and "original" in row for row in rows):
            return {}
        own: dict[str, list[float]] = {}
        other: dict[str, list[float]] = {}
        for outcome in PRIMARY:
            own[outcome.column] = [row[method][outcome.column] for row in rows]
            other[outcome.column] = [row["original"][outcome.column] for row in rows]
        printed = {column: macro(values) for column, values in own.items()}
        if method != "original":
            for outcome in (NDCG, RECALL):
                printed[f"{outcome.column}_gain"] = gain_pct(
                    own[outcome.column], other[outcome.column]
                )
            for outcome in (DEPTH_DENSE, DEPTH_SPARSE):
                reduced = mean_reduction_pct(own[outcome.column], other[outcome.column])
                printed[f"{outcome.column}_reduction"] = reduced
        return printed

    def _flags(self, row: Row, study: Study) -> dict[str, Value]:
        """`same`, an en dash where the thing is not used, else what it is here."""
        own = {
            axis: getattr(study.setting, axis)
            for axis in ("encoder", "generator", "kappa", "k", "n_refs")
        }
        expected = dict(self.setting)
        axis = row.about.get("axis")
        if axis in own:  # the row is about another value, and so is the printed one
            own[axis] = expected[axis] = row.about["value"]
        datasets = (
            [row.about["dataset"]] if row.about.get("dataset") in study.datasets else study.datasets
        )
        methods = {row.about.get("method")} if row.about.get("method") else set(study.methods)
        text = not methods <= set(WITHOUT_TEXT)
        others = []
        for dataset in datasets:
            judged = self._judged(study, dataset)
            if judged != self.queries.get(dataset):
                known = (
                    f"{judged} of {self.queries[dataset]} queries"
                    if dataset in self.queries
                    else "another"
                )
                others.append(f"{dataset_name(dataset)}: {known}")
        draws = max(cell.draws for cell in study.cells)
        protocol = [("kappa", own["kappa"]), ("k", own["k"])] + (
            [("n_refs", own["n_refs"]), ("draws", draws)] * text
        )
        differs = [
            f"{name} {value}" for name, value in protocol if str(value) != str(expected[name])
        ]
        return {
            "dataset": "; ".join(others) or SAME,
            "encoder": SAME if own["encoder"] == expected["encoder"] else str(own["encoder"]),
            "generator": (
                (SAME if own["generator"] == expected["generator"] else str(own["generator"]))
                if text
                else UNUSED
            ),
            "protocol": ", ".join(differs) or SAME,
        }

    @staticmethod
    def _judged(study: Study, dataset: str) -> int:
        cells = [study.cell(dataset, method) for method in study.methods]
        cell = next(cell for cell in cells if cell)
        return cell.means["ndcg_at_10"].count()


def _numbers(
    table: Table, row: Row, printed: Mapping[str, Any]
) -> Iterator[tuple[str, str, float | None, float]]:
    """Column key, title, own and printed value; an interval gives its two ends."""
    for column in table.columns:
        value, own = printed.get(column.key), row.values.get(column.key)
        if isinstance(value, list | tuple):
            for end, name in enumerate(("low", "high")):
                mine = own[end] if isinstance(own, tuple) else None
                yield column.key, f"{column.title}, {name}", mine, float(value[end])
        elif value is not None:
            yield (
                column.key,
                column.title,
                float(own) if isinstance(own, int | float) else None,
                float(value),
            )
