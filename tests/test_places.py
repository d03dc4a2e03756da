"""The private folder: in the user's runtime folder or the home, never a link, never open
to others.
"""

import os
import stat
from pathlib import Path

import pytest

from desa_ray.engines.engine_group import lead_group, notes_folder
from desa_ray.errors import DesaError
from desa_ray.places import home, private_folder


@pytest.fixture
def runtime(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    return folder


def mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_the_runtime_folder_is_taken_where_it_is_private(runtime):
    assert private_folder() == runtime / "desa-ray"
    assert mode(runtime / "desa-ray") == 0o700
    assert private_folder() == runtime / "desa-ray"


@pytest.mark.parametrize("fault", ["open", "link", "absent", "relative", "empty", "a file"])
def test_else_the_home_is_taken(runtime, tmp_path, monkeypatch, fault):
    match fault:
        case "open":
            runtime.chmod(0o755)
        case "link":
            (tmp_path / "link").symlink_to(runtime)
            monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "link"))
        case "absent":
            monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "nothing"))
        case "relative":
            monkeypatch.chdir(tmp_path)
            monkeypatch.setenv("XDG_RUNTIME_DIR", "runtime")
        case "empty":
            monkeypatch.setenv("XDG_RUNTIME_DIR", "")
        case "a file":
            (tmp_path / "file").write_text("")
            monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    expected = home() / f"run-{os.geteuid()}"
    assert private_folder() == expected
    assert mode(expected) == 0o700
    assert list(runtime.iterdir()) == []


def test_a_runtime_folder_of_somebody_else_is_not_taken(runtime, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(DesaError, match="belongs to another user") as told:
        private_folder()
    assert told.value.where == str(home() / f"run-{os.geteuid()}")
    assert list(runtime.iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "words"), [("link", "is a link"), ("file", "is not a folder"), ("open", "mode 0755")]
)
def test_what_somebody_put_in_its_place_is_refused_by_name(runtime, tmp_path, fault, words):
    place = runtime / "desa-ray"
    match fault:
        case "link":
            (tmp_path / "elsewhere").mkdir(mode=0o700)
            place.symlink_to(tmp_path / "elsewhere")
        case "file":
            place.write_text("")
        case "open":
            place.mkdir()
            place.chmod(0o755)
    with pytest.raises(DesaError, match=words) as told:
        private_folder()
    assert told.value.where == str(place)
    assert "remove it" in told.value.hint
    for use in (notes_folder, lead_group):
        with pytest.raises(DesaError, match=words):
            use()
    if fault == "link":
        assert list((tmp_path / "elsewhere").iterdir()) == []


def test_nothing_of_ours_has_a_fixed_name_in_the_shared_folder(runtime, tmp_path, monkeypatch):
    """Nothing of ours has a fixed name in the shared folder for temporary files."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    from desa_ray.stages.kernels import compile_kernels

    compile_kernels.cache_clear()
    compile_kernels()
    notes_folder()
    assert list(shared.iterdir()) == []
    assert sorted(path.name for path in (runtime / "desa-ray").iterdir())[0].startswith("engines-")
    assert (runtime / "desa-ray" / "kernels.lock").exists()


def test_names_that_are_not_utf8_are_refused(tmp_path, monkeypatch):
    """Polars and SQLite open no file there."""
    odd = tmp_path / "h\udcff"
    odd.mkdir()
    monkeypatch.setenv("DESA_HOME", str(odd))
    with pytest.raises(DesaError, match=r"h\\udcff: the name is not UTF-8 .*DESA_HOME"):
        home()
    monkeypatch.setenv("DESA_HOME", "below")
    monkeypatch.chdir(odd)
    with pytest.raises(DesaError, match="cd to a folder with another name"):
        home()


@pytest.mark.parametrize("name", [" ", "\t", "~", "~/desa", "s3://bucket/x", "file:///tmp/x"])
def test_a_home_that_names_no_folder_is_refused(name, monkeypatch):
    """A folder of that very name would be made in the current one."""
    monkeypatch.setenv("DESA_HOME", name)
    with pytest.raises(DesaError, match="DESA_HOME: ") as refused:
        home()
    assert str(refused.value).isprintable()
