"""`desa_ray.plan` and `desa_ray.run` on the built-in demo: results are those of the command line,
and nothing of the caller's process changes.
"""

import asyncio
import json
import logging
import os
import re
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.initialize import initialize

import desa_ray
from desa_ray.report.load import load_records
from tests.conftest import REPOSITORY
from tests.desa_fixtures import dataset, run_desa
from tests.e2e.test_pinned_store import write_collection
from tests.notebooks import execute

pytestmark = pytest.mark.long

# BM25 alone needs no vectors, so that the whole demo takes seconds.
QUICK = ["dataset=demo_small", "method=bm25", "cluster=serial"]
UNLOGGED = "tracking.enabled=false"
TUTORIAL = REPOSITORY / "docs" / "tutorial.ipynb"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory):
    """A working folder and home of this module's own."""
    folder = tmp_path_factory.mktemp("notebook")
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DESA_HOME", str(folder / "home"))
        os.chdir(folder)
        yield folder
        os.chdir(before)


@pytest.fixture(scope="module")
def swept(place: Path):
    """A sweep over two constants, logged, and the steps that it told."""
    steps: list = []
    overrides = [*QUICK, "fusion.kappa=20,60", UNLOGGED]
    before = desa_ray.plan(overrides)
    return before, desa_ray.run(overrides, steps.append), steps


def test_the_package_lists_what_it_offers():
    assert {"fuse", "load_records", "plan", "run", "DesaError"} <= set(dir(desa_ray))
    with pytest.raises(AttributeError, match="no attribute 'runs'"):
        _ = desa_ray.runs  # type: ignore[attr-defined]


def test_a_run_computes_what_its_plan_says(swept):
    planned, results, _ = swept
    states = Counter(planned.stages["state"])
    # collection tables; terms, postings and one ranking; one fusion per constant
    assert states == {"stored": 3, "compute": 5}
    assert planned.to_compute == 5
    assert planned.cells["kappa"].to_list() == ["20", "60"]
    assert sum(cell["stages"]["computed"] for cell in results.cells) == 5
    assert desa_ray.plan([*QUICK, "fusion.kappa=20,60"]).to_compute == 0


def test_results_are_what_the_run_wrote(swept):
    """Records, summary and files agree; each query's ranking is its record's top list."""
    _, results, _ = swept
    assert results.summary.select("cell", "kappa", "n_queries").rows() == [
        (0, 20.0, 8),
        (1, 60.0, 8),
    ]
    assert results.records.height == 16
    means = results.records.group_by("cell", maintain_order=True).agg(pl.col("ndcg_at_10").mean())
    assert means["ndcg_at_10"].to_list() == pytest.approx(results.summary["ndcg_at_10"].to_list())
    written = load_records(results.folder)
    assert written.drop("source").rows() == results.records.drop("cell").rows()

    top = results.rankings(1).filter(pl.col("rank") <= 20)
    tops = results.records.filter(pl.col("cell") == 1).select("query_id", "top")
    assert top["doc_id"].to_list() == tops["top"].explode().to_list()


def test_rankings_are_the_runs_of_an_independent_reader(swept):
    """The fused run is that of `run.parquet`, as pyarrow reads it; one channel alone is fused to
    its own order.
    """
    _, results, _ = swept
    found = results.rankings(0)
    run = pq.read_table(results.folders[0] / "run.parquet").to_pylist()
    pairs = [(row["query_id"], document) for row in run for document in row["docs"]]
    assert found.select("query_id", "doc_id").rows() == pairs
    channel = results.rankings(0, channel="sparse")
    support = results.records.filter(pl.col("cell") == 0)["sparse_support"].sum()
    assert channel.height == support
    assert channel.filter(pl.col("rank") <= 1000).rows() == found.rows()


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"cell": 2}, "no cell 2.*use 0 to 1"),
        ({"draw": 1}, "no draw 1.*use 0 to 0"),
        ({"channel": "spars"}, "'spars'.*sparse"),
    ],
)
def test_rankings_that_do_not_exist_are_refused(swept, wanted, words):
    with pytest.raises(desa_ray.DesaError, match=words):
        swept[1].rankings(**wanted)


def test_progress_counts_the_shards_of_every_stage(swept):
    _, _, steps = swept
    last = {(step.stage, step.text): step for step in steps if step.stage}
    assert len(last) == 5
    assert all(step.done == step.total > 0 for step in last.values())
    assert "2 cells, 5 stages to compute" in map(str, steps)


def test_records_are_those_of_the_command_line(swept, place):
    """The command reuses every stage of the call, and the records are the same bytes."""
    done = run_desa(place, place / "home", "run", "-m", *QUICK, "fusion.kappa=20,60", UNLOGGED)
    assert done.returncode == 0, done.stderr
    assert "0 stages to compute" in done.stderr
    (folder,) = [Path(found) for found in re.findall(r"results: (.+)", done.stderr)]
    assert swept[1].folder.parent == folder.parent  # of sweeps, by day
    for number, own in enumerate(swept[1].folders):
        theirs = folder / str(number) / "records.parquet"
        assert (own / "records.parquet").read_bytes() == theirs.read_bytes()


def _surroundings() -> dict:
    """What a library must leave alone."""
    loggers = [logging.getLogger(), *map(logging.getLogger, ("mlflow", "ray", "hydra", "urllib3"))]
    return {
        "folder": Path.cwd(),
        "environment": dict(os.environ),
        "signals": [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)],
        "logging": [(log.level, list(log.handlers), log.disabled) for log in loggers],
        "hydra": GlobalHydra.instance().hydra,
        "arguments": list(sys.argv),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "threads": {thread.name for thread in threading.enumerate()},
    }


def test_nothing_of_the_caller_changes(swept, place):
    """Not even within an event loop, while the caller composes with Hydra itself."""

    async def call():
        assert desa_ray.plan(QUICK).to_compute == 0  # in the loop's own thread
        return desa_ray.run([*QUICK, UNLOGGED])

    with initialize(version_base="1.3", config_path=None):
        before = _surroundings()
        assert before["hydra"] is not None
        results = asyncio.run(call())
        assert _surroundings() == before
    assert len(results.cells) == 1
    assert results.records.drop("cell").rows() == (
        swept[1].records.filter(pl.col("cell") == 1).drop("cell").rows()
    )


@pytest.mark.slow
def test_two_runs_on_local_ray_at_once(place):
    """Both start a cluster of their own, from two threads, in the same second."""
    common = ["dataset=demo_small", "method=bm25", "cluster.cpus=2", UNLOGGED]
    runs = [[*common, f"sparse.k1={k1}", f"store.root=store-{k1}"] for k1 in (0.7, 1.1)]
    found: dict[int, desa_ray.notebook.Results] = {}

    def call(number: int) -> None:
        found[number] = desa_ray.run(runs[number])

    threads = [threading.Thread(target=call, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number].cells[0]["stages"]["computed"] for number in range(2)] == [4, 4]
    assert found[0].folder != found[1].folder
    assert found[0].rankings().rows() != found[1].rankings().rows()
    for number in range(2):
        serial = desa_ray.run([*runs[number], "cluster=serial", "store.root=home/store"])
        assert serial.rankings().rows() == found[number].rankings().rows()


def test_an_interrupt_leaves_what_is_stored(swept, place):
    """Ctrl-C in the middle: the next call computes the rest only, and gives the same rankings."""
    overrides = [*QUICK, "store.root=interrupted", UNLOGGED]

    def interrupt(step) -> None:
        if step.stage == "ranking":
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        desa_ray.run(overrides, interrupt)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("desa")]
    results = desa_ray.run(overrides)
    assert results.cells[0]["stages"]["computed"] in (1, 2)
    assert results.rankings().rows() == swept[1].rankings(1).rows()


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["fusion.kapa=2"], "fusion.kapa.*kappa"),
        (["method=nope"], "method: no method 'nope'.*desa"),
        (["fusion.kappa=x", "draws=none"], "fusion.kappa.*\n.*draws|draws.*\n.*fusion.kappa"),
        (["--help"], "'--help' is a flag.*KEY=VALUE"),
        ("method=desa", "not a list of strings.*give a list"),
        ([["method=desa"]], "not a list of strings.*give a list"),
    ],
)
def test_mistakes_are_errors_of_the_platform(place, overrides, words):
    before = sorted(place.glob("outputs/**"))
    with pytest.raises(desa_ray.DesaError, match=words) as caught:
        desa_ray.run(overrides)
    assert caught.value.exit_code == 2
    assert sorted(place.glob("outputs/**")) == before


def test_files_of_ones_own_are_composed(place, tmp_path):
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text(
        "name: mine\nchannels:\n  - {name: words, kind: sparse, operator: original}\n"
    )
    overrides = ["dataset=demo_small", "method=mine", "cluster=serial", UNLOGGED]
    assert desa_ray.plan(overrides, config_dir=tmp_path).cells["method"].to_list() == ["mine"]


def test_a_killed_child_is_an_error(place, tmp_path):
    """The child dies without an answer, as a machine without memory ends it."""
    children = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children")

    def kill(step) -> None:
        del step
        os.kill(int(children.read_text().split()[-1]), signal.SIGKILL)

    with pytest.raises(desa_ray.DesaError, match=r"SIGKILL.*run again"):
        desa_ray.run([*QUICK, f"store.root={tmp_path}", UNLOGGED], kill)


@pytest.fixture(scope="module")
def small(place: Path) -> str:
    """Overrides, as Python text, that take a small collection in place of the demo, whose vectors
    take minutes; one home for all examples.
    """
    write_collection(place / "small")
    instead = [*dataset(place / "small"), "cluster=serial", UNLOGGED]
    return ", ".join(map(repr, instead))


def test_the_examples_of_the_pages_run(small):
    """The Python blocks of README.md and docs/python.md, one after another."""
    seen: dict = {}
    for page in ("README.md", "docs/python.md"):
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        assert blocks
        for block in blocks:
            exec(block.replace('"dataset=demo"', small), seen)
    assert seen["result"].documents == ("d3", "d2")
    assert set(seen["results"].summary["method"]) == {"original", "desa"}
    assert seen["results"].records.height == 8 + 3 * 8  # a draw of Original, three of DESA


def test_the_tutorial_runs(small):
    """Every cell, in order. Its certification depths by hand are those of the record, and lists
    cut there have the same top.
    """
    notebook, seen = execute(TUTORIAL, {'"dataset=demo"': small})
    assert seen["by_hand"].depths == (seen["record"]["depth_dense"], seen["record"]["depth_sparse"])
    assert list(seen["by_hand"].documents) == seen["record"]["top"]
    assert seen["same_top"]
    assert seen["sweep"].summary["kappa"].to_list() == [2, 20, 60, 100] * 2
    stored = json.loads(TUTORIAL.read_text(encoding="utf-8"))
    for cell, own in zip(stored["cells"], notebook["cells"], strict=True):
        assert bool(cell.get("outputs")) == bool(own.get("outputs"))  # it is stored as executed


def test_the_tutorial_is_a_notebook():
    """The fields that version 4.5 of the format asks for."""
    stored = json.loads(TUTORIAL.read_text(encoding="utf-8"))
    assert (stored["nbformat"], stored["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in stored["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in stored["cells"]:
        assert {"cell_type", "metadata", "source"} <= cell.keys()
        assert (cell["cell_type"] == "code") == ({"outputs", "execution_count"} <= cell.keys())
    text = TUTORIAL.read_text(encoding="utf-8")
    pages = [REPOSITORY / "docs" / name for name in re.findall(r"\]\((\w+\.md)\)", text)]
    assert pages
    assert all(page.is_file() for page in pages)
