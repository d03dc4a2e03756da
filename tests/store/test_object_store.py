"""The store on a real S3-compatible server: written once, whole or not at all, and wrong only out
loud.
"""

import hashlib
import multiprocessing
import signal
import time
from pathlib import Path

import pytest
import s3fs

from desa_ray.errors import CorruptArtifact, DesaError
from desa_ray.store.artifacts import Store
from desa_ray.store.files import NameTakenError
from desa_ray.store.keys import Key
from tests.infra.objects import client, object_server

ROOT = "s3://desa/store"
KEY = Key("stage", 1, {"x": 1}, {})
CONTENT = hashlib.sha256(b"rows").hexdigest()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with object_server(tmp_path_factory.mktemp("objects") / "log") as environment:
        client(environment).create_bucket(Bucket="desa")
        yield environment


@pytest.fixture
def store(server, monkeypatch):
    """An empty store; the client knows the server by the environment alone."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    s3 = client(server)
    for found in s3.list_objects_v2(Bucket="desa").get("Contents", []):
        s3.delete_object(Bucket="desa", Key=found["Key"])
    yield Store(ROOT)
    s3fs.S3FileSystem.clear_instance_cache()


def _objects(server) -> list[str]:
    return [
        found["Key"] for found in client(server).list_objects_v2(Bucket="desa").get("Contents", [])
    ]


def test_a_file_is_written_once(store, server):
    files = store.files
    files.publish("a/x", b"one")
    files.publish("a/x", b"one")  # the same bytes are no conflict
    with pytest.raises(NameTakenError):
        files.publish("a/x", b"two")
    assert client(server).get_object(Bucket="desa", Key="store/a/x")["Body"].read() == b"one"
    assert files.read_bytes("a/x") == b"one"
    assert (files.size("a/x"), files.size("a/y"), files.list("a")["x"].bytes) == (3, None, 3)
    files.delete("a/x")
    files.delete("a/x")
    assert files.list("a") == {}


def test_an_artifact_is_there_when_its_manifest_is(store, server):
    artifact = store.artifact(KEY)
    artifact.layout({"bounds": [0, 2]})
    info = artifact.write_part(
        "part-00000.bin", lambda path: path.write_bytes(b"rows"), rows=2, content=CONTENT
    )
    assert not Store(ROOT).artifact(KEY).exists()
    artifact.finish(CONTENT, counts={"rows": 2}, meta={})
    again = Store(ROOT).artifact(KEY)
    assert again.exists()
    assert again.read_part("part-00000.bin").read_bytes() == b"rows"
    assert f"store/stage/{KEY.short}/{info.file}" in _objects(server)
    assert not any("tmp" in name for name in _objects(server))
    assert [entry.key for entry in store.list()] == [KEY]


def test_a_changed_object_is_noticed_and_mended(store, server):
    artifact = store.artifact(KEY)
    info = artifact.write_part("part-00000.bin", b"other", rows=2)
    artifact.finish(CONTENT, counts={"rows": 2}, meta={})
    client(server).put_object(
        Bucket="desa", Key=f"store/stage/{KEY.short}/{info.file}", Body=b"ohter"
    )
    with pytest.raises(CorruptArtifact, match=info.sha256):
        Store(ROOT).artifact(KEY).read_part("part-00000.bin")
    mended = Store(ROOT, repair=True).artifact(KEY)
    assert not mended.exists()
    assert mended.write_part("part-00000.bin", b"other", rows=2).file == info.file
    mended.finish(CONTENT, counts={"rows": 2}, meta={})
    assert Store(ROOT).artifact(KEY).read_part("part-00000.bin").read_bytes() == b"other"


def _write(number: int, barrier, queue) -> None:
    """A writer whose bytes differ from the others': what a stage that is not reproducible does."""
    artifact = Store(ROOT).artifact(KEY)
    barrier.wait(60)
    layout = artifact.layout({"bounds": [0, number]})
    info = artifact.write_part("part-00000.bin", f"writer {number}".encode(), rows=1)
    queue.put((layout["bounds"][1], info.sha256))


@pytest.mark.long
def test_of_writers_at_once_the_first_wins_for_all(store, server):
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(3), context.Queue()
    writers = [context.Process(target=_write, args=(number, barrier, queue)) for number in range(3)]
    for writer in writers:
        writer.start()
    told = {queue.get(timeout=120) for _ in writers}
    for writer in writers:
        writer.join(60)
    assert len(told) == 1
    ((layout, sha256),) = told
    assert layout in range(3)
    held = Store(ROOT).artifact(KEY).read_part("part-00000.bin").read_bytes()
    assert held in [f"writer {number}".encode() for number in range(3)]
    assert hashlib.sha256(held).hexdigest() == sha256
    # The losers' files are gone again.
    assert sum(name.endswith(".bin") for name in _objects(server)) == 1


def _write_large(ready) -> None:
    artifact = Store(ROOT).artifact(KEY)
    ready.set()
    artifact.write_part("part-00000.bin", lambda path: path.write_bytes(bytes(400 << 20)), rows=1)


@pytest.mark.long
def test_a_killed_writer_leaves_nothing_that_counts(store, server):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    writer = context.Process(target=_write_large, args=(ready,))
    writer.start()
    assert ready.wait(60)
    deadline = time.monotonic() + 60
    while not client(server).list_multipart_uploads(Bucket="desa").get("Uploads"):
        assert time.monotonic() < deadline
    writer.kill()
    writer.join(60)
    assert writer.exitcode == -signal.SIGKILL
    assert _objects(server) == []
    artifact = store.artifact(KEY)
    assert not artifact.has_part("part-00000.bin")
    artifact.write_part("part-00000.bin", b"rows", rows=1)
    assert artifact.has_part("part-00000.bin")


@pytest.mark.long
def test_a_large_part_is_written_once_too(store):
    def large(letter: bytes):
        return lambda path: path.write_bytes(letter * (60 << 20))

    store.files.publish("a/large", large(b"a"))
    with pytest.raises(NameTakenError):
        store.files.publish("a/large", large(b"b"))
    assert store.files.size("a/large") == 60 << 20


def test_what_is_wrong_with_the_server_is_one_line(store, monkeypatch):
    with pytest.raises(DesaError, match="bucket does not exist") as caught:
        Store("s3://nothing/store").check_writable()
    assert "\n" not in str(caught.value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(DesaError, match="credentials") as caught:
        Store(ROOT).check_writable()
    assert "AWS_ACCESS_KEY_ID" in caught.value.hint


def test_a_server_that_ignores_conditions_is_refused(tmp_path: Path, monkeypatch):
    with object_server(tmp_path / "log", "careless") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        client(environment).create_bucket(Bucket="desa")
        s3fs.S3FileSystem.clear_instance_cache()
        with pytest.raises(DesaError, match="second writer"):
            Store(ROOT).check_writable()
        assert _objects(environment) == []
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_good_server_is_accepted(store, server):
    store.check_writable()
    assert _objects(server) == []
