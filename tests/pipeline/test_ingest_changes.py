"""Large collections whose files change, or cannot be read for a while, while they are read: what is
stored in the end is of one state of the source, or nothing is.
"""

import errno
import gzip
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from zipfile import BadZipFile

import pyarrow as pa
import pytest

from desa_ray import unpacking
from desa_ray.config import DatasetConfig
from desa_ray.errors import DesaError
from desa_ray.experiment.reading import ONE_READER, store_collection
from desa_ray.stages import ingest, ingested
from desa_ray.stages.collection import record_stage
from desa_ray.store.artifacts import Store
from desa_ray.unpacking import changed, lasting, unreadable

from .test_ingest import assert_same, jsonl, make_tiny, pack, rows_of, stored

Restore = Callable[[], None]


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    make_tiny(monkeypatch)


@pytest.fixture
def config(tmp_path) -> DatasetConfig:
    return pack(tmp_path / "own", "plain", rows_of(100))


def rewrite(file: Path, data: bytes) -> Restore:
    """Gives a file other bytes, as an editor does; the result writes the former ones."""
    before = file.read_bytes()
    file.write_bytes(data)
    return lambda: rewrite(file, before) and None


def exchange(file: Path, data: bytes) -> Restore:
    """Puts another file in its place; the result moves the very same one back."""
    kept = file.with_name("kept")
    file.rename(kept)
    file.write_bytes(data)
    return lambda: kept.replace(file) and None


def at(monkeypatch, step: str, call: int, action: Callable[[], object]) -> None:
    """Does something before the n-th call of a step of the ingest."""
    own, calls = getattr(ingest.IngestWork, step), []

    def stepped(self, *args):
        calls.append(args)
        if len(calls) == call:
            action()
        return own(self, *args)

    monkeypatch.setattr(ingest.IngestWork, step, stepped)


def interrupt() -> None:
    raise KeyboardInterrupt


def interrupted(config: DatasetConfig, home: Path, monkeypatch, step: str, call: int) -> None:
    with monkeypatch.context() as patch:
        at(patch, step, call, interrupt)
        with pytest.raises(KeyboardInterrupt):
            stored(config, home, whole=False)


def others() -> bytes:
    return jsonl([row | {"text": "other"} for row in rows_of(100)])


@pytest.mark.parametrize("change", [rewrite, exchange])
@pytest.mark.parametrize(("step", "call"), [("layout", 1), ("run", 3), ("finish", 1)])
def test_two_sources_are_never_mixed(tmp_path, config, monkeypatch, change, step, call):
    """The corpus becomes another one before a step, and later is the first one again."""
    home, file, back = tmp_path / "home", tmp_path / "own" / "corpus.jsonl", []
    with monkeypatch.context() as patch:
        at(patch, step, call, lambda: back.append(change(file, others())))
        error = stored(config, home, whole=False)
    assert "changed while" in error
    back[0]()
    assert isinstance(assert_same(config, home), dict)


@pytest.mark.parametrize("change", [rewrite, exchange])
def test_a_killed_ingest_of_another_source_is_dropped(tmp_path, config, monkeypatch, change):
    """The corpus is another one from before it is cut until the run is interrupted."""
    home, file, back = tmp_path / "home", tmp_path / "own" / "corpus.jsonl", []
    with monkeypatch.context() as patch:
        at(patch, "layout", 1, lambda: back.append(change(file, others())))
        interrupted(config, home, patch, "run", 5)
    back[0]()
    assert isinstance(assert_same(config, home), dict)


@pytest.mark.parametrize("name", ["queries.jsonl", "qrels/test.tsv"])
def test_the_other_files_are_of_the_same_source(tmp_path, config, monkeypatch, name):
    home, file, back = tmp_path / "home", tmp_path / "own" / name, []
    lines = file.read_bytes().splitlines(keepends=True)
    with monkeypatch.context() as patch:
        at(patch, "run", 2, lambda: back.append(rewrite(file, b"".join(lines[:-1]))))
        assert "changed while" in stored(config, home, whole=False)
    back[0]()
    assert isinstance(assert_same(config, home), dict)


def touch_within(monkeypatch, file: Path, call: int) -> None:
    """Touches a file while its n-th piece is read."""
    own, calls = ingest.write_runs, []

    def write_runs(rows, path):
        calls.append(path)
        first = next(rows)
        if len(calls) == call:
            os.utime(file, ns=(1, 1))
        return own(iter([first, *rows]), path)

    monkeypatch.setattr(ingest, "write_runs", write_runs)


def test_a_touch_while_reading_is_forgotten(tmp_path, config, monkeypatch):
    """Neither part of the piece is stored."""
    home, file = tmp_path / "home", tmp_path / "own" / "corpus.jsonl"
    with monkeypatch.context() as patch:
        touch_within(patch, file, call=2)
        assert "changed while it was read" in stored(config, home, whole=False)
    (folder,) = (home / "pieces" / "ingest").iterdir()
    assert list(folder.glob("*-00001*")) == []
    assert isinstance(assert_same(config, home), dict)


def long_line(config: DatasetConfig) -> None:
    file = Path(str(config.path)) / "corpus.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines[30] = b'{"_id": "long", "text": "%s"}\n' % (b"y" * 3_000)
    file.write_bytes(b"".join(lines))


def test_a_fault_of_a_changed_file_is_not_stored(tmp_path, config, monkeypatch):
    """A line that is too long, in a file that is touched as it is read."""
    long_line(config)
    file = tmp_path / "own" / "corpus.jsonl"
    monkeypatch.setattr("desa_ray.lines.MAX_JSON_BYTES", 2_000)
    monkeypatch.setattr(ingest, "PIECE", 1 << 20)
    with monkeypatch.context() as patch:
        touch_within(patch, file, call=1)
        assert "changed while it was read" in stored(config, tmp_path / "home", whole=False)
    (folder,) = (tmp_path / "home" / "pieces" / "ingest").iterdir()
    assert list(folder.glob("runs-*")) + list(folder.glob("told-*")) == []
    assert "longer than" in assert_same(config, tmp_path / "home")


def fail_once(monkeypatch, call: int, number: int) -> None:
    """The n-th read of bytes fails as the operating system lets it fail."""
    own, calls = unpacking._Counted.readinto, []

    def readinto(self, buffer):
        calls.append(self)
        if len(calls) == call:
            raise OSError(number, os.strerror(number))
        return own(self, buffer)

    monkeypatch.setattr(unpacking._Counted, "readinto", readinto)


@pytest.mark.parametrize("form", ["plain", "gzip", "zstd", "zip", "tables"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE])
def test_errors_of_the_machine_pass(tmp_path, monkeypatch, form, number):
    """A read that fails ends the run; the next one, where it does not, is complete."""
    config, home = pack(tmp_path / "own", form, rows_of(100)), tmp_path / "home"
    with monkeypatch.context() as patch:
        at(patch, "run", 1, lambda: fail_once(patch, 1, number))
        assert os.strerror(number) in stored(config, home, whole=False)
    assert list(home.glob("pieces/ingest/*/told-*")) == []
    assert list(home.glob("pieces/ingest/*/runs-*")) == []
    assert isinstance(assert_same(config, home), dict)


def test_faults_of_bytes_are_told_from_those_of_machines():
    """Also where Python tells an error of the disk in a zip's directory as a bad archive."""
    broken = OSError(errno.EIO, "Input/output error")
    bad_zip = BadZipFile("File is not a zip file")
    bad_zip.__context__ = broken
    for error in (broken, FileNotFoundError(errno.ENOENT, "gone"), MemoryError(), bad_zip):
        assert not lasting(told_of(error))
    for error in (EOFError("cut"), gzip.BadGzipFile("not gzip"), BadZipFile("cut")):
        assert lasting(told_of(error))
    assert lasting(DesaError("a line is too long"))
    assert not lasting(changed("file"))


def told_of(error: BaseException) -> DesaError:
    told = unreadable(error, "file")
    told.__cause__ = error
    return told


@pytest.mark.parametrize("packed", ["gz", "zst"])
def test_a_killed_ingest_goes_on_when_packed(tmp_path, config, monkeypatch, packed):
    """The same bytes, packed after the first run was interrupted, and unpacked after the second."""
    home, file = tmp_path / "home", tmp_path / "own" / "corpus.jsonl"
    data = file.read_bytes()
    own = gzip.compress(data) if packed == "gz" else pa.compress(data, "zstd", asbytes=True)
    other = file.with_name(f"{file.name}.{packed}")
    interrupted(config, home, monkeypatch, "run", 3)
    file.unlink()
    other.write_bytes(own)
    interrupted(config, home, monkeypatch, "finish", 1)
    other.unlink()
    file.write_bytes(data)
    assert isinstance(assert_same(config, home), dict)
    assert len(list(home.glob("pieces/ingest/*/runs-*.arrow"))) > 3


def test_an_untouched_ingest_goes_on(tmp_path, config, monkeypatch):
    """What an interrupted run has read stays, where no file has changed."""
    home, runs = tmp_path / "home", []
    interrupted(config, home, monkeypatch, "run", 4)
    with monkeypatch.context() as patch:
        at(patch, "run", 1, lambda: runs.extend(home.glob("pieces/ingest/*/runs-*.arrow")))
        assert isinstance(stored(config, home, whole=False), dict)
    assert len(runs) == 3


@pytest.mark.parametrize("name", ["documents", "queries", "qrels"])
def test_a_table_of_another_content_is_refused(tmp_path, config, name):
    """An ingest that found another table than the stage is named after is dropped."""
    store = Store(str(tmp_path / "store"))
    table = getattr(store_collection(config, store, tmp_path), name)
    own = ingest.ingest_stage(record_stage(store, config, tmp_path), config, tmp_path, ONE_READER)
    assert own.artifact.exists()
    named = replace(table, params={"content": "0" * 64})
    with pytest.raises(DesaError, match="changed while"):
        ingested.ingested_table(named, own)
    assert not own.artifact.exists()


def test_rows_of_another_content_are_refused(tmp_path, config, monkeypatch):
    """What is written is compared too: here a task writes other texts than were merged."""
    home = tmp_path / "home"
    found = stored(config, home, whole=False)
    shutil.rmtree(home / "pieces" / "corpus")
    own = ingested.between
    with monkeypatch.context() as patch:
        patch.setattr(ingested, "between", lambda *args: [(key, "x") for key, _ in own(*args)])
        assert "changed while" in stored(config, home, whole=False)
    assert not list(home.glob("pieces/corpus/*/*.parquet"))
    assert not list(home.glob("pieces/ingest/*/manifest.json"))
    assert stored(config, home, whole=False) == found
