"""A dead engine's children are ended before the next start; nobody else's process is touched."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from desa_ray.engines.engine_group import await_memory, end_orphans
from desa_ray.errors import DesaError

# An engine as vLLM makes one: a leader with a child, and a grandchild that ignores polite signals.
ENGINE = """
import subprocess, sys, time
from pathlib import Path
from desa_ray.engines.engine_group import lead_group
lead_group(Path(sys.argv[1]))
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
nest = "import subprocess, sys, time; "
nest += f"print(subprocess.Popen([sys.executable, '-c', {stubborn!r}]).pid, flush=True)"
nest += "; time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", nest], stdout=subprocess.PIPE, text=True)
print(child.pid, child.stdout.readline().strip(), flush=True)
time.sleep(600)
"""


def start_engine(folder: Path) -> tuple[subprocess.Popen, list[int]]:
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert engine.stdout is not None
    return engine, [int(pid) for pid in engine.stdout.readline().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_children_of_a_killed_engine_are_ended_and_a_living(tmp_path):
    """Children of a killed engine are ended and a living one is left."""
    dead, orphans = start_engine(tmp_path)
    living, children = start_engine(tmp_path)
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        assert end_orphans(tmp_path) == []
        dead.kill()
        dead.wait()
        assert all(map(alive, orphans))
        assert sorted(end_orphans(tmp_path)) == sorted(orphans)
        assert not any(map(alive, orphans))
        assert all(map(alive, [living.pid, *children, bystander.pid]))
        assert [file.stem for file in tmp_path.iterdir()] == [str(living.pid)]
        assert end_orphans(tmp_path) == []
    finally:
        os.killpg(living.pid, signal.SIGKILL)
        for process in (living, bystander):
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        assert dead.stdout is not None
        dead.stdout.close()


def test_a_number_that_now_belongs_to_somebody_else_is_left(tmp_path):
    """A number that now belongs to somebody else is left alone."""
    innocent = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    try:
        note = {"boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(), "started": 1}
        for changes in (
            {"session": innocent.pid},
            {"session": innocent.pid, "boot": "an earlier boot"},
        ):
            file = tmp_path / f"{innocent.pid}.json"
            file.write_text(json.dumps(note | changes))
            assert end_orphans(tmp_path) == []
            assert innocent.poll() is None
            assert not file.exists()
    finally:
        innocent.kill()
        innocent.wait()


def test_unreadable_notes_are_forgotten(tmp_path):
    for name, content in (("12.json", ""), ("13.json", "{}"), ("x.json", "[]")):
        (tmp_path / name).write_text(content)
    assert end_orphans(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    assert end_orphans(tmp_path / "absent") == []


def test_memory_is_waited_for_and_then_asked_for():
    gib = 1 << 30
    readings = iter([[(10 * gib, 80 * gib)], [(75 * gib, 80 * gib)]])
    await_memory(lambda: next(readings), 0.9)
    started = time.monotonic()
    with pytest.raises(
        DesaError, match=r"too little GPU memory: 10\.0 of 80\.0 GiB free, 72\.0 wanted"
    ):
        await_memory(lambda: [(79 * gib, 80 * gib), (10 * gib, 80 * gib)], 0.9, patience_s=0.3)
    assert time.monotonic() - started < 2
