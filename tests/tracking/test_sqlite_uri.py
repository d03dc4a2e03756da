"""Homes of any name: the database lies in its own home, is found there again, and nothing is made
beside it.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.engine import make_url

from desa_ray.errors import DesaError
from desa_ray.report.load import load_records
from desa_ray.tracking.check import look_at_tracking
from desa_ray.tracking.fetch import fetched
from desa_ray.tracking.last import last_uri
from desa_ray.tracking.left_behind import left_behind, resend
from desa_ray.tracking.opening import open_client
from desa_ray.tracking.references import referred
from desa_ray.tracking.runs import Tracker
from desa_ray.tracking.sqlite_uri import for_mlflow, sqlite_file, sqlite_uri
from tests.tracking.entries_made_up import made_cell, open_log, runs_in

NAMES = [
    "a?b",
    "a?c",
    "a%41b",
    "aAb",
    "a#b&c=d",
    "a%3Fb",
    "%zz",
    "C:\\desa",
    "äöü 日本+",
    "a::b[c]*",
    "a\nb",
]
paths = st.lists(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1),
    min_size=1,
)


@given(paths.map(lambda parts: Path("/", *parts)))
def test_addresses_are_read_as_they_were_written_here(path):
    """Addresses are read as they were written here and by sqlalchemy."""
    uri = sqlite_uri(path)
    for address in (uri, for_mlflow(uri)):
        assert sqlite_file(address) == path
        assert make_url(address).database == str(path)
        assert make_url(address).get_backend_name() == "sqlite"


def test_addresses_of_plain_paths_are_as_they_always_were():
    for path in ("/home/ann/.desa/mlflow.db", "/data sets/a-b_c.d/mlflow.db"):
        assert sqlite_uri(Path(path)) == for_mlflow(f"sqlite:///{path}") == f"sqlite:///{path}"
    assert sqlite_file("sqlite:///runs.db?timeout=3") == Path("runs.db")
    for other in (
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///",
        "http://host/sqlite:///x",
        "postgresql://host/x",
    ):
        assert sqlite_file(other) is None


def test_a_question_mark_that_would_cut_a_path_is_refused(tmp_path):
    (tmp_path / "a").mkdir()
    for uri in (f"sqlite:///{tmp_path}/a?b/mlflow.db", f"sqlite:///{tmp_path}/mlflow.db?x"):
        with pytest.raises(DesaError, match=r"tracking.uri: .*write \? in a path as %3F"):
            open_client(uri)
    assert [path.name for path in tmp_path.rglob("*")] == ["a"]
    with pytest.raises(DesaError, match="valid UTF-8"):
        sqlite_uri(Path("/home/\udcff/mlflow.db"))


@pytest.fixture
def homes(database, tmp_path) -> list[Path]:
    """A home of each name, with a migrated database, and nothing else around."""
    root = tmp_path / "homes"
    made = []
    for name in NAMES:
        (root / name).mkdir(parents=True)
        (root / name / "mlflow.db").write_bytes(database.read_bytes())
        made.append(root / name)
    return made


def test_every_home_has_its_own_runs_and_artifacts_and_nothing(homes, tmp_path):
    """Every home has its own runs and artifacts and nothing lies beside them."""
    runs: dict[Path, str] = {}
    for number, home in enumerate(homes):
        tracker = Tracker(sqlite_uri(home / "mlflow.db"), home / "mlartifacts")
        experiment = tracker.experiment("default")
        runs[home] = tracker.client.create_run(
            experiment, tags={"key.x": f"{number:064x}"}
        ).info.run_id
        (tmp_path / "records.parquet").write_text(home.name)
        tracker.client.log_artifact(runs[home], str(tmp_path / "records.parquet"))
    for number, home in enumerate(homes):
        uri = sqlite_uri(home / "mlflow.db")
        assert referred(uri, home / "mlartifacts") == {
            f"{number:064x}": {runs[home]: pytest.approx(0, abs=1e11)}
        }
        with fetched([runs[home]], "records.parquet", uri) as found:
            assert [(run, path.read_text()) for run, path in found] == [(runs[home], home.name)]
        assert [path.read_text() for path in (home / "mlartifacts").rglob("records.parquet")] == [
            home.name
        ]
        assert "schema" in look_at_tracking(uri)
    assert sorted(path.name for path in homes[0].parent.iterdir()) == sorted(NAMES)


def test_the_last_runs_are_found_again_by_the_home_alone(homes, monkeypatch):
    for home in homes[:3]:
        monkeypatch.setenv("DESA_HOME", str(home))
        (home / "last_tracking.json").write_text(
            json.dumps({"uri": sqlite_uri(home / "mlflow.db")})
        )
        client = open_client(last_uri(home))
        run = client.create_run(
            client.create_experiment("x", artifact_location=(home / "x").as_uri())
        ).info.run_id
        with pytest.raises(DesaError, match=r"neither it nor its children have records\.parquet"):
            load_records(run)


def test_a_log_that_waited_is_sent_to_its_own_home(homes, tmp_path):
    for home in homes[:3]:
        uri = sqlite_uri(home / "mlflow.db")
        log = open_log(uri, home, offline=True)
        log.cell(made_cell(tmp_path / "out", "one"))
        log.end("FINISHED", {}, [], [])
        assert runs_in(for_mlflow(uri)) == {}
        for box in left_behind(home / "outbox"):
            target = box.target
            assert resend(box, lambda target=target: Tracker(target.uri, Path(target.artifacts)))
        assert [run.info.status for run in runs_in(for_mlflow(uri))["one"]] == ["FINISHED"]
    assert sorted(path.name for path in homes[0].parent.iterdir()) == sorted(NAMES)
