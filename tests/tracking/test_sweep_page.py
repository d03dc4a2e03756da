"""What opens on a sweep in MLflow: the view that compares its cells, and its report."""

import json
from dataclasses import replace
from pathlib import Path

from mlflow.tracking import MlflowClient

from desa_ray.tracking.comparison import TAG, VALUE_LIMIT, Varied, compared_view
from desa_ray.tracking.last import links, report_route
from desa_ray.tracking.reports import log_report
from desa_ray.tracking.runs import KIND, Tracker
from tests.tracking.entries_made_up import made_cell, open_log, runs_in

KEYS = {"one": "1" * 64, "two": "2" * 64}


def _logged(uri: str, folder: Path) -> str:
    """A sweep of two cells over kappa; returns its parent's id."""
    log = open_log(uri, folder / "home")
    for name, key in KEYS.items():
        cell = made_cell(folder / "out", name)
        params = {"method": "desa", "kappa": len(name) + ord(name[0]), "settings.x": "same"}
        log.cell(replace(cell, params=params, tags={**cell.tags, "key.fusion.draw0": key}))
    log.end("FINISHED", {}, [], [])
    assert log.compared
    return log.run_ids[0]


def test_the_view_finds_the_children_and_what_they_have(uri, tmp_path):
    """MLflow finds exactly the sweep's children by it, and they have its columns and axes."""
    parent = _logged(uri, tmp_path)
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("desa/tested")
    view = json.loads(experiment.tags[TAG + parent])
    found = client.search_runs([experiment.experiment_id], view["searchFilter"])
    assert sorted(run.info.run_name for run in found) == ["one", "two"]
    assert view["selectedColumns"] == ["params.`method`", "params.`kappa`", "metrics.`ndcg_at_10`"]
    assert view["orderByKey"] == "metrics.`ndcg_at_10`"  # by creation it would fold them
    axes, *bars = view["compareRunCharts"]
    assert (axes["selectedParams"], axes["selectedMetrics"]) == (
        ["method", "kappa"],
        ["ndcg_at_10"],
    )
    assert [bar["metricKey"] for bar in bars] == ["ndcg_at_10"]
    assert {axes["metricSectionId"]} == {own["uuid"] for own in view["compareRunSections"]}


def test_old_and_new_experiments_are_of_the_classic_kind(uri, tmp_path):
    """Those of earlier versions have no kind, or what MLflow's UI guessed; a user's own stands."""
    client, tracker = MlflowClient(uri), Tracker(uri, tmp_path / "artifacts")
    guessed, chosen = {KIND: "genai_development_inferred"}, {KIND: "genai_development"}
    for name, tags in (("old", {}), ("guessed", guessed), ("chosen", chosen)):
        client.create_experiment(f"desa/{name}", tags=tags)
    kinds = {}
    for name in ("old", "guessed", "chosen", "new"):
        tracker.experiment(name)
        kinds[name] = client.get_experiment_by_name(f"desa/{name}").tags[KIND]
    classic = dict.fromkeys(("old", "guessed", "new"), "custom_model_development")
    assert kinds == {**classic, "chosen": "genai_development"}


def test_axes_are_labels_then_settings_that_differ_beside_them():
    varied = Varied()
    cells = [("a", 2, 10, "x"), ("a", 2, 20, "x"), ("b", 2, 10, "y"), ("b", 2, 20, "y")]
    for method, kappa, pooled, derived in cells:
        settings = {"settings.pool": str(pooled), "settings.of_method": derived}
        varied.add({"method": method, "kappa": str(kappa), **settings})
    assert varied.names() == ["method", "settings.pool"]


def test_a_label_that_some_methods_lack_is_no_axis():
    varied = Varied()
    for method, generator, kappa in (("original", "None", 2), ("desa", "recorded", 60)):
        varied.add({"method": method, "generator": generator, "kappa": str(kappa)})
    assert varied.names() == ["method", "kappa"]


def test_a_view_of_long_names_fits_a_tag():
    names = [f"settings.{letter * 240}" for letter in "abcdefgh"]
    _, text = compared_view("f" * 32, ["method", *names], ["ndcg_at_10"])
    assert len(text) <= VALUE_LIMIT
    assert json.loads(text)["selectedColumns"][0] == "params.`method`"


def test_a_report_is_logged_into_its_sweep(uri, tmp_path):
    """Its page is an artifact of the parent, linked once from the note, also after a resumption;
    a report about more than one sweep has a run of its own.
    """
    parent = _logged(uri, tmp_path)
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "index.html").write_text("page")
    for name in ("figures/kappa.png", ".hydra/config.yaml"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("x")
    tracker = Tracker(uri, tmp_path / "home" / "mlartifacts")
    facts = {"data sets": "SciFact"}
    for _ in range(2):
        place = log_report(
            tracker, "reports", folder, facts, {"sha256.records": "x"}, KEYS.values()
        )
        assert place[1] == parent
    client = MlflowClient(uri)
    logged = [file.path for file in client.list_artifacts(parent, "report")]
    assert logged == ["report/figures", "report/index.html"]
    (picture,) = client.list_artifacts(parent, "report/figures")
    assert picture.path == "report/figures/kappa.png"
    assert client.get_run(parent).data.tags["report.data sets"] == "SciFact"
    assert _logged(uri, tmp_path) == parent
    note = client.get_run(parent).data.tags["mlflow.note.content"]
    assert note.count(report_route(*place)) == 1
    assert "| one |" in note
    assert client.get_experiment_by_name("desa/reports") is None
    more = [*KEYS.values(), "3" * 64]
    _, own = log_report(tracker, "reports", folder, facts, {}, more)
    assert client.get_run(own).info.run_name == "report"
    assert sum(len(runs) for runs in runs_in(uri).values()) == 3


def test_links_open_the_compared_view_and_the_report():
    noted = {"experiment_id": "3", "run_ids": ["p", "a", "b"], "sweep": True, "compared": True}
    *_, compare, report = links("http://h:5000/", {**noted, "report": ["3", "p"]})
    assert compare == (
        "compare: http://h:5000/#/experiments/3/runs?viewStateShareKey=p&compareRunsMode=CHART"
        "&workflowType=machine_learning"
    )
    assert report == (
        "report: http://h:5000/#/experiments/3/runs/p/artifactPath/report/index.html"
        "?workflowType=machine_learning"
    )
    assert "report" not in str(links("http://h", {**noted, "report": ["3", "../p"]}))
