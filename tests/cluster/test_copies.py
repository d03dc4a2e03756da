"""Where workers keep local copies (object stores, store.copies), none of theirs are left when an
executor is closed.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import s3fs

from desa_ray.cluster.session import session
from desa_ray.cluster.transport import RayTransport, ray_supervisor
from desa_ray.config import ClusterConfig
from desa_ray.pipeline.backend import Backend
from desa_ray.pipeline.processes import MachinePlacement, ProcessTransport
from desa_ray.pipeline.serial import SerialBackend
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Task, Work, bounds, shards_of
from desa_ray.pipeline.supervisor import Supervisor
from desa_ray.store.artifacts import Store
from desa_ray.store.copies import COPIES, drop_copies
from tests.infra.objects import client, object_server

POOL = Pool("made up", dict, size=1, light=True)
CONFIG = ClusterConfig(cpus=1)


@dataclass(frozen=True)
class Copying(Work):
    """One shard: reads the part of the stage's input through a local copy, and stores where that
    lay.
    """

    pool: Pool | None = POOL

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(1, 1)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.bin")

    def run(self, engine: Any, stage: Stage, shard: Shard) -> None:
        copy = stage.inputs["source"].artifact.read_part("part-00000.bin")
        stage.artifact.write_part(shard.parts[0], str(copy).encode(), rows=1)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return Finished("0" * 64)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[dict[str, str]]:
    with object_server(tmp_path_factory.mktemp("objects") / "log") as environment:
        client(environment).create_bucket(Bucket="desa")
        yield environment


@pytest.fixture
def temporary(server, tmp_path, monkeypatch) -> Iterator[Path]:
    """The temporary folder of this process and its children."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    drop_copies()
    for name, value in {**server, "TMPDIR": str(folder)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    s3fs.S3FileSystem.clear_instance_cache()
    yield folder
    s3fs.S3FileSystem.clear_instance_cache()
    drop_copies()


def _task(name: str, pool: Pool = POOL, folder: Path | None = None) -> Task:
    """The work on a remote store, or on one in a folder that is read by way of copies."""
    store = Store(folder, copies=True) if folder else Store(f"s3://desa/{name}")
    source = Stage(store, "source", 1, {}, Copying())
    source.artifact.write_part("part-00000.bin", b"x" * 1000, rows=1)
    stage = Stage(store, "copying", 1, {}, Copying(pool), {"source": source})
    (shard,) = stage.work.shards(stage.work.layout(stage))
    return Task(stage, shard)


def _computed(backend: Backend, task: Task) -> Path:
    """Where the worker's copy lay."""
    pool = task.stage.work.pool
    assert pool is not None
    backend.compute(pool, [task], lambda: None, lambda _: None)
    copy = Path(task.stage.artifact.read_part(task.shard.parts[0]).read_text())
    assert copy.parents[1].name.startswith(COPIES)
    return copy


def _left(temporary: Path) -> list[str]:
    drop_copies()  # this process's own, which made the inputs
    return sorted(path.name for path in temporary.iterdir() if path.name.startswith("desa-"))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["remote", "folder"])
def test_actors_leave_no_copies(temporary, tmp_path, kind):
    task = _task("actors", folder=tmp_path / "store" if kind == "folder" else None)
    with session(CONFIG) as death:
        backend = ray_supervisor(CONFIG, task.stage.store, death)
        copy = _computed(backend, task)
        assert copy.exists()
        backend.close()
        assert not copy.exists()  # before its node is gone: a running cluster's stays
    assert _left(temporary) == []


@pytest.mark.long
def test_an_actor_that_is_killed_leaves_copies(temporary):
    """An actor that is killed leaves copies only until the session ends."""
    task = _task("killed")
    with session(CONFIG) as death:
        backend = ray_supervisor(CONFIG, task.stage.store, death)
        copy = _computed(backend, task)
        assert isinstance(backend.transport, RayTransport)
        backend.transport.kill(1)
        backend.close()
    assert not copy.exists()
    assert _left(temporary) == []


def test_worker_processes_leave_no_copies(temporary):
    task = _task("processes")
    backend = Supervisor(
        ProcessTransport(), MachinePlacement(CONFIG), CONFIG, max_parallel_stages=1
    )
    copy = _computed(backend, task)
    assert copy.exists()
    backend.close()
    assert not copy.exists()
    assert _left(temporary) == []


def test_the_child_of_a_serial_run_leaves_no_copies(temporary):
    backend = SerialBackend()
    copy = _computed(backend, _task("serial", replace(POOL, isolated=True)))
    assert copy.exists()
    backend.close()
    assert not copy.exists()
    assert _left(temporary) == []
