"""`desa report` as a user runs it: from files and from MLflow, with everything else deleted, and
one query's story.
"""

import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from PIL import Image

from desa_ray.errors import DesaError
from desa_ray.jobs.report import plainly_named
from desa_ray.report.load import FILE, load_records
from tests.desa_fixtures import QUERIES, run_desa

pytestmark = pytest.mark.long

QUICK = ["resamples=200", "seed=3", "report.figures=[]"]


@pytest.fixture(scope="module")
def sweep(serial_sweep, tmp_path_factory) -> Path:
    """A working folder of these tests' own after a sweep over the slice, logged to its `home`."""
    return Path(shutil.copytree(serial_sweep, tmp_path_factory.mktemp("report") / "sweep"))


def report(folder: Path, *arguments: str, check: bool = True):
    """Runs `desa report` in a folder; returns what it printed and the folder it wrote."""
    done = run_desa(folder, folder / "home", "report", *arguments)
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    written = sorted(folder.glob("outputs/reports/*/*"))
    return done, written[-1] if written else None


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".hydra" not in path.parts
    }


def run_ids(sweep: Path) -> list[str]:
    (summary,) = sweep.glob("outputs/sweeps/*/*/summary.json")
    return [cell["mlflow_run_id"] for cell in json.loads(summary.read_text())["cells"]]


@pytest.fixture(scope="module")
def first(sweep) -> tuple:
    done, folder = report(sweep, *QUICK, "compare=paper")
    return done, folder, contents(folder)


def test_the_newest_sweep_is_reported_shown_written_and_logged(first, sweep):
    from mlflow.tracking import MlflowClient

    done, _, files = first
    assert "Main results" in done.stdout
    assert "DESA" in done.stdout
    assert "outputs/sweeps" in done.stderr
    assert {
        "index.html",
        "report.md",
        "report.tex",
        "report.json",
        "tables/main.csv",
        "figures/pareto.csv",
    } <= set(files)
    (run_id,) = re.findall(r"MLflow run ([0-9a-f]{32}): `desa ui`", done.stderr)
    client = MlflowClient(f"sqlite:///{sweep / 'home' / 'mlflow.db'}")
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.info.run_name.startswith("sweep ")  # the parent of what it is about
    assert run.data.tags["report.seed"] == "3"
    assert run.data.tags["report.resamples"] == "200"
    logged = {file.path for file in client.list_artifacts(run_id, "report")}
    assert {"report/index.html", "report/tables", "report/figures"} <= logged


def test_settings_of_the_report_may_name_its_group():
    """`report.seed` is `seed`; what belongs to the group stays."""
    given = ["report.seed=20260813", "++report.sampling=release", "report.subject=mine"]
    named = ["seed=20260813", "++sampling=release", "report.subject=mine"]
    assert plainly_named([*given, "report.seeds=1"]) == [*named, "report.seeds=1"]


def test_either_spelling_gives_the_same_report(sweep, tmp_path):
    for place in ("", "report."):
        names = {"seed": 20260813, "sampling": "release", "resamples": 100, "gain": "exponential"}
        settings = [f"{place}{name}={value}" for name, value in names.items()]
        quick = ["report.figures=[]", "tracking.enabled=false"]
        report(sweep, *settings, *quick, f"hydra.run.dir={tmp_path}/{place}x")
    plain, grouped = contents(tmp_path / "x"), contents(tmp_path / "report.x")
    assert plain == grouped
    facts = json.loads((tmp_path / "x" / "report.json").read_text())["facts"]
    assert (facts["seed"], facts["sampling"]) == ("20260813", "release")


def test_numbers_are_those_of_the_sweeps_own_summary(first, sweep):
    _, folder, _ = first
    (summary,) = sweep.glob("outputs/sweeps/*/*/summary.json")
    cells = {cell["method"]: cell["metrics"] for cell in json.loads(summary.read_text())["cells"]}
    table = pl.read_csv(folder / "tables" / "per_dataset.csv")
    names = {
        "Original": "original",
        "Shared": "shared",
        "Dense only": "dense_only",
        "Sparse only": "sparse_only",
    }
    assert table.height == 5
    for row in table.iter_rows(named=True):
        own = cells[names.get(row["method"], "desa")]
        for column in (
            "ndcg_at_10",
            "recall_at_20",
            "depth_dense",
            "depth_sparse",
            "sparse_support",
        ):
            assert row[column] == pytest.approx(own[column], rel=1e-12)
        assert row["queries"] == QUERIES
    main = {
        row["method"]: row
        for row in pl.read_csv(folder / "tables" / "main.csv").iter_rows(named=True)
    }
    assert main["DESA"]["both_shallower"] == pytest.approx(100 * cells["desa"]["both_shallower"])


def test_deleting_everything_but_the_records_changes(first, sweep, tmp_path):
    """Deleting everything but the records changes not one byte."""
    _, _, files = first
    (original,) = sweep.glob("outputs/sweeps/*/*")
    bare = tmp_path / "elsewhere"
    for record in original.glob("*/records.parquet"):
        place = bare / record.parent.name / "records.parquet"
        place.parent.mkdir(parents=True)
        shutil.copy(record, place)
    _, folder = report(tmp_path, *QUICK, "compare=paper", f"sweep={bare}", "tracking.enabled=false")
    assert contents(folder) == files
    # In any order, from single files.
    records = sorted(map(str, bare.glob("*/records.parquet")), reverse=True)
    _, folder = report(
        tmp_path,
        *QUICK,
        "compare=paper",
        f"records=[{','.join(records)}]",
        "tracking.enabled=false",
    )
    assert contents(folder) == files


def test_runs_are_read_back_from_mlflow_with_the_same_result(first, sweep):
    _, _, files = first
    _, folder = report(
        sweep,
        *QUICK,
        "compare=paper",
        f"runs=[{','.join(run_ids(sweep))}]",
        "tracking.enabled=false",
    )
    assert contents(folder) == files


def test_load_records_takes_paths_and_run_ids_alike(sweep, monkeypatch):
    monkeypatch.setenv("DESA_HOME", str(sweep / "home"))
    (folder,) = sweep.glob("outputs/sweeps/*/*")
    by_path = load_records(folder)
    by_run = load_records(run_ids(sweep))
    assert by_path.height == QUERIES * (1 + 3 * 4)
    assert (
        by_path.drop("source")
        .sort("fusion_key", "query_id")
        .equals(by_run.drop("source").sort("fusion_key", "query_id"))
    )
    assert load_records([folder, folder / "0"]).height == by_path.height
    assert load_records(folder / "0" / "records.parquet")["source"].unique().to_list() == [
        str(folder / "0" / FILE)
    ]


def test_a_parent_run_stands_for_its_finished_children(sweep, monkeypatch):
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("DESA_HOME", str(sweep / "home"))
    client = MlflowClient(f"sqlite:///{sweep / 'home' / 'mlflow.db'}")
    experiment = client.create_experiment(
        "parents", (sweep / "home" / "mlartifacts" / "parents").as_uri()
    )
    parent = client.create_run(experiment).info.run_id
    (folder,) = sweep.glob("outputs/sweeps/*/*")
    for number, status in enumerate(("FINISHED", "FINISHED", "FAILED")):
        child = client.create_run(experiment, tags={"mlflow.parentRunId": parent}).info.run_id
        client.log_artifact(child, str(folder / str(number) / "records.parquet"))
        client.set_terminated(child, status)
    assert load_records(parent)["method"].unique().sort().to_list() == ["original", "shared"]
    childless = client.create_run(experiment).info.run_id
    with pytest.raises(DesaError, match=r"neither it nor its children have records\.parquet"):
        load_records(childless)


def test_wrong_sources_are_refused_with_what_is_wrong(tmp_path, sweep, monkeypatch):
    with pytest.raises(DesaError, match="neither a file or folder nor"):
        load_records(tmp_path / "absent")
    with pytest.raises(DesaError, match=r"contains no records\.parquet"):
        load_records(tmp_path)
    broken = tmp_path / "records.parquet"
    broken.write_text("no parquet")
    with pytest.raises(DesaError, match="cannot be read as parquet"):
        load_records(broken)
    with pytest.raises(DesaError, match="no records given"):
        load_records([])
    monkeypatch.setenv("DESA_HOME", str(tmp_path))
    with pytest.raises(DesaError, match="no run has been logged here"):
        load_records("0" * 32)
    monkeypatch.setenv("DESA_HOME", str(sweep / "home"))
    with pytest.raises(DesaError, match="0000"):
        load_records("0" * 32)
    done, _ = report(tmp_path, "seed=-1", "methods=desa", check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: seed:")


def test_one_querys_story_tells_text_references_moves_and_depths(sweep, demo_slice):
    (folder,) = sweep.glob("outputs/sweeps/*/*")
    records = load_records(folder)
    desa = records.filter((pl.col("method") == "desa") & (pl.col("draw") == 1)).to_dicts()
    own = next(row for row in desa if row["depth_dense"] != row["reference_depth_dense"])
    query = own["query_id"]
    done, written = report(sweep, f"sweep={folder}", f"query={query}", "story.draw=1")
    text = (written / "story.md").read_text(encoding="utf-8")
    queries = {
        q["_id"]: q["text"]
        for q in map(json.loads, (demo_slice / "queries.jsonl").read_text().splitlines())
    }
    assert " ".join(queries[query].split()) in text
    recorded = map(
        json.loads, (demo_slice / "generations" / "references.jsonl").read_text().splitlines()
    )
    (references,) = [
        row["texts"] for row in recorded if row["query_id"] == query and row["draw"] == 1
    ]
    assert all(
        f"{n}. {' '.join(reference.split())[:60]}" in text
        for n, reference in enumerate(references, 1)
    )
    assert (
        f"| depth of the dense ranking | {own['reference_depth_dense']} | {own['depth_dense']} |"
        in text
    )
    fused = text.split("## Fused rankings")[1]
    column = [
        line.split(" | ")[2].strip(" |*")
        for line in fused.splitlines()
        if re.match(r"\| \d+ ", line)
    ]
    assert column == own["top"]
    assert "Query" in done.stdout


def test_why_is_the_change_of_the_fusions_own_terms(sweep):
    (folder,) = sweep.glob("outputs/sweeps/*/*")
    query = load_records(folder)["query_id"].sort()[0]
    _, written = report(sweep, f"sweep={folder}", f"query='{query}'")
    moved = (written / "story.md").read_text().split("## What moved")[1].split("## ")[0]
    checked = 0
    for line in moved.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        ranks = re.fullmatch(r"(\d+) → (\d+)", cells[4] if len(cells) > 6 else "")
        told = re.search(r"dense (?:lifts|lowers) it \(([+−][\d.]+)\)", cells[6]) if ranks else None
        if ranks and told:
            change = 1 / (60 + int(ranks[2])) - 1 / (60 + int(ranks[1]))
            assert float(told[1].replace("−", "-")) == pytest.approx(change, abs=6e-6)
            checked += 1
    assert checked > 3


def test_a_story_without_its_store_says_so(sweep, tmp_path):
    (folder,) = sweep.glob("outputs/sweeps/*/*")
    query = load_records(folder)["query_id"].sort()[0]
    done, _ = report(tmp_path, f"sweep={folder}", f"query={query}", check=False)
    assert done.returncode == 2
    assert "is not in the store" in done.stderr
    done, _ = report(sweep, f"sweep={folder}", "query=nobody", check=False)
    assert "no cell of desa has a query nobody" in done.stderr


def test_top_lists_and_judgments_go_to_trec_files(sweep, demo_slice):
    """Top lists and judgments go to trec files that independent readers take; figures that are
    asked for are written too.
    """
    import ir_measures

    printed = ("report.figures=png", "report.columns=1", "report.cost=true")
    _, written = report(sweep, *QUICK, *printed, "trec=true", "tracking.enabled=false")
    with Image.open(written / "figures" / "cost.png") as picture:
        assert picture.width == 990
    costs = pl.read_csv(written / "figures" / "cost.csv")
    assert {"bytes stored per query (less is better)"} <= set(costs["cost"])
    assert costs.group_by("cost").agg(pl.col("on_front").any())["on_front"].all()
    folder = written / "trec" / "slice"
    run = list(ir_measures.read_trec_run(str(folder / "desa.draw1.trec")))
    qrels = list(ir_measures.read_trec_qrels(str(folder / "qrels.txt")))
    judged = (demo_slice / "qrels" / "test.tsv").read_text().splitlines()[1:]
    assert sorted((q.query_id, q.doc_id, str(q.relevance)) for q in qrels) == sorted(
        tuple(r.split("\t")) for r in judged
    )
    found = {
        (m.query_id, str(m.measure)): m.value
        for m in ir_measures.iter_calc([ir_measures.nDCG @ 10], qrels, run)
    }
    (sweep_folder,) = sweep.glob("outputs/sweeps/*/*")
    records = load_records(sweep_folder).filter(
        (pl.col("method") == "desa") & (pl.col("draw") == 1)
    )
    for query, value in records.select("query_id", "ndcg_at_10").iter_rows():
        assert found[query, "nDCG@10"] == pytest.approx(value, abs=1e-12)
