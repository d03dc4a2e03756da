"""A local Ray that is slow, hangs or dies while it starts; a temporary folder that is too long for
its sockets.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import ray

from desa_ray.cluster import local
from desa_ray.cluster import ray_folder as folders
from desa_ray.cluster.ray_folder import longest_base, ray_folder
from desa_ray.cluster.ray_logs import how, last_words
from desa_ray.cluster.session import session
from desa_ray.config import ClusterConfig
from desa_ray.errors import DesaError
from tests.desa_fixtures import dataset, refused, summaries
from tests.infra.programs import REPOSITORY

TOKEN = "0123456789abcdef" * 4
QUICK = ["draws=1", "cluster.cpus=1", "cluster.encoders=1"]


@pytest.fixture
def long_folder(tmp_path) -> Path:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    return folder


def _desa(kind: str, limits: tuple[int, int], folder: Path, *arguments: str, **variables: str):
    """The command over a broken raylet, and the seconds that it took; nothing of it is left."""
    environment = {
        **os.environ,
        "DESA_HOME": str(folder / "home"),
        "PYTHONPATH": str(REPOSITORY),
        **variables,
    }
    command = [
        sys.executable,
        "-m",
        "tests.cluster.broken_ray",
        kind,
        *map(str, limits),
        *arguments,
    ]
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(timeout=400)
    left = [
        own
        for own in psutil.process_iter(["cmdline"])
        if f"_{process.pid}/" in " ".join(own.info["cmdline"] or [])
    ]
    assert left == []
    return process.returncode, out, err, time.monotonic() - started


@pytest.mark.long
@pytest.mark.busy
def test_a_raylet_that_hangs_is_tried_twice_then_told(collection, tmp_path):
    """A raylet that hangs is tried twice then told in one line."""
    code, _, err, seconds = _desa("hangs", (1, 4), tmp_path, "run", *dataset(collection), *QUICK)
    (line,) = refused(code, err, ["cluster=local", "raylet", "1 s and 4 s", "cluster=serial"])
    assert seconds < 200, line  # it ends; once it hung for five minutes


@pytest.mark.long
def test_a_raylet_that_dies_is_told_at_once_with_its_own_reason(collection, tmp_path):
    code, _, err, seconds = _desa("ends", (200, 300), tmp_path, "run", *dataset(collection), *QUICK)
    refused(
        code, err, ["raylet was killed by SIGABRT", "No such file or directory", "cluster=serial"]
    )
    assert seconds < 200  # neither limit was waited for


@pytest.mark.busy
@pytest.mark.slow
def test_a_raylet_that_is_up_at_the_second_try_serves(tmp_path, long_folder):
    arguments = ["doctor", "--json", "--fail-gib", "0"]
    code, out, err, _ = _desa("slow", (1, 300), tmp_path, *arguments, TMPDIR=str(long_folder))
    assert code in (0, 1), err
    (ray,) = [finding for finding in json.loads(out)["findings"] if finding["name"] == "ray"]
    assert (ray["status"], ray["what"].startswith("1 node")) == ("ok", True), ray
    assert list(long_folder.glob("desa-*")) == []


@pytest.mark.slow
def test_the_token_stands_in_nothing_that_a_run_leaves(collection, tmp_path):
    code, out, err, _ = _desa(
        "slow", (1, 300), tmp_path, "run", *dataset(collection), *QUICK, TOKEN=TOKEN
    )
    assert code == 0, err
    assert summaries(tmp_path)[0]["artifacts"]["records.parquet"]
    assert TOKEN not in out + err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "manifest.json" for path in files)
    assert any(path.name == "mlflow.db" for path in files)
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("name", ["TMPDIR", "RAY_TMPDIR"])
def test_a_temporary_folder_too_long_for_sockets_is_avoided(name, long_folder, monkeypatch):
    monkeypatch.setenv(name, str(long_folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with ray_folder() as folder:
        socket = (
            folder / f"ray/session_2026-11-28_19-11-21_836665_{os.getpid()}/sockets/plasma_store"
        )
        assert len(os.fsencode(socket)) <= 107
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()
    assert list(long_folder.iterdir()) == []


def test_the_folder_lies_where_the_user_says_if_it_is_short(tmp_path_factory, monkeypatch):
    """The folder lies where the user says if it is short enough."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setenv("RAY_TMPDIR", short)
        with ray_folder() as folder:
            assert folder.parent == Path(short)
        longest = Path(short, "y" * (longest_base() - len(short) - 1))
        longest.mkdir()
        monkeypatch.setenv("RAY_TMPDIR", str(longest))
        with ray_folder() as folder:
            assert folder.parent == longest
            assert (
                len(
                    f"{folder}/ray/session_2026-11-28_19-11-21_836665_{os.getpid()}/sockets/plasma_store"
                )
                == 107
            )


def test_where_every_folder_is_too_long_or_absent_the_error(long_folder, monkeypatch):
    """Where every folder is too long or absent the error says which and how long one may be."""
    monkeypatch.setenv("RAY_TMPDIR", "/proc/nowhere")
    monkeypatch.setattr(tempfile, "tempdir", str(long_folder))
    monkeypatch.setattr(folders, "ELSEWHERE", ())
    with pytest.raises(DesaError) as caught, ray_folder():
        pass
    assert caught.value.where == "RAY_TMPDIR"
    for word in ("/proc/nowhere", f"{long_folder} is too long"):
        assert word in caught.value.what
    assert f"{longest_base()} bytes" in caught.value.hint
    assert "cluster=serial" in caught.value.hint


DRIVER = """
import json, sys, time
import psutil, ray
from desa_ray.cluster.session import session
from desa_ray.config import ClusterConfig
with session(ClusterConfig(cpus=1)):
    class Busy:
        def ready(self): ...
        def work(self): time.sleep(600)
    actor = ray.remote(Busy).remote()
    ray.get(actor.ready.remote())
    task = actor.work.remote()
    folder = ray._private.worker._global_node.temp_dir
    below = [own.pid for own in psutil.Process().children(recursive=True)]
    print(json.dumps([folder, below]), flush=True)
    time.sleep(600)
"""


@pytest.mark.long
@pytest.mark.busy
def test_the_cluster_of_a_killed_driver_ends():
    """The cluster of a killed driver ends with it and its folder at the next start."""
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    folder, numbers = json.loads(driver.stdout.readline())
    family = [psutil.Process(number) for number in numbers]
    assert {"raylet", "gcs_server"} < {own.name() for own in family}
    driver.kill()
    driver.communicate()
    assert psutil.wait_procs(family, timeout=120)[1] == []
    parent = Path(folder).parent
    assert parent.exists()
    with ray_folder():
        assert not parent.exists()


@pytest.mark.parametrize("shared", ["/nowhere/shm", "/proc"])  # absent, without room
def test_without_shared_memory_objects_lie_in_the_folder(shared, monkeypatch):
    monkeypatch.setattr(local, "SHARED_MEMORY", Path(shared))
    with session(ClusterConfig(cpus=1)):
        (raylet,) = [child for child in psutil.Process().children() if child.name() == "raylet"]
        (place,) = [word for word in raylet.cmdline() if word.startswith("--plasma_directory=")]
        assert "/desa-ray-" in place
        data = b"x" * 1_000_000
        assert ray.get(ray.put(data)) == data


def test_the_worst_and_last_entry_of_a_log_are_a_process_last(tmp_path):
    """The worst and last entry of a log are a process last words."""
    log = tmp_path / "raylet.out"
    assert last_words(tmp_path) == ""
    log.write_text(
        "[2026-11-28 19:30:30,597 I 4597 4597] (raylet) accessor.cc:475: all is well\n[2026-11-28"
        " 19:30:30,597 E 4597 4597] (raylet) a.cc:1: first error\n[2026-11-28 19:30:31,000 E 4597"
        " 4597] (raylet) a.cc:2: second error\n[2026-11-28 19:30:31,000 E 4597 4597] (raylet)"
        " logging.cc:125: Stack trace: \n raylet(+0xff770a)\n[2026-11-28 19:30:31,001 E 4597 4597]"
        " (raylet) logging.cc:474:     @     0x7f04f6c66e50  (unknown)\n[state-dump] noise\n"
    )
    assert last_words(tmp_path) == "second error"
    fatal = (
        "An unexpected system state has occurred. You have likely found a bug and we'll work with"
        " you to fix it. "
    )
    with log.open("a") as stream:
        stream.write(
            f"[2026-11-28 19:30:32,000 C 4597 4597] (raylet) a.cc:3: {fatal}Check failed: x =="
            " y\n*** stack\n"
        )
    assert last_words(tmp_path) == "Check failed: x == y"
    (tmp_path / "gcs_server.err").write_text("cannot open shared object\n\n")
    assert last_words(tmp_path, "gcs_server") == "cannot open shared object"
    assert [how(-9), how(-200), how(3)] == [
        "was killed by SIGKILL",
        "was killed by signal 200",
        "exited with status 3",
    ]
