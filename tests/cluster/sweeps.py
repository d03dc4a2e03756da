"""A sweep on a running cluster as a process of its own, which tests disturb."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.desa_fixtures import dataset, run_desa, summaries

SWEEP = ["run", "-m", "method=original,desa", "fusion.kappa=20,60", "draws=1"]
FINE = [
    "cluster.shard_documents=4",
    "cluster.encoders=2",
    "cluster.batch_size=1",
    "cluster.shard_queries=3",
]
OFF = "tracking.enabled=false"


def serial_hashes(folder: Path, small_slice: Path) -> dict:
    """What the records of the sweep are, computed without a cluster."""
    where = [*dataset(small_slice), "cluster=serial", OFF]
    done = run_desa(folder, folder / "home", *SWEEP, *where)
    assert done.returncode == 0, done.stderr
    return hashes(folder)


def hashes(folder: Path) -> dict:
    return {
        (cell["method"], cell["kappa"]): cell["artifacts"]["records.parquet"]
        for cell in summaries(folder)
    }


class Sweep:
    """The sweep as a process of its own on the cluster, with its own home."""

    def __init__(self, folder: Path, address: str, small_slice: Path, *more: str):
        self.folder, self.home = folder, folder / "home"
        where = ["cluster=existing", f"cluster.address={address}"]
        self.arguments = [*SWEEP, *dataset(small_slice), *where, *FINE, *more]
        self.store = self.home / "store"

    def start(self) -> "Sweep":
        environment = {**os.environ, "DESA_HOME": str(self.home), "HF_HUB_OFFLINE": "1"}
        log = (self.folder / "log").open("a")
        command = [sys.executable, "-m", "desa_ray.jobs", *self.arguments]
        self.process = subprocess.Popen(
            command, cwd=self.folder, env=environment, stdout=log, stderr=log
        )
        return self

    def await_shards(self, count: int = 3) -> "Sweep":
        deadline = time.monotonic() + 600
        while len(list((self.store / "vectors").glob("*/part-*.json"))) < count:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return self

    def end(self, code: int = 0) -> "Sweep":
        assert self.process.wait(900) == code, self.log
        assert "Traceback" not in self.log
        return self

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()
