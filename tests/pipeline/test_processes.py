"""Worker processes of the driver's own: each shard once whatever dies, errors by name, no process
left behind.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from desa_ray.config import ClusterConfig
from desa_ray.errors import Crashed, DesaError, PoisonShard
from desa_ray.pipeline.backend import Stopped
from desa_ray.pipeline.processes import MachinePlacement, ProcessTransport, suits
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Task, Work, bounds, shards_of
from desa_ray.pipeline.supervisor import Supervisor
from desa_ray.store.artifacts import Store

POOL = Pool("light", dict, size=2, light=True)
CONFIG = ClusterConfig(kind="local", cpus=2)


class Panic(BaseException):
    """As Rust libraries raise it: no Exception."""


@dataclass(frozen=True)
class Mishap(Work):
    """Shards of one row; shard 1 meets a mishap, for the first `times` times that it is tried."""

    kind: str = "none"
    times: int = 1
    pool: Pool | None = POOL

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(5, 1)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.bin")

    def run(self, engine: Any, stage: Stage, shard: Shard) -> None:
        tries = Path(stage.store.files.root) / f"{stage.params['name']}-{shard.number}.tries"
        with tries.open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        if shard.number == 1 and len(tries.read_text().splitlines()) <= self.times:
            match self.kind:
                case "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "hangs":
                    time.sleep(600)
                case "refused":
                    raise DesaError("a broken row", where="row 1", hint="fix it")
                case "bug":
                    raise KeyError("absent")
                case "panic":
                    raise Panic("index out of bounds")
        stage.artifact.write_part(shard.parts[0], os.urandom(8), rows=1)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return Finished("0" * 64)


def no_engine() -> None:
    raise DesaError("no engine", where="the pool")


Run = Callable[..., list[int]]


def supervisor_of_processes(limits: ClusterConfig = CONFIG) -> Supervisor:
    return Supervisor(ProcessTransport(), MachinePlacement(CONFIG), limits, max_parallel_stages=2)


def workers() -> list[psutil.Process]:
    """The worker processes of this process that live."""
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any("desa_ray.pipeline.child" in word for word in child.cmdline()):
                found.append(child)
    return found


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "store").mkdir()
    return Store(tmp_path / "store")


@pytest.fixture
def supervisor(request: pytest.FixtureRequest) -> Iterator[Supervisor]:
    """With the usual time limit, or a short one (longer than a busy machine takes for an import) as
    parameter.
    """
    limit_s = getattr(request, "param", CONFIG.shard_timeout_s)
    own = supervisor_of_processes(replace(CONFIG, shard_timeout_s=limit_s))
    yield own
    own.close()


@pytest.fixture
def run(supervisor: Supervisor, store: Store) -> Run:
    """Computes the shards of a stage; returns the numbers of those done, in order of their ends."""

    def computed(name: str, work: Mishap) -> list[int]:
        stage = Stage(store, name, 1, {"name": name}, work)
        done: list[int] = []
        started: list[int] = []
        tasks = [Task(stage, shard) for shard in work.shards(work.layout(stage))]
        pool = POOL if work.pool is None else work.pool
        used = supervisor.compute(
            pool, tasks, lambda: started.append(1), lambda task: done.append(task.shard.number)
        )
        assert started == [1]
        assert 1 <= used <= 2
        assert all(stage.artifact.has_part(task.shard.parts[0]) for task in tasks)
        return done

    return computed


def tries(store: Store, name: str) -> dict[int, list[int]]:
    """Shard number -> the processes that tried it."""
    found = Path(store.files.root).glob(f"{name}-*.tries")
    return {
        int(path.stem.split("-")[-1]): [*map(int, path.read_text().splitlines())] for path in found
    }


def test_each_shard_is_computed_once_by_processes_that_stay(store, run):
    assert sorted(run("first", Mishap())) == sorted(run("second", Mishap())) == [0, 1, 2, 3, 4]
    by_shard = [*tries(store, "first").values(), *tries(store, "second").values()]
    assert [len(own) for own in by_shard] == [1] * 10
    assert {own[0] for own in by_shard} <= {worker.pid for worker in workers()}
    assert os.getpid() not in {own[0] for own in by_shard}


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "supervisor"), [("killed", 60), ("hangs", 8)], indirect=["supervisor"]
)
def test_a_shard_whose_process_dies_or_hangs_is_handed_out_again(store, run, kind):
    assert sorted(run("stage", Mishap(kind))) == [0, 1, 2, 3, 4]
    counts = {shard: len(own) for shard, own in tries(store, "stage").items()}
    assert counts == {0: 1, 1: 2, 2: 1, 3: 1, 4: 1}


@pytest.mark.long
def test_a_shard_that_always_kills_its_process_stops_the_run(store, run):
    """A shard that always kills its process stops the run by name."""
    with pytest.raises(
        PoisonShard, match=r"stage .* shard 1 \(rows 1-1\): failed 3 times; .* exit status -9"
    ):
        run("stage", Mishap("killed", times=99))
    assert len(tries(store, "stage")[1]) == CONFIG.max_failures == 3
    assert len(run("next", Mishap())) == 5


def test_an_error_of_a_shard_is_raised_as_it_is_and_a_bug(store, run, tmp_path, monkeypatch):
    """An error of a shard is raised as it is and a bug with its shard."""
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    with pytest.raises(DesaError, match=r"row 1: a broken row \(fix it\)") as refused:
        run("stage", Mishap("refused", times=99))
    assert not isinstance(refused.value, PoisonShard)
    for kind, said in (("bug", "KeyError: 'absent'"), ("panic", "Panic: index out of bounds")):
        with pytest.raises(
            Crashed, match=rf"shard 1 .*: unexpected {said} \(crash report: (\S+);"
        ) as crashed:
            run(kind, Mishap(kind, times=99))
        report = Path(crashed.value.hint.split()[2].rstrip(";")).read_text()
        assert "verb: worker of pool light" in report
        assert "in run" in report
        assert crashed.value.exit_code == 70
    assert len(run("next", Mishap())) == 5


def test_an_engine_that_cannot_be_loaded_says_why(run):
    with pytest.raises(DesaError, match="the pool: no engine"):
        run("stage", Mishap(pool=replace(POOL, factory=no_engine)))


def stop_once_tried(supervisor: Supervisor, store: Store) -> None:
    while 1 not in tries(store, "stage"):
        time.sleep(0.02)
    supervisor.stop()


def test_a_stop_ends_the_wait_in_the_middle_of_a_shard(supervisor, store, run):
    threading.Thread(target=stop_once_tried, args=(supervisor, store)).start()
    with pytest.raises(Stopped):
        run("stage", Mishap("hangs"))
    assert len(tries(store, "stage")[1]) == 1
    supervisor.close()
    assert workers() == []


def test_stages_of_several_threads_are_computed(supervisor, store, run):
    """Stages of several threads are computed one after the other."""
    ends: list[str] = []

    def compute(name: str) -> None:
        run(name, Mishap())
        ends.append(name)

    names = [f"stage{number}" for number in range(4)]
    threads = [threading.Thread(target=compute, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert sorted(ends) == names
    assert all(len(own) == 1 for name in names for own in tries(store, name).values())


def test_an_error_of_a_callback_is_the_stages_own(supervisor, store):
    stage = Stage(store, "stage", 1, {"name": "stage"}, Mishap())
    tasks = [Task(stage, shard) for shard in stage.work.shards(stage.work.layout(stage))]

    def fails(task: Task) -> None:
        raise ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"):
        supervisor.compute(POOL, tasks, lambda: None, fails)


def test_processes_end_when_their_driver_is_killed(tmp_path):
    program = """
import time
from tests.pipeline.test_processes import POOL, supervisor_of_processes, workers
supervisor = supervisor_of_processes()
supervisor.prestart(POOL)
while len(workers()) < 2:
    time.sleep(0.05)
print(*(worker.pid for worker in workers()), flush=True)
time.sleep(600)
"""
    driver = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    with driver.stdout:
        processes = [psutil.Process(int(pid)) for pid in driver.stdout.readline().split()]
    assert len(processes) == 2
    driver.kill()
    driver.wait()
    assert psutil.wait_procs(processes, timeout=60)[1] == []


@pytest.mark.parametrize(
    ("kind", "pools", "expected"),
    [
        ("local", [POOL, None, POOL], True),
        ("local", [None], False),
        ("local", [POOL, Pool("model", dict)], False),
        ("local", [POOL, replace(POOL, name="other")], False),
        ("local", [replace(POOL, gpus=0.5)], False),
        ("existing", [POOL], False),
        ("serial", [POOL], False),
    ],
)
def test_processes_suit_a_local_run_of_one_kind_of_light_workers(kind, pools, expected, tmp_path):
    stages = [
        Stage(Store(tmp_path), f"stage{number}", 1, {}, Mishap(pool=pool))
        for number, pool in enumerate(pools)
    ]
    assert suits(replace(CONFIG, kind=kind), stages) is expected
