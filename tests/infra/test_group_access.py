"""A folder that a group shares: what the doctor says of its bits and of the umask, and that the
store keeps to the umask.
"""

import os
import stat
from collections.abc import Iterator

import pytest

from desa_ray.jobs.cli.group_access import group_access
from desa_ray.store.artifacts import Store
from desa_ray.store.keys import Key


@pytest.fixture
def umask() -> Iterator:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize(
    ("mode", "mask", "status", "hint"),
    [
        (0o2775, 0o002, "ok", ""),
        (0o2775, 0o022, "warn", "umask 0002 before desa"),
        (0o775, 0o002, "warn", "chmod g+s"),
        (0o755, 0o022, None, ""),  # one user's own
        (0o1777, 0o022, None, ""),  # everybody's, such as /tmp
    ],
)
def test_the_bits_of_a_shared_folder_are_looked_at(mode, mask, status, hint, umask, tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    folder.chmod(mode)
    umask(mask)
    found = list(group_access({"store": folder, "gone": tmp_path / "gone"}))
    assert [finding.status for finding in found] == ([] if status is None else [status])
    assert all(hint in finding.hint for finding in found)


@pytest.mark.parametrize("mask", [0o002, 0o022])
def test_the_store_writes_with_the_umask(mask, umask, tmp_path):
    umask(mask)
    artifact = Store(tmp_path / "store").artifact(Key("made_up", 1, {}, {}))
    artifact.write_part("part-00000.bin", b"1", rows=1)
    artifact.finish("0" * 64, counts={}, meta={}, parts=["part-00000.bin"])
    written = [path for path in (tmp_path / "store").rglob("*") if path.name != ".locks"]
    assert any(path.is_file() for path in written)
    for path in written:
        full = 0o777 if path.is_dir() else 0o666
        assert stat.S_IMODE(path.stat().st_mode) == full & ~mask, path
