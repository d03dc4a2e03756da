"""Files: published whole and once, on a disk and on another fsspec file system; failures name the
hint.
"""

import os
import pickle
import shutil
import socket
import subprocess
from pathlib import Path
from uuid import uuid4

import numpy as np
import polars as pl
import pytest
from store_processes import PROCESSES, die_in_the_middle

from desa_ray.errors import CorruptArtifact, DesaError
from desa_ray.store.files import Files, NameTakenError


@pytest.fixture(params=["local", "memory"])
def files(request, tmp_path) -> Files:
    return Files(
        tmp_path / "store" if request.param == "local" else f"memory://{uuid4().hex}/store"
    )


@pytest.mark.parametrize(
    "name", ["a::b", "s3:", "a?b#c%41", "a[b]*{c}", "a\\b", "~", "file:", "memory:", "äöü 日本"]
)
def test_the_name_of_a_folder_is_never_read_as_an_address(name, tmp_path):
    files = Files(str(tmp_path / name / "store"))
    files.publish("x/y.txt", b"one")
    assert (
        (tmp_path / name / "store" / "x" / "y.txt").read_bytes()
        == files.read_bytes("x/y.txt")
        == b"one"
    )
    assert list(files.list("x")) == ["y.txt"]
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert pickle.loads(pickle.dumps(files)).local == tmp_path / name / "store"


@pytest.fixture
def mounted(tmp_path):
    """A function that mounts a small tmpfs with options, or skips where this process may
    not mount.
    """
    folders = []

    def mount(options: str) -> Path:
        folder = tmp_path / f"mount{len(folders)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "desa-test", str(folder)]
        if (
            shutil.which("mount") is None
            or subprocess.run(command, check=False, capture_output=True).returncode
        ):
            pytest.skip("this process may not mount a tmpfs")
        folders.append(folder)
        return folder

    yield mount
    for folder in folders:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_what_is_published_is_read_listed_and_deleted(files):
    published = files.publish("stage/key/part.bin", b"bytes")
    assert (published.name, published.bytes) == ("stage/key/part.bin", 5)
    assert files.read_bytes("stage/key/part.bin") == b"bytes"
    assert files.size("stage/key/part.bin") == 5
    assert list(files.list("stage/key")) == ["part.bin"]
    assert list(files.list()) == ["stage"]
    assert files.list("stage/key")["part.bin"].modified > 1e9
    assert files.local_path("stage/key/part.bin", published.sha256).read_bytes() == b"bytes"
    files.delete("stage/key/part.bin")
    files.delete("stage/key/part.bin")
    assert not files.exists("stage/key/part.bin")
    assert files.read_bytes("stage/key/part.bin") is None


def test_a_writer_is_given_a_path_with_the_extension(files):
    """A writer is given a path with the extension and its bytes are published."""
    # np.save would append .npy
    published = files.publish("a/x.npy", lambda path: np.save(path, np.arange(3)))
    assert np.load(files.local_path("a/x.npy", published.sha256)).tolist() == [0, 1, 2]


def test_a_star_stands_for_the_hash_of_the_bytes(files):
    published = files.publish("a/x-*.bin", b"bytes")
    assert published.name == f"a/x-{published.sha256[:12]}.bin"
    assert list(files.list("a")) == [published.name[2:]]


def test_the_same_bytes_may_be_published_again_and_other_bytes(files):
    """The same bytes may be published again and other bytes never."""
    files.publish("a/x", b"first")
    files.publish("a/x", b"first")
    with pytest.raises(NameTakenError):
        files.publish("a/x", b"other")
    with pytest.raises(NameTakenError):
        files.publish("a/x", lambda path: path.write_bytes(b"other"))
    assert files.read_bytes("a/x") == b"first"
    assert files.list("a", leftovers=True) == {}


def test_a_failing_writer_leaves_nothing(files):
    def fail(path: Path):
        path.write_bytes(b"half")
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        files.publish("a/x", fail)
    assert files.list("a") == files.list("a", leftovers=True) == {}


def test_missing_and_changed_bytes_are_named_with_both_hashes(files):
    sha256 = files.publish("s/k/x", b"good").sha256
    files.delete("s/k/x")
    with pytest.raises(
        CorruptArtifact, match=rf"s/k/x: is missing, expected SHA-256 {sha256} .*store.repair=true"
    ):
        files.local_path("s/k/x", sha256)
    found = files.publish("s/k/x", b"evil").sha256
    with pytest.raises(CorruptArtifact, match=f"s/k/x: expected SHA-256 {sha256}, found {found}"):
        files.local_path("s/k/x", sha256)


def test_a_change_after_a_verified_read_is_found(tmp_path):
    files = Files(tmp_path)
    sha256 = files.publish("x", b"good").sha256
    files.local_path("x", sha256)
    (tmp_path / "x").write_bytes(b"evil")  # same size, perhaps within one tick of the clock
    with pytest.raises(CorruptArtifact):
        files.local_path("x", sha256)
    (tmp_path / "x").write_bytes(b"good")
    os.utime(tmp_path / "x", (1e9, 1e9))
    files.local_path("x", sha256)
    (tmp_path / "x").write_bytes(b"evil")
    with pytest.raises(CorruptArtifact):
        files.local_path("x", sha256)


def test_an_unchanged_file_is_hashed_once_a_process(tmp_path):
    files = Files(tmp_path)
    sha256 = files.publish("x", b"good").sha256
    os.utime(tmp_path / "x", (1e9, 1e9))
    files.local_path("x", sha256)
    before = (tmp_path / "x").stat()
    (tmp_path / "x").write_bytes(b"evil")
    # All that the check looks at is unchanged
    os.utime(tmp_path / "x", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert Files(tmp_path).local_path("x", sha256).exists()


@pytest.mark.parametrize(
    "name", ["../x", "a/../x", "/etc/x", "a//b", "", "a b", "a/.hidden", "a\n"]
)
def test_names_that_leave_the_folder_are_refused(files, name):
    for use in (files.read_bytes, files.delete, lambda name: files.publish(name, b"")):
        with pytest.raises(DesaError, match="not a file name"):
            use(name)


def test_foreign_files_are_passed_over(tmp_path):
    files = Files(tmp_path)
    files.publish("a/x", b"")
    for name in (".nfs000012", "x~ copy", ".DS_Store"):
        (tmp_path / "a" / name).touch()
    assert list(files.list("a")) == ["x"]


def test_files_of_any_root_survive_pickling(files):
    files.publish("x", b"bytes")
    assert pickle.loads(pickle.dumps(files)).read_bytes("x") == b"bytes"


def test_a_relative_root_means_the_same_place_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = Files("store")
    files.publish("x", b"bytes")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert pickle.loads(pickle.dumps(files)).read_bytes("x") == b"bytes"


def test_a_writer_killed_in_the_middle_leaves_no_file(tmp_path):
    """A writer killed in the middle leaves no file of that name."""
    process = PROCESSES.Process(target=die_in_the_middle, args=(str(tmp_path),))
    process.start()
    process.join(60)
    assert process.exitcode == -9
    files = Files(tmp_path)
    assert files.list("a") == {}
    assert [stat.bytes for stat in files.list("a", leftovers=True).values()] == [10]
    files.publish("a/x.bin", b"all of it")
    assert files.read_bytes("a/x.bin") == b"all of it"


def test_a_root_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "root").write_text("")
    with pytest.raises(DesaError, match=r"root: is a file, not a folder \(set store.root"):
        Files(tmp_path / "root")


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        DesaError, match=r"file/store/a/x: cannot write: there is a file where a folder is needed"
    ):
        Files(tmp_path / "file" / "store").publish("a/x", b"")
    files = Files(tmp_path)
    with pytest.raises(
        DesaError, match="file/x: cannot read: there is a file where a folder is needed"
    ):
        files.read_bytes("file/x")


def test_a_place_where_no_folder_can_be_made_is_a_clear_error():
    with pytest.raises(
        DesaError, match="cannot write: the folder has disappeared or cannot be created"
    ):
        Files("/proc/desa-store").publish("a/x", b"")


def test_a_read_only_store_can_be_read_and_not_written(mounted):
    folder = mounted("size=1m")
    Files(folder).publish("a/x", b"bytes")
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    assert Files(folder).read_bytes("a/x") == b"bytes"
    with pytest.raises(
        DesaError, match=r"a/y: cannot write: the file system is read-only \(set store.root"
    ):
        Files(folder).publish("a/y", b"")
    with pytest.raises(DesaError, match=r"a/x: cannot delete: the file system is read-only"):
        Files(folder).delete("a/x")


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not stop root")
def test_a_forbidden_store_is_a_clear_error(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(DesaError, match="permission denied"):
        Files(tmp_path).publish("a/x", b"")


def test_a_full_disk_says_so_keeps_what_was_finished_and_resumes(mounted):
    folder = mounted("size=1m")
    files = Files(folder)
    table = pl.DataFrame({"x": np.random.default_rng(0).random(500_000)})
    files.publish("a/first", b"x" * 1000)
    message = r"a/big.npy: cannot write: no space left on the disk \(free space, then rerun"
    for content in (b"x" * (2 << 20), table.write_parquet, lambda path: np.save(path, table["x"])):
        with pytest.raises(DesaError, match=message):
            files.publish("a/big.npy", content)
        assert list(files.list("a")) == ["first"]
        assert files.list("a", leftovers=True) == {}
    subprocess.run(["mount", "-o", "remount,size=8m", str(folder)], check=True)
    assert files.publish("a/big.npy", b"x" * (2 << 20)).bytes == 2 << 20


def test_a_file_system_without_hard_links_is_a_clear_error(tmp_path, monkeypatch):
    def refuse(*_):  # as link(2) answers on FAT; none can be mounted for a test
        raise PermissionError(1, "Operation not permitted", "from", None, "to")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(DesaError, match="no hard links"):
        Files(tmp_path).publish("a", b"")


def test_an_unknown_file_system_is_a_clear_error():
    """An unknown file system is a clear error without its password."""
    with pytest.raises(DesaError) as error:
        Files("nosuch://user:secret@host/store")
    assert "secret" not in str(error.value)
    assert "nosuch://host/store" in str(error.value)


def test_a_file_system_that_does_not_answer_is_one_line():
    """It connects when it is opened, and its library's error is none of ours."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"ftp://user:secret@127.0.0.1:{held.getsockname()[1]}/store"
        with pytest.raises(DesaError, match=r"cannot open it: .*refused") as refused:
            Files(address)
    assert "secret" not in str(refused.value)
