"""Artifacts: there only when whole, resumed part by part, damage found and named, writers at once
agree.
"""

import json
import pickle
import time
from pathlib import Path

import pytest
from store_processes import (
    CONTENT,
    KEY,
    PROCESSES,
    build,
    data_of,
    die_before_the_sidecar,
    folder_of,
    part,
    race_for_it,
    write_slowly,
)

from desa_ray.errors import DesaError
from desa_ray.store.artifacts import Store
from desa_ray.store.files import Files
from desa_ray.store.keys import Key
from desa_ray.store.sealed import seal, unseal


def test_an_artifact_is_there_only_after_its_manifest(root):
    artifact = Store(root).artifact(KEY)
    artifact.write_part(part(0), data_of(0), rows=10)
    assert not artifact.exists()
    with pytest.raises(DesaError, match=r"vectors/.*: is not in the store"):
        artifact.manifest()
    build(artifact)
    assert Store(root).artifact(KEY).exists()


def test_a_snapshot_reads_a_manifest_once(tmp_path, monkeypatch):
    store, read = Store(tmp_path), []
    look = Files.read_bytes

    def counted(files: Files, name: str) -> bytes | None:
        read.append(name)
        return look(files, name)

    with store.snapshot():
        assert not store.artifact(KEY).exists()
        build(Store(tmp_path).artifact(KEY))
        monkeypatch.setattr(Files, "read_bytes", counted)
        assert all(store.artifact(KEY).exists() for _ in range(9))
    assert len(read) == 1
    assert store.artifact(KEY).exists()
    assert len(read) == 2


def test_the_manifest_tells_key_content_counts_layout_and_parts(root):
    build(Store(root).artifact(KEY))
    manifest = Store(root).artifact(KEY).manifest()
    assert Key(**manifest["key"]) == KEY
    assert manifest["content"] == CONTENT
    assert manifest["counts"] == {"rows": 30}
    assert manifest["layout"] == {"bounds": [0, 1, 2, 3]}
    assert manifest["meta"] == {"commit": "abc", "timings": {"encode_s": 1.5}}
    assert list(manifest["parts"]) == [part(0), part(1), part(2)]
    assert set(manifest["parts"][part(0)]) == {"file", "rows", "sha256", "bytes", "content"}


def test_parts_come_back_verified_in_the_order_of_their_names(root):
    artifact = Store(root).artifact(KEY)
    for number in (2, 0, 1):
        artifact.write_part(part(number), data_of(number), rows=10)
    assert [
        Store(root).artifact(KEY).read_part(name).read_bytes() for name in artifact.parts()
    ] == [data_of(number) for number in range(3)]


def test_a_finished_part_is_not_computed_again(root):
    first = Store(root).artifact(KEY).write_part(part(0), data_of(0), rows=10)

    def never(path: Path):
        raise AssertionError("called")

    again = Store(root).artifact(KEY)
    assert again.has_part(part(0))
    assert again.write_part(part(0), never, rows=10) == first
    assert not again.has_part(part(1))


def test_the_first_layout_stands(root):
    assert Store(root).artifact(KEY).layout({"bounds": (0, 5)}) == {"bounds": [0, 5]}
    assert Store(root).artifact(KEY).layout({"bounds": [0, 2, 5]}) == {"bounds": [0, 5]}


def test_finish_refuses_missing_parts_and_names_them(root):
    artifact = Store(root).artifact(KEY)
    artifact.write_part(part(1), data_of(1), rows=10)
    with pytest.raises(DesaError, match=f"2 parts are missing: {part(0)}, {part(2)}"):
        artifact.finish(CONTENT, counts={}, meta={}, parts=[part(number) for number in range(3)])
    assert not artifact.exists()


def test_finishing_twice_keeps_the_first_manifest_and_refuses(root):
    """Finishing twice keeps the first manifest and refuses other content."""
    first = build(Store(root).artifact(KEY))
    again = (
        Store(root).artifact(KEY).finish(CONTENT, counts={}, meta={"timings": {"encode_s": 9.0}})
    )
    assert again == first
    with pytest.raises(DesaError, match=f"holds content {CONTENT}, this run computed {'00' * 32}"):
        Store(root).artifact(KEY).finish("00" * 32, counts={}, meta={})


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "x.json", "manifest.json", "layout", ".x", "x.", "", "a b", "x.tar.gz"]
)
def test_names_that_are_no_part_are_refused(root, name):
    artifact = Store(root).artifact(KEY)
    for use in (
        artifact.has_part,
        artifact.read_part,
        lambda name: artifact.write_part(name, b"", rows=0),
    ):
        with pytest.raises(DesaError, match="not a part's name"):
            use(name)


def test_artifacts_survive_pickling(tmp_path):
    artifact = pickle.loads(pickle.dumps(Store(tmp_path).artifact(KEY)))
    build(artifact)
    assert Store(tmp_path).artifact(KEY).exists()


def test_discard_leaves_nothing(root):
    artifact = Store(root).artifact(KEY)
    build(artifact)
    artifact.discard()
    artifact.discard()
    assert not artifact.exists()
    assert list(Store(root).list()) == []


@pytest.mark.parametrize("file", ["manifest.json", "layout.json"])
def test_a_document_of_another_folder_counts_as_damaged(tmp_path, file):
    build(Store(tmp_path).artifact(KEY))
    path = folder_of(tmp_path) / file
    document = unseal(path.read_bytes())
    other = Key("vectors", 2, {}, {})
    document["key"] = other.document() if file == "manifest.json" else other.digest
    path.write_bytes(seal(document))
    found = Store(tmp_path).artifact(KEY).damage()
    assert "not that of its folder" in str(found[file])


def test_a_seal_tells_any_change_of_a_value():
    sealed = seal({"rows": 10, "name": "é"})
    assert unseal(sealed) == {"rows": 10, "name": "é"}
    changed = [
        sealed.replace(b"10", b"11"),
        sealed[:-3],
        b"[]",
        b"",
        json.dumps({"rows": 10}).encode(),
    ]
    for data in changed:
        with pytest.raises(ValueError, match=r"seal|checksum|Expecting|delimiter"):
            unseal(data)


def test_the_store_lists_and_finds_its_artifacts(root):
    store = Store(root)
    other = Key("postings", 1, {}, {})
    build(store.artifact(KEY))
    store.artifact(other).write_part(part(0), data_of(0), rows=1)
    store.check_writable()
    entries = list(store.list())
    assert [(e.stage, e.short, e.complete) for e in entries] == [
        ("postings", other.short, False),
        ("vectors", KEY.short, True),
    ]
    assert entries[1].key == KEY
    assert entries[1].bytes > 3000
    assert abs(entries[1].last_use - time.time()) < 3600
    assert store.find("vectors", KEY.digest) == entries[1]
    assert store.find("vectors", KEY.digest[:12] + "0" * 52) is None
    assert store.find("vectors", other.digest) is None


def test_listing_names_a_damaged_manifest_and_passes(tmp_path):
    """Listing names a damaged manifest and passes over foreign files."""
    store = Store(tmp_path)
    build(store.artifact(KEY))
    (folder_of(tmp_path) / "manifest.json").write_text("{")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "vectors" / "notes").mkdir()
    (entry,) = store.list()
    assert not entry.complete
    assert "manifest.json is damaged" in entry.problem


# Real processes: killed anywhere, and several at once.


def test_a_writer_killed_before_the_sidecar_has_not_written(tmp_path):
    """A writer killed before the sidecar has not written the part."""
    process = PROCESSES.Process(target=die_before_the_sidecar, args=(str(tmp_path),))
    process.start()
    process.join(60)
    assert process.exitcode == -9
    assert any(path.name.startswith("part-00001-") for path in folder_of(tmp_path).iterdir())
    artifact = Store(tmp_path).artifact(KEY)
    assert list(artifact.parts()) == [part(0)]
    build(artifact)
    artifact.verify()


def test_a_run_killed_at_any_moment_resumes_to_the_same_artifact(tmp_path):
    parts, done = 60, set()
    artifact = Store(tmp_path).artifact(KEY)
    for pause_ms in (1, 3, 5, 7, 11, 13):
        process = PROCESSES.Process(target=write_slowly, args=(str(tmp_path), parts))
        process.start()
        while len(artifact.parts()) == len(done):  # until it is at work
            time.sleep(0.001)
        time.sleep(pause_ms / 1000)
        process.kill()
        process.join(60)
        assert process.exitcode == -9
        artifact.verify()
        assert done < set(artifact.parts())  # what was finished stays finished
        done = set(artifact.parts())
    assert not artifact.exists()
    process = PROCESSES.Process(target=write_slowly, args=(str(tmp_path), parts))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    artifact.verify()
    assert [artifact.read_part(part(n)).read_bytes() for n in range(parts)] == [
        bytes([n]) * 100_000 for n in range(parts)
    ]


def test_writers_at_once_agree_on_layout_parts_and_manifest(tmp_path):
    barrier, results = PROCESSES.Barrier(3), PROCESSES.Queue()
    processes = [
        PROCESSES.Process(target=race_for_it, args=(str(tmp_path), n, barrier, results))
        for n in range(3)
    ]
    for process in processes:
        process.start()
    answers = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert answers[0] == answers[1] == answers[2]
    artifact = Store(tmp_path).artifact(KEY)
    artifact.verify()
    texts = [artifact.read_part(part(n)).read_text() for n in range(30)]
    assert [text.split()[0] for text in texts] == [str(n) for n in range(30)]
    files = [path.name for path in folder_of(tmp_path).iterdir()]
    assert len(files) == 30 + 30 + 2  # the losers' parts are gone, and nothing temporary is left
