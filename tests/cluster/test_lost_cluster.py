"""The local cluster dies below a run: it is started again and the run goes on, or one line says why
not, at once.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from desa_ray.cluster.placement import held
from desa_ray.config import ClusterConfig
from desa_ray.errors import DesaError
from desa_ray.experiment.lazy_backend import LazyBackend
from desa_ray.pipeline.backend import LostCluster
from desa_ray.pipeline.execute import Quiet
from desa_ray.pipeline.processes import MachinePlacement, ProcessTransport
from desa_ray.pipeline.scheduler import run_graph
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Task, Work, bounds, shards_of
from desa_ray.pipeline.supervisor import Supervisor
from desa_ray.pipeline.transport import Event
from desa_ray.store.artifacts import Store

pytestmark = pytest.mark.long

POOL = Pool("made up", dict, size=1)


@dataclass(frozen=True)
class Slow(Work):
    """Shards of one row that hold their number; each notes that it was tried, and by whom."""

    shards_in_all: int = 4
    seconds: float = 0.5
    ends: str = ""  # a program of the cluster that shard 1 ends, each time it is tried
    pool: Pool | None = POOL

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(self.shards_in_all, 1)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.bin")

    def run(self, engine: Any, stage: Stage, shard: Shard) -> None:
        with Path(stage.store.files.root, f"tried-{stage.params['name']}-{shard.number}").open(
            "a"
        ) as tried:
            tried.write(f"{os.getpid()}\n")
        if self.ends and shard.number == 1:
            raylet = psutil.Process().parent()
            assert raylet is not None
            driver = raylet.parent()
            assert driver is not None
            next(child for child in driver.children() if child.name() == self.ends).kill()
            time.sleep(60)
        time.sleep(self.seconds)
        stage.artifact.write_part(shard.parts[0], bytes([shard.number]), rows=1)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return Finished("0" * 64)


@pytest.fixture
def store(tmp_path) -> Store:
    (tmp_path / "store").mkdir()
    return Store(tmp_path / "store")


@pytest.fixture
def notes() -> list[str]:
    """What the user was told."""
    return []


@pytest.fixture
def backend(store, notes) -> Iterator[LazyBackend]:
    config: Any = SimpleNamespace(cluster=ClusterConfig(cpus=1, max_failures=2))
    own = LazyBackend(config, store, ExitStack(), notes.append)
    yield own
    own.close()


def _stages(store: Store, *names: str, **work: Any) -> list[Stage]:
    return [Stage(store, name, 1, {"name": name}, Slow(**work)) for name in names]


def _tries(store: Store, name: str) -> list[int]:
    return [
        len(path.read_text().splitlines())
        for path in sorted(Path(store.files.root).glob(f"tried-{name}-*"))
    ]


@dataclass
class Killer(Quiet):
    """Kills a program of the cluster when so many shards are done."""

    program: str
    after: int = 2

    def advance(self, stage: Stage) -> None:
        self.after -= 1
        if self.after == 0:
            next(
                child for child in psutil.Process().children() if child.name() == self.program
            ).kill()


# Ray's own limit for a lost GCS, a minute, once took the driver with it on a busy machine; with one
# second it does so at once, unless the product sets its own.
@pytest.mark.parametrize("program", ["raylet", pytest.param("gcs_server", marks=pytest.mark.slow)])
def test_a_run_goes_on_in_a_new_cluster_with_the_shards(
    program, backend, store, notes, monkeypatch
):
    """A run goes on in a new cluster with the shards that are left."""
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "1")
    first, second = _stages(store, "first", "second")
    errors: list[DesaError | None] = []
    run_graph([first, second], backend, Killer(program), lambda stage, error: errors.append(error))
    assert errors == [None, None]
    for stage in (first, second):
        artifact = stage.artifact
        assert [artifact.read_part(f"part-{n:05d}.bin").read_bytes() for n in range(4)] == [
            bytes([n]) for n in range(4)
        ]
    tried = [*_tries(store, "first"), *_tries(store, "second")]
    assert sum(count > 1 for count in tried) <= 2  # what was stored was not computed again
    (told,) = notes
    assert f"{program} was killed by SIGKILL" in told
    assert "starting it again" in told


@pytest.mark.slow
def test_a_cluster_that_dies_again_is_told_in_one_line(backend, store):
    """A cluster that dies again is told in one line for every stage that is left."""
    todo = _stages(store, "first", ends="raylet") + _stages(store, "second")
    started, errors = time.monotonic(), []
    run_graph(todo, backend, Quiet(), lambda stage, error: errors.append((stage.name, error)))
    assert time.monotonic() - started < 300  # it once waited for ten minutes
    lost = dict(errors)["first"]
    assert lost is not None
    assert (lost.where, "raylet was killed by SIGKILL" in lost.what, "2 times" in lost.what) == (
        "cluster=local",
        True,
        True,
    )
    assert "cluster=serial" in lost.hint
    assert max(_tries(store, "first")) == 2


def test_a_cluster_without_a_living_node_says_so():
    with pytest.raises(DesaError) as caught:
        held(POOL, {})
    assert "no node" in caught.value.what
    assert "add nodes" not in caught.value.hint


class Dying(ProcessTransport):
    """Dies while it is asked, which then fails in a way of its own."""

    dead = False

    def poll(self, timeout_s: float) -> list[Event]:
        self.dead = True
        raise RuntimeError("no such socket")

    def check(self) -> None:
        if self.dead:
            raise LostCluster("dead", where="the cluster")


def test_whatever_a_call_to_a_dead_cluster_raises_is_the_loss(store):
    """Whatever a call to a dead cluster raises is the loss of the cluster."""
    config = ClusterConfig(cpus=1)
    supervisor = Supervisor(Dying(), MachinePlacement(config), config, max_parallel_stages=1)
    (stage,) = _stages(store, "first")
    tasks = [Task(stage, shard) for shard in stage.work.shards(stage.work.layout(stage))]
    with pytest.raises(LostCluster, match="the cluster: dead"):
        supervisor.compute(POOL, tasks, lambda: None, lambda _: None)
    supervisor.close()
