"""A tracking server or disk that cannot take a log: who is to blame, and what to do meanwhile."""

import socket
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from desa_ray.errors import DesaError
from desa_ray.tracking.opening import artifact_folder, open_client
from tests.raw_server import answer, raw_server, says
from tests.tracking.entries_made_up import made_cell, open_log, runs_in

OFFLINE = "tracking.offline=true now, and `desa sync`"
FULL = (
    b'{"error_code": "INTERNAL_ERROR", "message": "(sqlite3.OperationalError) database or disk is'
    b' full [SQL: X]"}'
)
STATUSES = {
    "a gateway without a server": (
        answer(b"<html>nginx</html>", "502 Bad Gateway"),
        ["502 Bad Gateway", OFFLINE],
    ),
    "a server that starts": (
        answer(b"", "503 Service Unavailable"),
        ["503 Service Unavailable", OFFLINE],
    ),
    "a gateway that waited": (answer(b"", "504 Gateway Timeout"), ["504", OFFLINE]),
    "a full disk": (
        answer(FULL, "500 Internal Server Error"),
        ["its disk is full", "free space on the tracking server"],
    ),
    "a full object store": (
        answer(b"", "507 Insufficient Storage"),
        ["disk is full", "free space"],
    ),
    "no login": (
        answer(b"You are not authenticated.", "401 Unauthorized"),
        ["MLFLOW_TRACKING_USERNAME"],
    ),
    "no permission": (
        answer(b'{"error_code": "PERMISSION_DENIED"}', "403 Forbidden"),
        ["permission"],
    ),
    "another name than it answers to": (
        answer(b"Invalid Host header - possible DNS rebinding attack detected", "403 Forbidden"),
        ["Invalid Host header", "--allowed-hosts", OFFLINE],
    ),
    "another web server": (answer(b"Not found", "404 Not Found"), ["404", "fix the address"]),
    "no web server": (b"SSH-2.0-OpenSSH_9.6\r\n", ["not HTTP: SSH-2.0", "fix the address"]),
    "one that hangs up": (b"", ["cannot be reached", OFFLINE]),
}


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """No proxies of whoever runs the tests."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def dead() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def _refused(uri: str) -> str:
    with pytest.raises(DesaError) as caught:
        open_client(uri)
    assert caught.value.where == "tracking.uri"
    text = str(caught.value)
    assert text.isprintable()
    return text


@pytest.mark.parametrize("name", STATUSES)
def test_what_a_server_answers_at_the_start_is_told(name):
    """What a server answers at the start is told with its hint."""
    said, words = STATUSES[name]
    with raw_server(says(said)) as server:
        text = _refused(server.url)
    for word in (f"no tracking store at {server.url}", *words):
        assert word in text


def test_where_nobody_is_the_log_can_wait(dead):
    text = _refused(dead)
    assert "Connection refused" in text
    assert OFFLINE in text
    assert "enabled=false" not in text
    assert "name is not known" in _refused("http://nobody.invalid:5000")


def test_a_run_whose_server_is_away_is_told_of_offline(collection, refuse, dead):
    common = [
        "dataset=beir_folder",
        f"dataset.path={collection}",
        "cluster=serial",
        "method=original",
    ]
    refuse(
        ["tracking.uri", dead, "tracking.offline=true", "desa sync"],
        "run",
        *common,
        f"tracking.uri={dead}",
    )


def test_a_dead_proxy_is_named_and_the_server_is_not_blamed(dead, monkeypatch):
    with raw_server(says(answer(b"{}"))) as server:
        monkeypatch.setenv("HTTP_PROXY", dead)
        monkeypatch.setenv("http_proxy", dead)
        text = _refused(server.url)
        assert f"through the proxy {dead} (http_proxy): Connection refused" in text
        assert "set NO_PROXY=127.0.0.1" in text
        assert server.heard == []
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        open_client(server.url)
        assert len(server.heard) == 1


def test_a_proxy_without_the_server_is_named(monkeypatch):
    with raw_server(says(answer(b"", "502 Bad Gateway"))) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert f"502 Bad Gateway through the proxy {proxy.url} (HTTP_PROXY)" in _refused(
            "http://tracking.example:5000"
        )


@pytest.fixture
def full_disk(monkeypatch):
    """SQLite databases that grow no further: the error is SQLite's own."""
    connect = sqlite3.connect

    def limited(*arguments, **options):
        database = connect(*arguments, **options)
        database.execute("PRAGMA max_page_count = 20")
        return database

    monkeypatch.setattr(sqlite3, "connect", limited)
    monkeypatch.setattr(sqlite3.dbapi2, "connect", limited)


def test_a_full_disk_under_a_new_database_is_told(full_disk, tmp_path):
    text = _refused(f"sqlite:///{tmp_path}/mlflow.db")
    assert "its disk is full: " in text
    assert "free space on its disk" in text
    assert "start the server" not in text


def test_a_full_disk_under_a_growing_database_keeps_the_entries(uri, tmp_path):
    log = open_log(uri, tmp_path / "home")
    pages = [1]  # as many as it has

    def limit(connection) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages[0]}")

    event.listen(Engine, "engine_connect", limit)
    try:
        big = replace(
            made_cell(tmp_path / "out", "one"), tags={f"key.{n}": "x" * 7000 for n in range(50)}
        )
        assert log.cell(big) is None
        assert log.unsent == 1
        assert "disk is full" in str(log.outbox.trouble)
        pages[0] = 1 << 30
        log.end("FINISHED", {}, [], [])
    finally:
        event.remove(Engine, "engine_connect", limit)
    assert log.unsent == 0
    assert len(runs_in(uri)["one"]) == 1


def test_a_full_disk_for_artifacts_is_told(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(
        DesaError, match=r"cannot be created: No space left on device \(free space on that disk"
    ):
        artifact_folder(tmp_path / "mlartifacts")
