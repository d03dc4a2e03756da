"""Sealed documents with other types inside are damage: named by every command, repaired like any
other damage.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from store_processes import KEY, build, folder_of, part

from desa_ray.errors import CorruptArtifact, DesaError
from desa_ray.jobs import store as command
from desa_ray.store.artifacts import Store
from desa_ray.store.keys import Key
from desa_ray.store.sealed import SEAL, seal, unseal

WRONG: list[Any] = [None, True, -1, 1.5, 10**400, "references", [], [1], {}, {"a": 1}, [[[]]]]
NOT_JSON = {
    "empty": b"",
    "cut": b'{"key": ',
    "not UTF-8": b'{"key": "\xff\xfe"}',
    "deep": b"[" * 200_000,
    "deep and closed": b"[" * 200_000 + b"]" * 200_000,
    "not a number": b'{"key": NaN}',
    "too large a number": b'{"key": 1e999}',
    "too long a number": b'{"key": ' + b"1" * 5000 + b"}",
    "lone surrogate": b'{"key": "\\ud800"}',
    "a text": b'"text"',
    "null": b"null",
}
DOCUMENTS = ("manifest.json", "layout.json", f"{part(0)}.json")


@pytest.fixture
def store(tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("DESA_HOME", str(tmp_path))
    store = Store(tmp_path / "store")
    build(store.artifact(KEY))
    return store


def places(document: Any, at: tuple = ()) -> Iterator[tuple]:
    """Every place in a document, outer ones first."""
    inner = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for name, value in inner:
        yield (*at, name)
        yield from places(value, (*at, name))


def changed(document: dict, place: tuple, value: Any) -> dict:
    """A copy with another value at a place."""
    copy = json.loads(json.dumps(document))
    inner = copy
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return copy


def commands(capsys) -> tuple[int, str]:
    """`desa store verify`, `list` and `gc` one after the other; what verify said. None may raise
    another error.
    """
    code = command.main(["verify"])
    told = capsys.readouterr().err
    command.main(["list", "--all", "--no-runs"])
    with suppress(DesaError):  # what is needed is damaged
        command.main(["gc", "--older-than", "0"])
    capsys.readouterr()
    return code, told


FREE = ("params", "timings", "commit")  # whatever a stage or a run writes there


@pytest.mark.long
@pytest.mark.parametrize("name", DOCUMENTS)
def test_other_types_in_a_sealed_document_are_damage(store, capsys, name):
    file = folder_of(store.files.root) / name
    whole = file.read_bytes()
    document = unseal(whole)
    found = 0
    for place in places(document):
        for value in WRONG:
            edited = changed(document, place, value)
            if edited == document:
                continue
            file.write_bytes(seal(edited))
            artifact = Store(store.files.root).artifact(KEY)
            try:
                told = artifact.damage()
            except DesaError as error:
                told = {name: error}
            if any(name in FREE for name in place):
                continue
            if told:
                found += 1
                assert all(str(file.parent) in str(error) for error in told.values()), (
                    place,
                    value,
                )
                with pytest.raises(DesaError, match=str(file.parent)):
                    artifact.verify()
    file.write_bytes(whole)
    assert Store(store.files.root).artifact(KEY).damage() == {}
    assert found > 5 * len(list(places(document)))


@pytest.mark.long
@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize(
    "place", [("parts", part(1)), ("counts",), ("meta",), ("key",), ("key", "inputs"), ("content",)]
)
def test_the_commands_name_a_manifest_of_wrong_shape(store, capsys, place, value):
    file = folder_of(store.files.root) / "manifest.json"
    document = unseal(file.read_bytes())
    file.write_bytes(seal(changed(document, place, value)))
    code, told = commands(capsys)
    if isinstance(value, dict) and place in (("counts",), ("meta",)):
        assert (code, told) == (0, "")  # another or no entry there is no other type
        return
    assert code == 1
    assert str(file.parent) in told
    assert "is damaged" in told
    assert len(told.splitlines()) == 1
    again = Store(store.files.root, repair=True).artifact(KEY)
    assert not again.exists()
    build(again)
    assert commands(capsys) == (0, "")


@pytest.mark.parametrize("data", NOT_JSON.values(), ids=NOT_JSON)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_not_a_document_is_damage(store, capsys, name, data):
    (folder_of(store.files.root) / name).write_bytes(data)
    code, told = commands(capsys)
    assert code == 1
    assert name in told
    again = Store(store.files.root, repair=True).artifact(KEY)
    assert not again.exists()
    build(again)
    assert commands(capsys) == (0, "")


def test_the_manifest_that_a_trial_made(tmp_path, monkeypatch, capsys):
    """A part that is a text, with a seal that fits (from the trials of the store)."""
    monkeypatch.setenv("DESA_HOME", str(tmp_path))
    data = (Path(__file__).parent / "wrong_shapes.json").read_bytes()
    folder = tmp_path / "store" / "fusion" / "2052c8272300"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(data)
    code, told = commands(capsys)
    assert code == 1
    assert f"damaged: {folder}/manifest.json is damaged: its 'parts.run-00000.parquet'" in told
    key = Key(**unseal(data)["key"])
    with pytest.raises(CorruptArtifact) as error:
        Store(tmp_path / "store").artifact(key).exists()
    assert error.value.where == f"{folder}/manifest.json"
    assert "store.repair=true" in error.value.hint
    assert not Store(tmp_path / "store", repair=True).artifact(key).exists()


def test_a_manifest_in_another_place_is_damage(store, capsys):
    other = Path(store.files.root) / KEY.stage / ("0" * 12)
    folder_of(store.files.root).rename(other)
    code, told = commands(capsys)
    assert code == 1
    assert str(other) in told
    assert KEY.short in told


def test_a_layout_of_another_key_is_named(store, capsys):
    file = folder_of(store.files.root) / "layout.json"
    document = unseal(file.read_bytes())
    file.write_bytes(seal(document | {"key": "0" * 64}))
    code, told = commands(capsys)
    assert code == 1
    assert "layout.json" in told


def test_what_a_manifest_does_not_tell_is_an_error_by_name(store):
    manifest = store.artifact(KEY).manifest()
    assert manifest["counts"].get("documents") is None
    with pytest.raises(CorruptArtifact, match="'counts' has no 'documents'") as told:
        _ = manifest["counts"]["documents"]
    assert told.value.where.endswith("manifest.json")
    assert SEAL not in manifest
