"""Processes die: an actor in the middle of encoding, the driver; the result is that of an
undisturbed run.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.desa_fixtures import summaries

SMALL = [
    "cluster.shard_documents=8",
    "cluster.encoder_cpus=1",
    "cluster.encoders=2",
    "cluster.cpus=2",
    "draws=1",
]


def _dataset(folder: Path) -> list[str]:
    return [
        "dataset=beir_folder",
        f"dataset.path={folder}",
        "dataset.name=slice",
        "tracking.enabled=false",
    ]


def _start(folder: Path, home: Path, *arguments: str) -> subprocess.Popen:
    environment = {**os.environ, "DESA_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "desa_ray.jobs", "run", *arguments]
    log = (folder / "log").open("w")
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)


def _await_shards(
    home: Path, count: int, process: subprocess.Popen, timeout_s: float = 120
) -> None:
    """Until `count` vector shards are stored."""
    deadline = time.monotonic() + timeout_s
    while len(list((home / "store" / "vectors").glob("*/part-*.json"))) < count:
        assert process.poll() is None, "the run ended before its process could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _records(folder: Path) -> str:
    return summaries(folder)[0]["artifacts"]["records.parquet"]


@pytest.fixture(scope="module")
def undisturbed(small_slice, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("undisturbed")
    process = _start(folder, folder / "home", *_dataset(small_slice), "draws=1", "cluster=serial")
    assert process.wait(300) == 0, (folder / "log").read_text()
    return _records(folder)


@pytest.mark.slow
def test_killing_an_encoder_actor_changes_nothing(small_slice, undisturbed, tmp_path):
    process = _start(tmp_path, tmp_path / "home", *_dataset(small_slice), *SMALL)
    _await_shards(tmp_path / "home", 3, process)
    workers = [
        p
        for p in psutil.Process(process.pid).children(recursive=True)
        if p.name().startswith("ray::_Actor")
    ]
    assert workers
    os.kill(workers[0].pid, signal.SIGKILL)
    assert process.wait(300) == 0, (tmp_path / "log").read_text()
    assert _records(tmp_path) == undisturbed


@pytest.mark.slow
def test_killing_the_raylet_changes_nothing(small_slice, undisturbed, tmp_path):
    process = _start(tmp_path, tmp_path / "home", *_dataset(small_slice), *SMALL)
    _await_shards(tmp_path / "home", 3, process)
    (raylet,) = [
        child for child in psutil.Process(process.pid).children() if child.name() == "raylet"
    ]
    raylet.kill()
    assert process.wait(300) == 0, (tmp_path / "log").read_text()
    assert _records(tmp_path) == undisturbed
    assert "raylet was killed by SIGKILL; starting it again" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_killing_the_driver_loses_only_shards_in_flight(small_slice, undisturbed, tmp_path):
    home = tmp_path / "home"
    process = _start(tmp_path, home, *_dataset(small_slice), *SMALL)
    _await_shards(home, 8, process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(30)
    time.sleep(2)  # its Ray processes follow it
    stored = {
        path: path.stat().st_mtime_ns for path in (home / "store" / "vectors").glob("*/part-*")
    }
    process = _start(tmp_path, home, *_dataset(small_slice), *SMALL)
    assert process.wait(300) == 0, (tmp_path / "log").read_text()
    assert _records(tmp_path) == undisturbed
    # What was stored was not written again, and the manifest counts the shards that were missing.
    assert all(
        path.stat().st_mtime_ns == time_
        for path, time_ in stored.items()
        if not path.name.startswith(".")
    )
    (manifest,) = (home / "store" / "vectors").glob("*/manifest.json")
    document = json.loads(manifest.read_text())
    shards = len(list(manifest.parent.glob("part-*.json")))
    computed = _find(document, "shards_computed")
    assert 0 < computed < shards


def _find(value: object, name: str) -> int:
    """The first value of that name anywhere in a nested document."""
    if isinstance(value, dict):
        if name in value:
            return value[name]
        return next(
            (found for inner in value.values() if (found := _find(inner, name)) is not None), None
        )
    return None


@pytest.mark.long
def test_interrupt_ends_cleanly_and_a_rerun_goes_on(small_slice, undisturbed, tmp_path):
    home = tmp_path / "home"
    process = _start(tmp_path, home, *_dataset(small_slice), *SMALL)
    _await_shards(home, 2, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert "continues from there" in (tmp_path / "log").read_text()
    assert "Traceback" not in (tmp_path / "log").read_text()
    process = _start(tmp_path, home, *_dataset(small_slice), *SMALL)
    assert process.wait(300) == 0, (tmp_path / "log").read_text()
    assert _records(tmp_path) == undisturbed
