"""Answers lost between a real MLflow server and a run: exactly one run per log entry, and no entry
lost.
"""

import random
from dataclasses import replace

import pytest
from mlflow.tracking import MlflowClient

from desa_ray.errors import DesaError
from desa_ray.tracking.reports import log_report
from desa_ray.tracking.runs import Tracker
from desa_ray.tracking.sweeps import SweepLog, SweepRun
from tests.tracking.entries_made_up import made_cell
from tests.tracking.lossy_proxy import CUT, DELIVER, LOSE
from tests.tracking.served import CELLS, check, logged

pytestmark = pytest.mark.long


def test_every_kind_of_call_may_lose_its_answer(proxy, port, tmp_path):
    """The first answer to each endpoint is lost, the second one is not."""
    met = set[str]()

    def plan(_: int, line: str) -> str:
        kind = line.partition("?")[0]
        kind = kind[: kind.rindex("/artifacts")] if "/artifacts/" in kind else kind
        first = kind not in met
        met.add(kind)
        return LOSE if first else DELIVER

    proxy.plan = plan
    logged(proxy, tmp_path, "kinds")
    check(port, "kinds", ["a sweep", *CELLS])
    assert {"POST /api/2.0/mlflow/runs/create", "POST /api/2.0/mlflow/runs/log-batch"} <= met
    assert any("mlflow-artifacts" in kind for kind in met)


@pytest.mark.parametrize(
    ("fate", "seed"),
    [
        (LOSE, 0),
        (CUT, 3),
        *(
            pytest.param(fate, seed, marks=pytest.mark.slow)
            for fate in (LOSE, CUT)
            for seed in range(4, 12)
        ),
    ],
)
def test_one_run_per_entry_whatever_answers_are_lost(fate, seed, proxy, port, tmp_path):
    chance = random.Random(seed)
    lost: list[bool] = []

    def plan(_: int, line: str) -> str:
        lost.append(chance.random() < 0.35 and lost[-2:] != [True, True])
        return fate if lost[-1] else DELIVER

    proxy.plan = plan
    experiment = f"{'lose' if fate == LOSE else 'cut'}{seed}"
    logged(proxy, tmp_path, experiment)
    assert proxy.lost >= 4
    # A request that is still at work when it is looked for is made again, and what it makes then is
    # removed.
    check(port, experiment, ["a sweep", *CELLS], trash=0 if fate == LOSE else 5)


def test_every_new_run_may_lose_its_answer_twice(proxy, port, tmp_path):
    creates: dict[str, int] = {}

    def plan(_: int, line: str) -> str:
        creates[line] = creates.get(line, 0) + 1
        return LOSE if line.endswith("runs/create") and creates[line] % 3 else DELIVER

    proxy.plan = plan
    logged(proxy, tmp_path / "sweep", "creates")
    check(port, "creates", ["a sweep", *CELLS])
    logged(proxy, tmp_path / "single", "single", parent=False)
    check(port, "single", CELLS[:1])
    assert proxy.seen.count("POST /api/2.0/mlflow/runs/create") == 5


def test_a_run_made_too_late_to_be_found_is_removed(proxy, port, tmp_path, monkeypatch):
    """The answer to `create` never comes, and the run appears only after another was made for its
    entry.
    """
    hidden: list[str] = []
    from desa_ray.tracking.delivery import Delivery

    search = Delivery._search

    def late(self, identity):
        found = search(self, identity)
        if hidden or "desa.cell" not in identity or not proxy.lost:
            return found
        hidden.extend(run.info.run_id for run in found)
        return []

    monkeypatch.setattr(Delivery, "_search", late)
    lost: list[str] = []

    def plan(_: int, line: str) -> str:
        if line.endswith("runs/create") and not lost and proxy.seen.count(line) == 1:
            lost.append(line)
            return LOSE
        return DELIVER

    proxy.plan = plan
    logged(proxy, tmp_path, "late")
    assert len(hidden) == 1
    check(port, "late", ["a sweep", *CELLS], trash=1)


def test_a_report_whose_answer_is_lost_is_one_run(proxy, port, tmp_path):
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "index.html").write_text("a page")
    tracker = Tracker(proxy.url, tmp_path / "mlartifacts")
    proxy.plan = lambda _, line: LOSE if line.endswith("runs/create") else DELIVER
    _, run_id = log_report(
        tracker, "reported", tmp_path / "report", {"datasets": "one"}, {"a": "b"}
    )
    client = MlflowClient(f"http://127.0.0.1:{port}")
    (run,) = client.search_runs([client.get_run(run_id).info.experiment_id])
    assert (run.info.run_id, run.info.status, run.data.params) == (
        run_id,
        "FINISHED",
        {"datasets": "one"},
    )
    proxy.plan = lambda _, line: LOSE if line.endswith("log-parameter") else DELIVER
    with pytest.raises(
        DesaError, match=r"could not be logged: the server cannot be reached.*enabled=false"
    ):
        log_report(tracker, "reported", tmp_path / "report", {"datasets": "two"}, {})


def test_a_slow_upload_goes_on_while_it_moves(proxy, tmp_path, monkeypatch):
    """The limit of a call is shorter than an artifact takes, and longer than anything else does."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
    proxy.pause_s = 7.0
    cell = made_cell(tmp_path / "out", "one", text="r" * 2_000_000)
    cell = replace(cell, tags={"sha256.records.parquet": "big"})
    log = SweepLog(
        SweepRun("slow", "a" * 64, "a sweep", False, {}, {}),
        uri=proxy.url,
        home=tmp_path,
        sample_s=0,
    )
    assert log.cell(cell), log.outbox.trouble
    log.end("FINISHED", {}, [], [])
    assert proxy.paused == 1
