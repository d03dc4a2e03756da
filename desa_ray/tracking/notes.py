"""What MLflow shows on the page of a run: a note in Markdown, the run's origin, its data sets.

All of it is made here from an entry's plain values, so that an entry on disk, which may be foreign,
brings neither Markdown nor tags that MLflow reads.
"""

import getpass
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag

from desa_ray.printable import printable
from desa_ray.redaction import redacted
from desa_ray.tracking.entries import TAG_LIMIT
from desa_ray.tracking.last import report_route

NOTE = "mlflow.note.content"
REPORT = "Report: tables and figures"
REPORT_ROOM = 600  # characters that a link to it may take in a note
HEADLINE = {
    "ndcg_at_10": ("nDCG@10", 4),
    "recall_at_20": ("Recall@20", 4),
    "depth_dense": ("L_D", 1),
    "depth_sparse": ("L_S", 1),
    "depth_total": ("L_D + L_S", 1),
    "sparse_support": ("sparse support", 1),
}
LABELS = ("dataset", "method", "generator", "encoder", "kappa", "n_refs", "corpus_docs")
COMMIT = re.compile(r"[0-9a-f]{40}")
DIGEST = 36  # as many characters as MLflow keeps


def plain(text: object) -> str:
    """Text that Markdown shows as it is, in one line; escaped as MLflow's own reader takes it."""
    shown = re.sub(r"([\\`*_{}\[\]()>#+\-.!|~:=])", r"\\\1", printable(text).replace("&", "&amp;"))
    return shown.replace("<", "&lt;")


def cell_note(document: Mapping[str, Any]) -> str:
    """What a cell is, its main numbers, and how to compute it again."""
    params = document["params"]
    lines = [f"| {plain(name)} | {plain(params[name])} |" for name in LABELS if _said(params, name)]
    for name, (title, digits) in HEADLINE.items():
        if name in document["metrics"]:
            lines.append(f"| {plain(title)} | {document['metrics'][name]:.{digits}f} |")
    head = "| setting or mean | value |\n|---|---|\n"
    files = "`records.parquet` has one row per query and draw, `manifest.json` every stage."
    return _joined([head + "\n".join(lines), files, *_command(document)])


def sweep_note(document: Mapping[str, Any]) -> str:
    """How many cells of a sweep are finished, a table of them, and the command."""
    rows, metrics = document.get("results") or [], document["metrics"]
    failed = int(metrics.get("cells_failed", 0))
    said = f"{int(metrics.get('cells', 0))} cells, {failed} failed."
    logged = set[str]().union(*(row["metrics"] for row in rows))
    names = [name for name in HEADLINE if name in logged]
    titles = "".join(f" {plain(HEADLINE[name][0])} |" for name in names)
    head = f"| cell |{titles}\n|---|{'---:|' * len(names)}"
    lines = [_row(row, names) for row in rows]
    rest = _command(document)
    room = TAG_LIMIT - len(_joined([said, head, *rest])) - 100 - REPORT_ROOM
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    left = len(lines) - len(kept)
    more = [f"{left} more rows are in `summary.json`."] if left else []
    table = ["\n".join([head, *kept])] if kept else []
    return _joined([said, *table, *more, *rest])


def with_report(note: str, experiment_id: str, run_id: str) -> str:
    """The note of a sweep with a link to its report on top, once."""
    line = f"[{REPORT}]({report_route(experiment_id, run_id)})"
    return note if note.startswith(line) else _joined([line, note])


def has_report(note: str) -> bool:
    """Whether a report was linked from a sweep's note."""
    return note.startswith(f"[{REPORT}](")


def about(document: Mapping[str, Any]) -> dict[str, str]:
    """Tags by which MLflow shows source, commit and user."""
    commit = document["tags"].get("commit", "")
    found = {
        "mlflow.source.name": "desa run",
        "mlflow.source.type": "LOCAL",
        "mlflow.user": _user(),
    }
    return found | ({"mlflow.source.git.commit": commit} if COMMIT.fullmatch(commit) else {})


def data_sets(inputs: Sequence[Mapping[str, Any]]) -> list[DatasetInput]:
    """The data sets of a cell, as MLflow logs them."""
    found = []
    for own in inputs:
        dataset = Dataset(
            name=own["name"],
            digest=own["digest"][:DIGEST],
            source_type="local",
            source=json.dumps({"uri": own["source"]}),
            profile=json.dumps(own["counts"]),
        )
        found.append(DatasetInput(dataset, [InputTag("mlflow.data.context", "evaluation")]))
    return found


def _said(params: Mapping[str, str], name: str) -> bool:
    return params.get(name) not in (None, "None")


def _row(row: Mapping[str, Any], names: Sequence[str]) -> str:
    cells = []
    for name in names:
        value = row["metrics"].get(name)
        cells.append("" if value is None else f"{value:.{HEADLINE[name][1]}f}")
    return f"| {plain(row['name'])} | {' | '.join(cells)} |"


def _command(document: Mapping[str, Any]) -> list[str]:
    """The command as a block of code, whatever it holds."""
    command = redacted(printable(document.get("command") or ""))
    if not command:
        return []
    if len(command) > TAG_LIMIT // 4:
        command = f"{command[: TAG_LIMIT // 4]} [...]"
    fence = "`" * max(3, *(len(own) + 1 for own in re.findall("`+", command)), 0)
    return [f"To reproduce:\n\n{fence}sh\n{command}\n{fence}"]


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(parts)


def _user() -> str:
    try:
        return printable(getpass.getuser())
    except (OSError, KeyError):  # a user without a name
        return "unknown"
