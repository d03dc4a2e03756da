"""Artifacts: there only when whole, resumed part by part, damage found and named, writers at once agree."""

import json
import pickle
import time
from pathlib import Path
from uuid import uuid4

import pytest
from store_processes import CONTENT, KEY, PROCESSES, data_of, die_before_the_sidecar, part, race_for_it, write_slowly

from desa_ray.errors import CorruptArtifact, DesaError, Problems
from desa_ray.store.artifacts import Artifact, Store
from desa_ray.store.keys import Key
from desa_ray.store.sealed import seal, unseal


@pytest.fixture(params=["local", "memory"])
def root(request, tmp_path) -> str:
    return str(tmp_path) if request.param == "local" else f"memory://{uuid4().hex}"


def build(artifact: Artifact, parts: int = 3) -> dict:
    artifact.layout({"bounds": list(range(parts + 1))})
    for number in range(parts):
        artifact.write_part(part(number), data_of(number), rows=10, content=CONTENT)
    return artifact.finish(CONTENT, counts={"rows": 10 * parts}, meta={"commit": "abc", "timings": {"encode_s": 1.5}})


def folder_of(root: str | Path) -> Path:
    return Path(root) / KEY.stage / KEY.short


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_an_artifact_is_there_only_after_its_manifest(root):
    artifact = Store(root).artifact(KEY)
    artifact.write_part(part(0), data_of(0), rows=10)
    assert not artifact.exists()
    with pytest.raises(DesaError, match=r"vectors/.*: is not in the store"):
        artifact.manifest()
    build(artifact)
    assert Store(root).artifact(KEY).exists()


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
    assert [Store(root).artifact(KEY).read_part(name).read_bytes() for name in artifact.parts()] == [
        data_of(number) for number in range(3)
    ]


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


def test_finishing_twice_keeps_the_first_manifest_and_refuses_other_content(root):
    first = build(Store(root).artifact(KEY))
    again = Store(root).artifact(KEY).finish(CONTENT, counts={}, meta={"timings": {"encode_s": 9.0}})
    assert again == first
    with pytest.raises(DesaError, match=f"holds content {CONTENT}, this run computed {'00' * 32}"):
        Store(root).artifact(KEY).finish("00" * 32, counts={}, meta={})


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "x.json", "manifest.json", "layout", ".x", "x.", "", "a b", "x.tar.gz"]
)
def test_names_that_are_no_part_are_refused(root, name):
    artifact = Store(root).artifact(KEY)
    for use in (artifact.has_part, artifact.read_part, lambda name: artifact.write_part(name, b"", rows=0)):
        with pytest.raises(DesaError, match="not a part's name"):
            use(name)


def test_artifacts_survive_pickling(tmp_path):
    artifact = pickle.loads(pickle.dumps(Store(tmp_path).artifact(KEY)))
    build(artifact)
    assert Store(tmp_path).artifact(KEY).exists()


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
@pytest.mark.parametrize("complete", [True, False])
def test_a_damaged_part_is_found_and_named_when_read(tmp_path, damage, complete):
    artifact = Store(tmp_path).artifact(KEY)
    info = artifact.write_part(part(0), data_of(0), rows=10)
    if complete:
        artifact.finish(CONTENT, counts={}, meta={})
    path = folder_of(tmp_path) / info.file
    if damage == "flip":
        flip(path)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()
    reader = Store(tmp_path).artifact(KEY)
    if not complete and damage != "flip":
        assert not reader.has_part(part(0))  # the ledger sees size and presence: the resume computes it again
        return
    with pytest.raises(CorruptArtifact) as error:
        reader.read_part(part(0))
    assert info.file in error.value.where
    assert info.sha256 in error.value.what
    assert "store.repair=true" in error.value.mend
    with pytest.raises(CorruptArtifact, match=info.file):
        reader.verify()


def test_every_flipped_byte_of_every_file_is_found(tmp_path):
    manifest = build(Store(tmp_path).artifact(KEY))
    files = sorted(folder_of(tmp_path).iterdir())
    assert len(files) == 8
    for path in files:
        data = path.read_bytes()
        for position in range(0, len(data), 37):
            path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
            damage = Store(tmp_path).artifact(KEY).damage()
            if damage:
                assert [path.name in error.where for error in damage.values()] == [True]
            else:  # only a blank between values may change without a change of meaning
                assert unseal(path.read_bytes()) == unseal(data)
        path.write_bytes(data)
    assert Store(tmp_path).artifact(KEY).manifest() == manifest


def test_several_damaged_files_are_reported_together(tmp_path):
    artifact = Store(tmp_path).artifact(KEY)
    build(artifact)
    for info in list(artifact.parts().values())[:2]:
        flip(folder_of(tmp_path) / info.file)
    assert sorted(artifact.damage()) == [part(0), part(1)]
    with pytest.raises(Problems) as error:
        artifact.verify()
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize("file", ["part", "sidecar", "manifest"])
def test_repair_drops_what_is_damaged_and_keeps_the_rest(tmp_path, file):
    artifact = Store(tmp_path).artifact(KEY)
    first = build(artifact)
    damaged = {"part": artifact.parts()[part(1)].file, "sidecar": part(1) + ".json", "manifest": "manifest.json"}[file]
    flip(folder_of(tmp_path) / damaged)
    again = Store(tmp_path, repair=True).artifact(KEY)
    assert not again.exists()
    assert [damaged in line for line in again.repaired] == [True]
    assert [again.has_part(part(number)) for number in range(3)] == [True, file == "manifest", True]
    assert build(again) == first
    Store(tmp_path).artifact(KEY).verify()


def test_repair_drops_everything_where_the_layout_is_lost(tmp_path):
    build(Store(tmp_path).artifact(KEY))
    flip(folder_of(tmp_path) / "layout.json")
    again = Store(tmp_path, repair=True).artifact(KEY)
    assert not again.exists()
    assert again.parts() == {}
    assert not folder_of(tmp_path).exists()


def test_repair_checks_the_parts_of_a_resume(tmp_path):
    info = Store(tmp_path).artifact(KEY).write_part(part(0), data_of(0), rows=10)
    flip(folder_of(tmp_path) / info.file)
    again = Store(tmp_path, repair=True).artifact(KEY)
    assert not again.exists()
    assert not again.has_part(part(0))


def test_repair_leaves_what_is_whole_alone(root):
    first = build(Store(root).artifact(KEY))
    again = Store(root, repair=True).artifact(KEY)
    assert again.exists()
    assert again.repaired == []
    assert again.manifest() == first


def test_a_truncated_sidecar_counts_for_nothing_and_is_replaced(tmp_path):
    artifact = Store(tmp_path).artifact(KEY)
    first = artifact.write_part(part(0), data_of(0), rows=10)
    sidecar = folder_of(tmp_path) / (part(0) + ".json")
    whole = sidecar.read_bytes()
    for length in range(0, len(whole) - 1, 11):
        sidecar.write_bytes(whole[:length])
        assert artifact.parts() == {}
        assert not artifact.has_part(part(0))
    assert artifact.write_part(part(0), data_of(0), rows=10) == first
    assert sidecar.read_bytes() == whole


def test_a_part_without_its_sidecar_does_not_block_a_rerun_that_computes_other_bytes(tmp_path):
    artifact = Store(tmp_path).artifact(KEY)
    artifact.write_part(part(0), b"first draw", rows=1)
    (folder_of(tmp_path) / (part(0) + ".json")).unlink()  # as when the writer was killed between the two files
    assert not artifact.has_part(part(0))
    artifact.write_part(part(0), b"second draw", rows=1)
    assert artifact.read_part(part(0)).read_bytes() == b"second draw"


def test_a_damaged_remnant_does_not_block_a_rerun_that_computes_the_same_bytes(tmp_path):
    artifact = Store(tmp_path).artifact(KEY)
    info = artifact.write_part(part(0), data_of(0), rows=1)
    (folder_of(tmp_path) / (part(0) + ".json")).unlink()
    flip(folder_of(tmp_path) / info.file)
    assert artifact.write_part(part(0), data_of(0), rows=1) == info
    assert artifact.read_part(part(0)).read_bytes() == data_of(0)


def test_a_discarded_part_takes_the_manifest_with_it_and_only_its_own_files(root):
    artifact = Store(root).artifact(KEY)
    build(artifact)
    artifact.discard_part(part(1))
    assert not Store(root).artifact(KEY).exists()
    assert list(artifact.parts()) == [part(0), part(2)]
    assert len(artifact._files.list(f"{KEY.stage}/{KEY.short}")) == 5


def test_discard_leaves_nothing(root):
    artifact = Store(root).artifact(KEY)
    build(artifact)
    artifact.discard()
    artifact.discard()
    assert not artifact.exists()
    assert list(Store(root).list()) == []


@pytest.mark.parametrize("file", ["manifest.json", "layout.json", "part-00000.npy.json"])
def test_a_folder_of_another_key_with_the_same_first_digits_is_refused(tmp_path, file):
    build(Store(tmp_path).artifact(KEY))
    path = folder_of(tmp_path) / file
    document = unseal(path.read_bytes())
    other = Key("vectors", 2, {}, {})
    document["key"] = other.document() if file == "manifest.json" else other.digest
    path.write_bytes(seal(document))
    artifact = Store(tmp_path, repair=True).artifact(KEY)
    with pytest.raises(DesaError, match="another key") as error:
        artifact.exists()
    assert not isinstance(error.value, CorruptArtifact)
    assert path.exists()  # repair never touches what belongs to somebody else


def test_a_seal_tells_any_change_of_a_value():
    sealed = seal({"rows": 10, "name": "é"})
    assert unseal(sealed) == {"rows": 10, "name": "é"}
    changed = [sealed.replace(b"10", b"11"), sealed[:-3], b"[]", b"", json.dumps({"rows": 10}).encode()]
    for data in changed:
        with pytest.raises(ValueError, match=r"seal|Expecting|delimiter"):
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


def test_listing_names_a_damaged_manifest_and_passes_over_foreign_files(tmp_path):
    store = Store(tmp_path)
    build(store.artifact(KEY))
    (folder_of(tmp_path) / "manifest.json").write_text("{")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "vectors" / "notes").mkdir()
    (entry,) = store.list()
    assert not entry.complete
    assert "manifest.json is damaged" in entry.problem


# Real processes: killed anywhere, and several at once.


def test_a_writer_killed_before_the_sidecar_has_not_written_the_part(tmp_path):
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
    processes = [PROCESSES.Process(target=race_for_it, args=(str(tmp_path), n, barrier, results)) for n in range(3)]
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
