"""What a sweep writes while its cells finish."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from desa_ray.experiment import sweep as sweeps
from desa_ray.experiment.cell_files import write_json
from desa_ray.experiment.sweep import Sweep
from desa_ray.pipeline.stage import Finished, Shard, Stage, Work
from desa_ray.store.artifacts import Store
from tests.desa_fixtures import dataset, summaries


def test_a_summary_that_is_slow_to_write_is_written_less_often(tmp_path, monkeypatch):
    """Writing it after each of many cells would take longer with every cell."""
    written = []

    def slow(path: Path, content: Any) -> None:
        written.append(len(content["cells"]))
        write_json(path, content)

    clock = iter(range(10_000))  # each look at the clock is one second later, so a write takes some
    monkeypatch.setattr(sweeps, "write_json", slow)
    monkeypatch.setattr(sweeps, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(sweeps, "finish_cell", lambda *_: {"cell": 1})
    cells: Any = [SimpleNamespace(targets=[])] * 400
    specs: Any = [SimpleNamespace(folder=tmp_path)] * 400
    sweep = Sweep(specs, cells, None, tmp_path / "summary.json", print, [{"cell": 0}])
    sweep.finish_ready()
    sweep.close()
    assert written[0] == 2
    assert written[-1] == 401
    assert len(written) < 40
    assert len(json.loads((tmp_path / "summary.json").read_text())["cells"]) == 401


@dataclass(frozen=True)
class Nothing(Work):
    """Work that nobody does here."""

    pool = None

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        raise NotImplementedError

    def shards(self, layout: Mapping[str, Any]) -> Sequence[Shard]:
        raise NotImplementedError

    def run(self, engine: Any, stage: Stage, shard: Shard) -> None:
        raise NotImplementedError

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        raise NotImplementedError


def test_a_cell_starts_at_the_first_stage_of_its_own(tmp_path, monkeypatch):
    """A stage that several cells share is work of the first of them; not when the sweep began."""
    store, starts = Store(tmp_path / "store"), []
    shared = Stage(store, "shared", 1, {}, Nothing())
    own = [Stage(store, "own", 1, {"n": n}, Nothing(), {"shared": shared}) for n in range(2)]
    clock = iter([1_000, 2_000, 5_000, *[9_000] * 9])
    monkeypatch.setattr(sweeps, "now_ms", lambda: next(clock))
    monkeypatch.setattr(sweeps, "finish_cell", lambda *given: starts.append(given[4]) or {})
    cells: Any = [SimpleNamespace(targets=[stage]) for stage in own]
    specs: Any = [SimpleNamespace(folder=tmp_path)] * 2
    sweep = Sweep(specs, cells, None, None, print)
    for stage in (shared, *own):
        sweep.on_stage_begun(stage)
    for stage in (shared, own[1], own[0]):
        sweep.on_stage_done(stage, None)
    assert starts == [5_000, 1_000]


@pytest.mark.long
def test_batches_of_a_sweep_have_one_summary(collection, desa, tmp_path):
    desa(
        *("run", "-m", *dataset(collection), "method=bm25", "fusion.kappa=1,2,3"),
        *("cluster=serial", "tracking.enabled=false", "hydra.sweeper.max_batch_size=2"),
    )
    assert [cell["kappa"] for cell in summaries(tmp_path)] == [1, 2, 3]
    (folder,) = tmp_path.glob("outputs/sweeps/*/*")
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"0", "1", "2"}
