"""What killed runs leave is swept when the next one starts, and a removed working folder is one
line.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from desa_ray.errors import DesaError
from desa_ray.jobs.__main__ import VERBS
from desa_ray.jobs.cli.arrival import VARIABLE
from desa_ray.jobs.cli.claims import IN_USE, claim, release, sweep_claims
from tests.desa_fixtures import dataset

REPOSITORY = Path(__file__).resolve().parents[2]
WRITER = """
import sys, time
from pathlib import Path
from desa_ray.errors import DesaError
from desa_ray.jobs.cli.arrival import VARIABLE
from desa_ray.jobs.cli.claims import claim
claim(Path(sys.argv[1]))
print("claimed", flush=True)
time.sleep(600)
"""


@pytest.fixture
def released():
    yield
    for _ in release():
        pass


def writer(folder: Path) -> subprocess.Popen:
    """A process that has claimed an output folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "claimed\n"
    return process


PLACES = ["2026-01-01/10-00-00", "sweeps/2026-01-01/10-00-00", "reports/2026-01-01/10-00-00"]


@pytest.mark.parametrize("place", PLACES)
def test_claims_of_killed_runs_are_swept_and_others_left(tmp_path, monkeypatch, released, place):
    monkeypatch.setenv("DESA_OUTPUTS", str(tmp_path / "outputs"))
    killed, living = tmp_path / "outputs" / place, tmp_path / "outputs" / f"{place[:-2]}59"
    first, second = writer(killed), writer(living)
    try:
        (killed / "summary.json").write_text("{}")
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert (killed / IN_USE).exists()
        claim(tmp_path / "outputs" / "2026-01-02" / "10-00-00")
        assert [path.name for path in killed.iterdir()] == ["summary.json"]
        assert (living / IN_USE).exists()
        assert (tmp_path / "outputs" / "2026-01-02" / "10-00-00" / IN_USE).exists()  # our own
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def test_a_submitted_run_waits_for_its_folder(tmp_path, monkeypatch, released, capsys):
    """Two more runs want a folder that a first one has: refused, or where submitted, in turn."""
    folder = tmp_path / "shared"
    first = writer(folder)
    try:
        with pytest.raises(DesaError, match="another run is writing"):
            claim(folder)
        monkeypatch.setenv(VARIABLE, "{}")
        waiting = threading.Thread(target=claim, args=(folder,))
        waiting.start()
        waiting.join(0.7)
        assert waiting.is_alive()
        first.kill()
        waiting.join(10)
        assert not waiting.is_alive()
    finally:
        first.kill()
        first.wait()
        assert first.stdout is not None
        first.stdout.close()
    assert f"waiting for {folder}: another run writes to it (process {first.pid}" in (
        capsys.readouterr().err
    )
    assert list(release()) == [folder]


def test_submitted_runs_of_one_second_have_folders_of_their_own(tmp_path, monkeypatch):
    """As three submissions compose them where they arrive, one after the other at once."""
    monkeypatch.setenv("DESA_OUTPUTS", str(tmp_path))
    for kind in ("run", "sweep"):
        found = set()
        for _ in range(3):
            OmegaConf.clear_resolver("now")
            with initialize_config_module("desa_ray.conf", version_base="1.3"):
                config = compose("submitted", return_hydra_config=True)
            found.add(config.hydra[kind].dir)
        assert len(found) == 3


def test_a_claim_beside_the_new_folder_is_swept(tmp_path, monkeypatch, released):
    monkeypatch.setenv("DESA_OUTPUTS", str(tmp_path / "nothing"))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / IN_USE).write_text("")
    target = tmp_path / "target"
    target.write_text("kept")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / IN_USE).symlink_to(target)
    sweep_claims(tmp_path / "c")
    assert not (tmp_path / "a" / IN_USE).exists()
    assert (tmp_path / "b" / IN_USE).is_symlink()
    assert target.read_text() == "kept"


@pytest.mark.long
def test_a_killed_run_leaves_no_marks_after_the_next(collection, desa, tmp_path):
    """With real runs: the claim of its output folder, and its lease of the store."""
    common = [*dataset(collection), "cluster=serial", "tracking.enabled=false", "method=original"]
    environment = {**os.environ, "DESA_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    killed = subprocess.Popen(
        [sys.executable, "-m", "desa_ray.jobs", "run", *common],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    leases, deadline = tmp_path / "home" / "store" / ".leases", time.monotonic() + 120
    while not (leases.is_dir() and list(leases.glob("[!.]*.json"))):
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    (left,) = leases.glob("[!.]*.json")
    assert list((tmp_path / "outputs").rglob(IN_USE))
    desa("run", *common)
    assert not left.exists()
    assert list(leases.iterdir()) == []
    assert list((tmp_path / "outputs").rglob(IN_USE)) == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_removed_working_folder_is_one_line(verb, refuse, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.setattr("pytest.MonkeyPatch.chdir", lambda *_: (os.chdir(gone), gone.rmdir()))
    here = Path.cwd()
    try:
        (line,) = refuse(
            ["the current folder is gone", "cd to a folder that exists"], verb, "dataset=demo"
        )
    finally:
        os.chdir(here)
    assert line.count("error:") == 1


def test_an_output_folder_whose_name_is_not_utf8_is_refused(tmp_path):
    odd = tmp_path / "outputs\udcff" / "2026-01-02"
    with pytest.raises(DesaError, match=r"outputs.*: the name is not UTF-8 .*DESA_OUTPUTS"):
        claim(odd)
    assert not odd.parent.exists()
