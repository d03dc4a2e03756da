"""Damage to stored files is found, named and, where asked, repaired; the remains of killed writers
block nothing.
"""

import os

import pytest
from store_processes import CONTENT, KEY, build, data_of, flip, folder_of, part

from desa_ray.errors import CorruptArtifact, Problems
from desa_ray.store.artifacts import Store
from desa_ray.store.catalog import entry
from desa_ray.store.files import Files
from desa_ray.store.sealed import unseal


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
        # The ledger sees size and presence: the resume computes it again
        assert not reader.has_part(part(0))
        return
    with pytest.raises(CorruptArtifact) as error:
        reader.read_part(part(0))
    assert info.file in error.value.where
    assert info.sha256 in error.value.what
    assert "store.repair=true" in error.value.hint
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
    damaged = {
        "part": artifact.parts()[part(1)].file,
        "sidecar": part(1) + ".json",
        "manifest": "manifest.json",
    }[file]
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


@pytest.mark.parametrize("file", ["part", "sidecar", "manifest", "layout"])
def test_a_repair_drops_nothing_that_another_has_repaired(tmp_path, monkeypatch, file):
    """A repair drops nothing that another has repaired meanwhile. Two repairs at once: the
    other one drops and rewrites the part between this one's look and its deletion.
    """
    artifact = Store(tmp_path).artifact(KEY)
    first = build(artifact)
    damaged = {"part": artifact.parts()[part(1)].file, "sidecar": part(1) + ".json"}.get(
        file, f"{file}.json"
    )
    flip(folder_of(tmp_path) / damaged)
    own, other = (Store(tmp_path, repair=True).artifact(KEY) for _ in range(2))
    look = own.damage

    def look_slowly():
        found = look()
        if found:
            monkeypatch.setattr(own, "damage", look)
            assert not other.exists()
            build(other)
        return found

    monkeypatch.setattr(own, "damage", look_slowly)
    assert own.exists()
    assert own.repaired == []
    assert {**own.manifest(), "meta": None} == {**first, "meta": None}
    assert Store(tmp_path).artifact(KEY).damage() == {}


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


def test_a_part_without_its_sidecar_does_not_block_a_rerun(tmp_path):
    """A part without its sidecar does not block a rerun that computes other bytes."""
    artifact = Store(tmp_path).artifact(KEY)
    artifact.write_part(part(0), b"first draw", rows=1)
    # As when the writer was killed between the two files
    (folder_of(tmp_path) / (part(0) + ".json")).unlink()
    assert not artifact.has_part(part(0))
    artifact.write_part(part(0), b"second draw", rows=1)
    assert artifact.read_part(part(0)).read_bytes() == b"second draw"


def test_a_damaged_remnant_does_not_block_a_rerun_that_computes(tmp_path):
    """A damaged remnant does not block a rerun that computes the same bytes."""
    artifact = Store(tmp_path).artifact(KEY)
    info = artifact.write_part(part(0), data_of(0), rows=1)
    (folder_of(tmp_path) / (part(0) + ".json")).unlink()
    flip(folder_of(tmp_path) / info.file)
    assert artifact.write_part(part(0), data_of(0), rows=1) == info
    assert artifact.read_part(part(0)).read_bytes() == data_of(0)


def test_a_discarded_part_takes_the_manifest(root):
    """A discarded part takes the manifest with it and only its own files."""
    artifact = Store(root).artifact(KEY)
    build(artifact)
    artifact.discard_part(part(1))
    assert not Store(root).artifact(KEY).exists()
    assert list(artifact.parts()) == [part(0), part(2)]
    assert len(artifact._files.list(f"{KEY.stage}/{KEY.short}")) == 5


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_a_manifest_that_never_ends_is_damage(kind, tmp_path):
    """A store from elsewhere may hold anything; nothing waits for it."""
    files = Files(tmp_path)
    place = tmp_path / "stage" / "abc" / "manifest.json"
    place.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to("/dev/zero")
    assert "is not a plain file" in getattr(entry(files, "stage", "abc"), "problem", "")
    with pytest.raises(CorruptArtifact, match=r"manifest\.json: is not a plain file"):
        files.read_bytes("stage/abc/manifest.json")
