"""Children of every kind end when the process that started them is killed with SIGKILL."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from desa_ray.proc import members
from tests.desa_fixtures import dataset

REPOSITORY = Path(__file__).resolve().parents[1]
LIMIT_S = 90.0  # on a machine that is busy with other things

COMMON = """
import subprocess, sys, time
from dataclasses import replace
from functools import partial
from pathlib import Path
from desa_ray.parents import guard_group
from desa_ray.pipeline.serial import SerialBackend
from desa_ray.pipeline.stage import Stage, Task
from desa_ray.store.artifacts import Store
from tests.pipeline.test_processes import POOL, Mishap, supervisor_of_processes

def tasks(root, pool):
    stage = Stage(Store(root), "stage", 1, {"name": "stage"}, Mishap("hangs", times=99, pool=pool))
    return [Task(stage, stage.work.shards({"bounds": [0, 1, 2]})[1])]
"""
DRIVERS = {
    # in the middle of a shard, which it would go on with for ten minutes
    "serial child at work": (
        """
root, pool = sys.argv[1], replace(POOL, isolated=True)
SerialBackend().compute(pool, tasks(root, pool), print, print)
"""
    ),
    "worker process at work": (
        """
root = sys.argv[1]
supervisor_of_processes().compute(POOL, tasks(root, POOL), print, print)
"""
    ),
    "JVM that waits": (
        """
from desa_ray.engines.lucene import Lucene
from desa_ray.pipeline.child import Child
child = Child(replace(POOL, factory=partial(Lucene, None, "64m"), isolated=True))
time.sleep(600)
"""
    ),
    # a program that knows nothing of us, and its own child that ignores polite signals
    "guarded group": (
        """
nest = "import subprocess, sys, time; "
nest += "subprocess.Popen([sys.executable, '-c', sys.argv[1]]); time.sleep(600)"
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
group = subprocess.Popen([sys.executable, "-c", nest, stubborn], start_new_session=True).pid
guard_group(group, group)
time.sleep(600)
"""
    ),
}
AT_WORK: dict[str, Callable[[Path, list[psutil.Process]], bool]] = {
    "serial child at work": lambda root, found: (
        (root / "stage-1.tries").exists() and len(found) == 1
    ),
    "worker process at work": lambda root, found: (
        (root / "stage-1.tries").exists() and len(found) >= 1
    ),
    "JVM that waits": lambda root, found: any(process.num_threads() > 10 for process in found),
    "guarded group": lambda root, found: len(found) == 2 and guards(found[0].pid),
}


def guards(group: int) -> bool:
    """Whether a guard of this group is at its post, away from the process that started it."""
    for process in psutil.process_iter(["cmdline", "ppid"]):
        command = process.info["cmdline"] or []
        if "desa_ray.parents" in command and str(group) in command and process.info["ppid"] == 1:
            return True
    return False


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def kill_and_see_all_end(
    driver: subprocess.Popen, at_work: Callable[[list[psutil.Process]], bool]
) -> None:
    """Wait until the driver has children at work, kill it, and see every descendant end
    by itself.
    """
    found: list[psutil.Process] = []

    def begun() -> bool:
        assert driver.poll() is None, "the driver ended by itself"
        found[:] = psutil.Process(driver.pid).children(recursive=True)
        return at_work(found)

    try:
        wait_for(begun)
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
        assert psutil.wait_procs(found, timeout=LIMIT_S)[1] == []
    finally:
        driver.kill()
        driver.wait()
        for process in found:
            if process.is_running():
                process.kill()


@pytest.mark.long
@pytest.mark.parametrize("kind", DRIVERS)
def test_children_end_with_a_killed_driver(kind, tmp_path):
    command = [sys.executable, "-c", COMMON + DRIVERS[kind], str(tmp_path)]
    driver = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    kill_and_see_all_end(driver, lambda found: AT_WORK[kind](tmp_path, found))


@pytest.mark.long
def test_a_killed_serial_run_leaves_no_process(collection, tmp_path):
    """`desa run cluster=serial` from the first stage that needs Java on."""
    command = [sys.executable, "-m", "desa_ray.jobs", "run", *dataset(collection), "cluster=serial"]
    environment = {**os.environ, "DESA_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    driver = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    kill_and_see_all_end(driver, lambda found: any(process.num_threads() > 10 for process in found))


def test_an_ended_group_takes_its_guard_with_it(tmp_path):
    """A process that ends in order leaves nothing behind either."""
    note = tmp_path / "note"
    note.write_text("")
    program = (
        "import os; from desa_ray.parents import guard_group; from desa_ray.proc import process;"
        " from pathlib import Path; import sys; own = process(os.getpid()); guard_group(own.pid,"
        " own.pid, Path(sys.argv[1])); print(own.pid)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(note)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )
    group = int(done.stdout)
    wait_for(lambda: not note.exists() and not guards(group))
    assert members(group, group) == []
