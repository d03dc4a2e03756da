"""Leases: live while their process is, taken over when it died, never shared, never in the way of
the catalog.
"""

import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from uuid import uuid4

import pytest

from desa_ray.errors import DesaError
from desa_ray.store import leases
from desa_ray.store.artifacts import Store
from desa_ray.store.files import Files
from desa_ray.store.leases import Lease, holders
from desa_ray.store.sealed import seal

KEYS = ["ab" * 32, "cd" * 32]
OTHER = """
import sys, time
from desa_ray.store.files import Files
from desa_ray.store.leases import Lease
with Lease.acquire(Files(sys.argv[1]), "sweep"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(params=["local", "memory"])
def files(request, tmp_path) -> Files:
    return Files(
        tmp_path / "store" if request.param == "local" else f"memory://{uuid4().hex}/store"
    )


def of_another_machine(files: Files, age_s: float) -> None:
    """Turns the lease `sweep` into one that a machine we know nothing about left `age_s` ago."""
    holder = replace(holders(files)[0], process="", token="other", heartbeat=time.time() - age_s)
    files.overwrite(".leases/sweep.json", seal(asdict(holder)))


def test_a_lease_is_there_while_its_block_runs(files):
    with Lease.acquire(files, "sweep", KEYS):
        (holder,) = holders(files)
        assert (holder.owner, holder.pid, holder.keys, holder.live) == (
            "sweep",
            os.getpid(),
            tuple(KEYS),
            True,
        )
        assert not list(Store(files.root).list())
    assert holders(files) == []


def test_a_live_lease_is_refused_to_another(files):
    with (
        Lease.acquire(files, "sweep"),
        pytest.raises(DesaError, match=f"sweep: is being run by process {os.getpid()}"),
    ):
        Lease.acquire(files, "sweep")


def test_keys_are_added_and_the_heartbeat_moves(files):
    lease = Lease.acquire(files, "sweep", KEYS[1:])
    before = holders(files)[0]
    time.sleep(0.01)
    lease.refer(KEYS[:1])
    after = holders(files)[0]
    assert after.keys == tuple(KEYS)
    assert after.heartbeat > before.heartbeat
    assert after.started == before.started


@pytest.mark.parametrize(
    ("age_s", "live"), [(leases.STALE_S - 60, True), (leases.STALE_S + 60, False)]
)
def test_elsewhere_the_heartbeat_decides(files, age_s, live):
    Lease.acquire(files, "sweep")
    of_another_machine(files, age_s)
    assert holders(files)[0].live == live


def test_who_lost_its_lease_is_told_and_leaves_the_new_one_alone(files):
    lost = Lease.acquire(files, "sweep")
    of_another_machine(files, leases.STALE_S + 60)
    new = Lease.acquire(files, "sweep", KEYS)
    with pytest.raises(DesaError, match="taken over"):
        lost.beat()
    lost.release()
    assert holders(files)[0].keys == tuple(KEYS)
    new.release()
    assert holders(files) == []


def test_a_block_beats(files, monkeypatch):
    monkeypatch.setattr(leases, "BEAT_S", 0.02)
    with Lease.acquire(files, "sweep") as lease:
        first, deadline = holders(files)[0].heartbeat, time.time() + 10
        while holders(files)[0].heartbeat == first and time.time() < deadline:
            time.sleep(0.02)
        assert holders(files)[0].heartbeat > first
        assert lease.failure is None


def test_on_one_machine_a_killed_process_is_known_at_once(tmp_path):
    files = Files(tmp_path / "store")
    command = [sys.executable, "-c", OTHER, files.root]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        (holder,) = holders(files)
        assert holder.live
        with pytest.raises(DesaError, match="sweep: is being run"):
            Lease.acquire(files, "sweep")
        process.kill()
        process.wait()
    assert not holders(files)[0].live
    Lease.acquire(files, "sweep").release()
    # the number alone proves nothing: another process may have it by now
    assert not replace(holder, pid=os.getpid()).live


def test_a_damaged_lease_is_named(files):
    Lease.acquire(files, "sweep")
    files.overwrite(".leases/sweep.json", b"{")
    with pytest.raises(DesaError, match=r"\.leases/sweep\.json: the lease is damaged"):
        holders(files)


def lease_file(files: Files, name: str, **changes) -> None:
    """A lease as another process wrote it, with some fields changed."""
    Lease.acquire(files, name, KEYS)
    holder = replace(next(found for found in holders(files) if found.owner == name), token="other")
    files.overwrite(f".leases/{name}.json", seal(asdict(holder) | changes))


def test_the_next_sweep_removes_what_dead_ones_left_and_nothing(files):
    """The next sweep removes what dead ones left and nothing else."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    gone = leases.GONE_S + 60
    with Lease.acquire(files, "living"):
        own = next(holder for holder in holders(files) if holder.owner == "living")
        lease_file(files, "away", process="", heartbeat=time.time() - leases.STALE_S - 60)
        lease_file(files, "lost", process="", heartbeat=time.time() - gone)
        lease_file(files, "killed", pid=dead.pid)
        files.overwrite(".leases/damaged.json", b"{")
        assert Lease.acquire(files, "next").failure is None
        left = {name.removesuffix(".json") for name in files.list(".leases")}
        assert left == {"living", "away", "damaged", "next"}
        assert (own.gone, own.live) == (False, True)


def test_a_lease_that_a_killed_driver_left_goes_with_the_next(tmp_path):
    """A lease that a killed driver left goes with the next run."""
    files = Files(tmp_path / "store")
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, files.root], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        half = tmp_path / "store" / ".leases" / ".tmp-killed"
        half.write_bytes(b"{")
        Lease.acquire(files, "while-it-runs").release()
        assert [holder.owner for holder in holders(files)] == ["sweep"]
        process.kill()
        process.wait()
    os.utime(half, (0, time.time() - leases.GONE_S - 60))
    with Lease.acquire(files, "next"):
        assert [path.name for path in (tmp_path / "store" / ".leases").iterdir()] == ["next.json"]


@pytest.mark.parametrize(("silent_s", "live"), [(0, True), (leases.STALE_S + 60, False)])
def test_a_heartbeat_of_a_clock_far_ahead_leaves_it_to_the_file(tmp_path, silent_s, live):
    """A heartbeat of a clock far ahead leaves it to the file s time."""
    files = Files(tmp_path / "store")
    lease_file(files, "ahead", process="", heartbeat=time.time() + 10 * leases.GONE_S)
    file = tmp_path / "store" / ".leases" / "ahead.json"
    os.utime(file, (0, time.time() - silent_s))
    assert holders(files)[0].live == live


BROKEN = {
    "empty": b"",
    "cut": b'{"owner": "sweep"',
    "not UTF-8": b'{"owner": "\xff"}',
    "nested": b"[" * 100_000,
    "a list": seal({"a": 1}).replace(b"{", b"[").replace(b"}", b"]"),
}
WRONG = {
    "pid": "12",
    "heartbeat": "now",
    "keys": "all",
    "started": None,
    "host": 1,
    "process": [],
    "owner": "other",
}


@pytest.mark.parametrize("name", [*BROKEN, *WRONG])
def test_a_lease_that_makes_no_sense_is_named_and_blocks_no_run(files, name):
    lease_file(files, "sweep", **({name: WRONG[name]} if name in WRONG else {}))
    if name in BROKEN:
        files.overwrite(".leases/sweep.json", BROKEN[name])
    with pytest.raises(DesaError, match=r"\.leases/sweep\.json: the lease is damaged") as told:
        holders(files)
    assert "delete the file" in told.value.hint
    with Lease.acquire(files, "run"):
        assert "sweep.json" in files.list(".leases")
