"""The Slurm script on a real Slurm of two nodes: what it computes, and what it leaves behind."""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.desa_fixtures import dataset, run_desa, summaries
from tests.infra.programs import REPOSITORY
from tests.infra.slurm_nodes import Slurm, slurm_cluster

pytestmark = pytest.mark.timeout(900)
SCRIPT = str(REPOSITORY / "infra" / "slurm" / "desa.sbatch")


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    folder = Path(tempfile.mkdtemp(prefix="ds-", dir="/tmp"))  # sockets need a short path
    try:
        with slurm_cluster(folder) as found:
            yield found
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def sweep(small_slice) -> list[str]:
    common = [*dataset(small_slice), "tracking.enabled=false", "draws=1"]
    return [*common, "-m", "method=original,desa", "cluster.shard_documents=20"]


@pytest.fixture(scope="module")
def serial(sweep, tmp_path_factory) -> list[str]:
    """The hashes of the sweep's records, computed without a cluster."""
    folder = tmp_path_factory.mktemp("serial")
    done = run_desa(folder, folder / "home", "run", *sweep, "cluster=serial")
    assert done.returncode == 0, done.stdout + done.stderr
    return records(folder)


def records(folder: Path) -> list[str]:
    return [cell["artifacts"]["records.parquet"] for cell in summaries(folder)]


def submit(slurm: Slurm, folder: Path, home: Path, *overrides: str) -> str:
    """The number of a job over both nodes, whose output lies in the folder."""
    folder.mkdir()
    slurm.environment |= {
        "DESA_HOME": str(home),
        "DESA_VENV": sys.prefix,
        "DESA_POLL_S": "1",
        "RAY_TMPDIR": str(slurm.folder),
    }
    asked = ["--nodes=2", "--cpus-per-task=1", "--gpus-per-node=0", "--mem=2G", "--time=10"]
    asked += ["--open-mode=append", f"--output={folder}/log"]
    return slurm.command("sbatch", "--parsable", *asked, SCRIPT, *overrides, cwd=folder)


def until(holds: Callable[[], bool], what: Callable[[], str], timeout_s: float = 240) -> None:
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, what()
        time.sleep(0.3)


def left(slurm: Slurm) -> list[str]:
    """Folders of Ray's in the temporary folder, and processes that name it."""
    found = [str(path) for path in slurm.folder.glob("desa-*")]
    mark = f"{slurm.folder}/desa-"
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or ())
        if mark in words:
            found.append(words)
    return found


@pytest.mark.long
def test_a_sweep_over_two_nodes_gives_serial_records(slurm, sweep, serial, tmp_path):
    job = submit(slurm, tmp_path / "job", tmp_path / "home", *sweep)
    assert slurm.wait(job, timeout_s=600) == "COMPLETED 0:0", (tmp_path / "job/log").read_text()
    assert records(tmp_path / "job") == serial
    assert left(slurm) == []


@pytest.mark.slow
def test_two_jobs_at_once_share_nodes_and_store(slurm, sweep, serial, tmp_path):
    jobs = [submit(slurm, tmp_path / name, tmp_path / "home", *sweep) for name in "ab"]
    for name, job in zip("ab", jobs, strict=True):
        log = tmp_path / name / "log"
        assert slurm.wait(job, timeout_s=600) == "COMPLETED 0:0", log.read_text()
        assert records(tmp_path / name) == serial
    assert left(slurm) == []


@pytest.mark.slow
def test_a_cancelled_job_leaves_nothing(slurm, sweep, tmp_path):
    job = submit(slurm, tmp_path / "job", tmp_path / "home", *sweep)
    log = tmp_path / "job" / "log"
    until(lambda: log.exists() and "to compute" in log.read_text(), log.read_text)
    slurm.command("scancel", job)
    assert slurm.wait(job, timeout_s=100).split()[0] == "CANCELLED"
    until(lambda: left(slurm) == [], lambda: str(left(slurm)), 60)


@pytest.mark.slow
def test_a_job_that_lost_a_node_goes_on_when_it_is_back(slurm, sweep, serial, tmp_path):
    """Slurm requeues the job; what was finished is not computed again."""
    job = submit(slurm, tmp_path / "job", tmp_path / "home", *sweep)
    log, store = tmp_path / "job" / "log", tmp_path / "home" / "store"
    until(lambda: any(store.glob("*/*/manifest.json")), log.read_text)
    finished = {path: path.stat().st_mtime_ns for path in store.glob("*/*/manifest.json")}
    slurm.lose("n2")
    assert slurm.wait(job, "PENDING", timeout_s=120).split()[0] == "PENDING"
    slurm.start("n2")
    slurm.command("scontrol", "update", f"jobid={job}", "starttime=now")
    until(lambda: slurm.state(job).split()[0] != "PENDING", lambda: slurm.state(job))
    assert slurm.wait(job, timeout_s=600) == "COMPLETED 0:0", log.read_text()
    assert records(tmp_path / "job") == serial
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
