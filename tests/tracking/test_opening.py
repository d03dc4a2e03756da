"""A tracking store that cannot be opened: one error that says why, at once, and nothing of it
changed.
"""

import json
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from desa_ray.errors import DesaError
from desa_ray.tracking import opening
from desa_ray.tracking.last import last_uri
from desa_ray.tracking.opening import artifact_folder, open_client


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A database that MLflow made."""
    file = tmp_path_factory.mktemp("whole") / "mlflow.db"
    open_client(f"sqlite:///{file}").create_experiment("mine")
    return file


@pytest.fixture
def database(whole, tmp_path) -> Path:
    """A copy of it, to be spoilt."""
    file = tmp_path / "mlflow.db"
    file.write_bytes(whole.read_bytes())
    return file


def _refused(uri: str, *words: str) -> str:
    with pytest.raises(DesaError) as caught:
        open_client(uri)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith("tracking.uri: ")
    for word in words:
        assert word in text
    return text


def test_a_whole_database_opens(database):
    assert open_client(f"sqlite:///{database}").get_experiment_by_name("mine") is not None


def _overwrite_in_the_middle(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40960] = b"\xa5" * 40960
    file.write_bytes(data)


SPOILT = {
    "garbage": lambda file: file.write_bytes(b"this is not a database at all " * 100),
    "cut": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "overwritten in the middle": _overwrite_in_the_middle,
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_damaged_database_is_refused_and_left_as_it_is(how, database):
    SPOILT[how](database)
    before = database.read_bytes()
    _refused(f"sqlite:///{database}", "damaged", str(database), "move it elsewhere")
    assert database.read_bytes() == before


def test_a_locked_database_is_waited_for_and_then_named(database, monkeypatch):
    monkeypatch.setattr(opening, "LOCK_TIMEOUT_S", 0.2)
    with closing(sqlite3.connect(database)) as other:
        other.execute("BEGIN EXCLUSIVE")
        _refused(f"sqlite:///{database}", "locked", "end that program")
    open_client(f"sqlite:///{database}")


def test_a_folder_a_missing_folder_and_a_foreign_database(tmp_path):
    """A folder a missing folder and a foreign database are refused."""
    _refused(f"sqlite:///{tmp_path}", "it is a folder")
    _refused(f"sqlite:///{tmp_path}/nowhere/mlflow.db", f"no folder {tmp_path}/nowhere")
    assert not (tmp_path / "nowhere").exists()
    foreign = tmp_path / "shop.db"
    with closing(sqlite3.connect(foreign)) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER)")
    before = foreign.read_bytes()
    _refused(f"sqlite:///{foreign}", "the database of another program")
    assert foreign.read_bytes() == before


def test_addresses_that_are_none_are_refused(tmp_path):
    _refused("foo", "sqlite:///PATH", "http(s)://HOST:PORT")
    _refused(str(tmp_path), "sqlite:///PATH")
    _refused("nosuchdb://host/name", "sqlite:///PATH")
    _refused("sqlite://", "in memory", "name a file")


def test_a_driver_that_is_not_installed_is_named(tmp_path):
    """A driver that is not installed is named and the password is not."""
    text = _refused(
        "oracle+cx_oracle://user:secret@host/name",
        "driver cx_Oracle is not installed",
        "pip install",
    )
    assert "secret" not in text


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port where nobody listens, kept from others."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_a_server_that_is_away_is_named_without_its_password(closed_port):
    text = _refused(
        f"http://user:secret@127.0.0.1:{closed_port}",
        f"http://***@127.0.0.1:{closed_port}",
        "start the server",
    )
    assert "secret" not in text


def test_a_database_of_another_version_says_what_to_do(database):
    with closing(sqlite3.connect(database)) as changed:
        changed.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
        changed.commit()
    _refused(f"sqlite:///{database}", "version")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"uri": 3}', "\x00\xff", '{"url": "sqlite:///x"}']
)
def test_a_damaged_note_of_the_last_run_is_told(text, tmp_path):
    (tmp_path / "last_tracking.json").write_text(text, encoding="latin-1")
    with pytest.raises(DesaError, match=r"last_tracking\.json: is damaged.*delete it"):
        last_uri(tmp_path)


def test_the_note_of_the_last_run_is_read_and_its_absence_told(tmp_path):
    with pytest.raises(DesaError, match="no run has been logged here"):
        last_uri(tmp_path)
    (tmp_path / "last_tracking.json").write_text(json.dumps({"uri": "sqlite:///x"}))
    assert last_uri(tmp_path) == "sqlite:///x"
    (tmp_path / "last_tracking.json").unlink()
    (tmp_path / "last_tracking.json").mkdir()
    with pytest.raises(DesaError, match="cannot be read"):
        last_uri(tmp_path)


def test_a_file_where_artifacts_should_go_is_told(tmp_path):
    (tmp_path / "mlartifacts").write_text("")
    with pytest.raises(DesaError, match=r"mlartifacts: cannot be created.*move"):
        artifact_folder(tmp_path / "mlartifacts")
