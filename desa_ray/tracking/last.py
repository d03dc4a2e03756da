"""Where the last runs of a home were logged: `last_tracking.json`, read without MLflow."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from desa_ray.errors import DesaError

ID = re.compile(r"[a-zA-Z0-9]{1,64}")
FILE = "last_tracking.json"
CLASSIC = "workflowType=machine_learning"  # the UI's menu of runs, not that of GenAI
FOLDER, PAGE = "report", "index.html"  # the artifacts of a report, and its page among them
COMPARED = 50  # runs that MLflow's compare view still draws


def last_uri(home: Path) -> str:
    """The tracking store that the last run in `home` logged to.

    Raises:
        DesaError: nothing has been logged there, or the note of it is damaged.
    """
    file = home / FILE
    try:
        uri = json.loads(file.read_text(encoding="utf-8"))["uri"]
        if not isinstance(uri, str):
            raise TypeError
    except FileNotFoundError:
        hint = "run `desa run` first, or set DESA_HOME, or tracking.uri"
        raise DesaError("no run has been logged here", where=str(home), hint=hint) from None
    except OSError as error:
        raise DesaError(
            f"cannot be read: {error.strerror or error}", where=str(file), hint="fix or delete it"
        ) from None
    except (ValueError, LookupError, TypeError, RecursionError):
        hint = "delete it: the next run writes it again; or name the store with tracking.uri"
        raise DesaError(
            "is damaged: not JSON as a run writes it", where=str(file), hint=hint
        ) from None
    return uri


def last_runs(home: Path) -> Mapping[str, object]:
    """What the last run in `home` noted of its experiment and runs; empty where it noted none."""
    try:
        found = json.loads((home / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def links(base: str, noted: Mapping[str, object]) -> list[str]:
    """Lines with the addresses of experiment, sweep or run, the comparison of its cells, and the
    last report, on a server.

    Args:
        base: the server's address.
        noted: `experiment_id`, `run_ids` (of a sweep the parent first), `sweep` (whether it is
            one), `compared` (whether its end was logged, with the view that compares its cells) and
            `report` (ids of experiment and run that hold the last one); anything else gives fewer
            lines.
    """
    return [*_of_runs(base, noted), *_of_report(base, noted)]


def _of_report(base: str, noted: Mapping[str, object]) -> list[str]:
    found = noted.get("report")
    if not isinstance(found, list) or len(found) != 2 or not _ids(found):
        return []
    return [f"report: {base.rstrip('/')}/{report_route(*found)}"]


def _of_runs(base: str, noted: Mapping[str, object]) -> list[str]:
    experiment, run_ids = noted.get("experiment_id"), noted.get("run_ids")
    if not isinstance(experiment, str) or not _ids([experiment]):
        return []
    page = f"{base.rstrip('/')}/#/experiments/{experiment}"
    lines = [f"experiment: {page}/runs?{CLASSIC}"]
    if not isinstance(run_ids, list) or not run_ids or not _ids(run_ids):
        return lines
    lines.append(f"{'sweep' if noted.get('sweep') else 'run'}: {page}/runs/{run_ids[0]}?{CLASSIC}")
    children = run_ids[1:]
    if noted.get("sweep") and 1 < len(children) <= COMPARED:
        if noted.get("compared"):
            view = f"viewStateShareKey={run_ids[0]}&compareRunsMode=CHART"
            return [*lines, f"compare: {page}/runs?{view}&{CLASSIC}"]
        runs = quote(json.dumps(children, separators=(",", ":")))
        own = quote(json.dumps([experiment]))
        lines.append(
            f"compare: {base.rstrip('/')}/#/compare-runs?runs={runs}&experiments={own}&{CLASSIC}"
        )
    elif noted.get("sweep") and children:
        wanted = quote(f"tags.`mlflow.parentRunId` = '{run_ids[0]}'")
        lines.append(f"cells: {page}/runs?searchFilter={wanted}&{CLASSIC}")
    return lines


def report_route(experiment_id: str, run_id: str) -> str:
    """Where MLflow's UI shows the page of a report, behind the server's address."""
    run = f"#/experiments/{experiment_id}/runs/{run_id}"
    return f"{run}/artifactPath/{FOLDER}/{PAGE}?{CLASSIC}"


def _ids(values: Sequence[object]) -> bool:
    return all(isinstance(value, str) and ID.fullmatch(value) for value in values)
