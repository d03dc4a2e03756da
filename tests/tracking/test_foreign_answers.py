"""What a tracking server may answer: one printable line whatever it is, and the entry stays in the
outbox.
"""

import json

import pytest
from mlflow.entities import Run, RunData, RunInfo
from mlflow.store.entities.paged_list import PagedList
from mlflow.tracking import MlflowClient

from desa_ray.errors import DesaError
from desa_ray.tracking import transport
from desa_ray.tracking.check import look_at_tracking
from desa_ray.tracking.fetch import fetched
from desa_ray.tracking.left_behind import left_behind, resend
from desa_ray.tracking.paging import paged
from desa_ray.tracking.places import artifacts_of
from desa_ray.tracking.references import referred
from desa_ray.tracking.runs import Tracker
from desa_ray.tracking.sweeps import SweepLog, SweepRun
from tests.raw_server import answer, drips, raw_server, says
from tests.tracking.entries_made_up import made_cell
from tests.tracking.lossy_proxy import DELIVER, Says
from tests.tracking.served import check, logged

FIELDS = ["run", "runs", "experiments", "experiment", "run_info", "files"]
BAD = {
    "no object": b"[1, 2]",
    "null": b"null",
    "a web page": b"<html>\x1b[31mWelcome</html>",
    "nothing": b"",
    "not UTF-8": b'{"run": "\xff\xfe", "runs": "\xff", "experiments": "\xff"}',
    "cut short": b'{"run": {"info": {"run_id": "ab',
    "numbers": json.dumps(dict.fromkeys(FIELDS, 5)).encode(),
    "lists": json.dumps({field: [[1]] for field in FIELDS}).encode(),
    "huge numbers": (
        b'{"run": {"info": {"start_time": 1e400}}, "runs": [{"info": {"end_time": 1'
        + b"0" * 400
        + b"}}]}"
    ),
    "NaN": b'{"run": NaN, "runs": NaN, "experiments": NaN, "experiment": NaN}',
    "ids that are paths": b'{"run": {"info": {"run_id": "../../x"}}, "experiment_id": "/etc"}',
    "empty objects": (
        b'{"run": {}, "runs": [{}], "experiment": {}, "experiments": [{}], "files": [{}]}'
    ),
    "deep": b'{"run": ' * 3000 + b"5" + b"}" * 3000,
}
ERRORS = {
    "a list as error": ("400 Bad Request", b'{"error_code": [1], "message": {"a": [2]}}'),
    "an unknown error": (
        "500 Internal Server Error",
        b'{"error_code": "WHO_KNOWS", "message": "\\u001b[31mred"}',
    ),
    "too much": ("413 Request Entity Too Large", b"<html>" + b"x" * 200_000),
    "moved": ("302 Found", b""),
    "a gateway": ("502 Bad Gateway", b"<html>nginx</html>"),
}
SPOILT = {name: answer(body) for name, body in BAD.items()}
SPOILT |= {
    name: answer(body, status, "Location: http://127.0.0.1:9/")
    for name, (status, body) in ERRORS.items()
}
QUICK = {"a web page", "empty objects", "a list as error", "a gateway"}
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SPOILT]


def _kind(line: str) -> str:
    return (
        line.partition("?")[0]
        if "artifacts/artifacts/" not in line
        else line.partition(" ")[0] + " artifact"
    )


def _one_line(text: str | None) -> None:
    assert text
    assert text.isprintable()
    assert len(text) < 1000


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_entry_stays_until_the_server_has_it(name, proxy, port, tmp_path):
    """Every kind of call is answered like this once; no call is kept from the server."""
    met = set[str]()
    experiment = "spoilt " + name.replace("/", " ")
    run = SweepRun(experiment, "a" * 64, "a sweep", False, {}, {})
    log = SweepLog(run, uri=proxy.url, home=tmp_path, sample_s=0)

    def plan(_: int, line: str) -> str | Says:
        if _kind(line) in met:
            return DELIVER
        met.add(_kind(line))
        return Says(SPOILT[name])

    proxy.plan = plan
    assert log.cell(made_cell(tmp_path / "out", "one")) is None
    assert log.unsent == 1
    _one_line(log.outbox.trouble)
    log.end("FINISHED", {}, [], [])
    for _ in range(30):
        for box in left_behind(tmp_path / "outbox", proxy.url):
            resend(box, lambda: Tracker(proxy.url, tmp_path / "mlartifacts"))
    assert not list(left_behind(tmp_path / "outbox", proxy.url))
    assert len(met) >= 8
    check(port, experiment, ["one"], trash=2)


@pytest.mark.parametrize("kind", ["log-batch", "runs/update", "PUT"])
def test_a_server_that_only_says_yes_gets_no_entry_out(kind, proxy, port, tmp_path):
    """A server that only says yes gets no entry out of the outbox. `{}` is what these calls
    are really answered with; here they never reach the server.
    """
    experiment = f"yes to {kind}"
    log = SweepLog(
        SweepRun(experiment, "b" * 64, "a sweep", False, {}, {}),
        uri=proxy.url,
        home=tmp_path,
        sample_s=0,
    )
    proxy.plan = lambda _, line: Says(answer(b"{}"), swallow=True) if kind in line else DELIVER
    assert log.cell(made_cell(tmp_path / "out", "one")) is None
    assert log.unsent == 1
    _one_line(log.outbox.trouble)
    proxy.plan = lambda *_: DELIVER
    log.end("FINISHED", {}, [], [])
    assert log.unsent == 0
    check(port, experiment, ["one"])


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_back_is_one_error(name, proxy, tmp_path, monkeypatch):
    """Artifacts, references and the look of `desa doctor`: each call of each is answered like this
    in turn.
    """
    logged(proxy, tmp_path, "read back", parent=False)
    (run,) = MlflowClient(proxy.url).search_runs(
        [MlflowClient(proxy.url).get_experiment_by_name("desa/read back").experiment_id]
    )

    def fetch() -> None:
        with fetched([run.info.run_id], "one.txt", proxy.url) as files:
            assert [path.read_text() for _, path in files] == ["records"]

    def refer() -> None:
        referred(proxy.url, tmp_path / "mlartifacts")

    for read in (fetch, refer, lambda: look_at_tracking(proxy.url)):
        proxy.seen.clear()
        proxy.plan = lambda *_: DELIVER
        read()
        for number, line in enumerate(proxy.seen[:5]):
            if "artifacts/artifacts/" in line and name in BAD:
                continue  # any bytes may be an artifact
            proxy.seen.clear()
            proxy.plan = lambda at, _, number=number: (
                Says(SPOILT[name]) if at == number else DELIVER
            )
            try:
                read()
            except DesaError as error:
                _one_line(str(error))
            else:
                assert name in ("empty objects", "huge numbers", "ids that are paths"), line


def test_the_limit_of_a_call_holds_whatever_drips(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with raw_server(
        drips(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n")
    ) as server:
        with pytest.raises(DesaError, match=r"no answer within 1 s .*tracking\.offline=true"):
            Tracker(server.url, tmp_path)
        assert server.gone.wait(15)


def test_pages_that_never_end_are_an_error():
    with pytest.raises(DesaError, match="never end"):
        list(paged(lambda _: PagedList([1], "again")))
    tokens = iter(range(10**9))
    with pytest.raises(DesaError, match="never end"):
        for _ in paged(lambda _: PagedList([], str(next(tokens)))):
            pass
    pages = {None: PagedList([1, 2], "b"), "b": PagedList([], "c"), "c": PagedList([3], None)}
    assert list(paged(pages.__getitem__)) == [1, 2, 3]


def _run(place: str) -> Run:
    info = RunInfo("1" * 32, "0", "me", "RUNNING", 1, None, "active", artifact_uri=place)
    return Run(info, RunData())


@pytest.mark.parametrize(
    "place",
    [
        "file:///etc",
        "/etc/cron.d",
        "relative",
        "",
        "C:\\x",
        "runs:/1/x",
        "models:/m",
        "ftp://h/x",
        "x:y",
    ],
)
def test_a_server_elsewhere_may_not_name_folders_of_this_machine(place):
    with pytest.raises(
        DesaError,
        match=r"tracking\.uri: http://tracking\.example:5000 keeps .* \(start that server",
    ):
        artifacts_of(_run(place), "http://tracking.example:5000")


@pytest.mark.parametrize(
    "place", ["mlflow-artifacts:/0/1/artifacts", "s3://bucket/x", "http://127.0.0.1:5000/x"]
)
def test_a_server_may_name_itself_and_object_stores(place):
    assert artifacts_of(_run(place), "http://tracking.example:5000").artifact_uri


def test_a_server_on_this_machine_and_a_database_may_name(tmp_path):
    """A server on this machine and a database may name folders."""
    for uri in ("http://127.0.0.1:5000", "sqlite:///x.db"):
        assert artifacts_of(_run(tmp_path.as_uri()), uri).artifact_uri == tmp_path.as_uri()


def test_the_token_goes_to_the_tracking_server_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "very-secret")
    file = tmp_path / "records.txt"
    file.write_text("records")
    with raw_server(says(answer(b"{}"))) as tracking, raw_server(says(answer(b"{}"))) as other:
        Tracker(tracking.url, tmp_path)
        for place in (f"mlflow-artifacts://127.0.0.1:{other.port}/1", f"{other.url}/x"):
            artifacts_of(_run(place), tracking.url).log_artifact(str(file))
        artifacts_of(_run("mlflow-artifacts:/1"), tracking.url).log_artifact(str(file))
    assert len(other.heard) == 2
    assert not any(b"very-secret" in heard or b"Authorization" in heard for heard in other.heard)
    assert len(tracking.heard) == 2
    assert all(b"Authorization: Bearer very-secret" in heard for heard in tracking.heard)


def test_no_redirect_carries_the_token_away(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "very-secret")
    with raw_server(says(answer(b"{}"))) as other:
        moved = answer(b"", "302 Found", f"Location: {other.url}/")
        with (
            raw_server(says(moved)) as server,
            pytest.raises(DesaError, match="answered 302, sending to") as caught,
        ):
            Tracker(server.url, tmp_path)
        assert "set tracking.uri to the address" in caught.value.hint
        assert other.heard == []


def test_the_seam_is_in_place():
    """MLflow's client opens its sessions through one function: with another MLflow it may have
    another name.
    """
    from mlflow.utils.request_utils import _get_request_session

    opened = _get_request_session(5, 2, 1.0, [500], True, True)
    assert opened is transport._mlflows_session()
    assert {type(opened.get_adapter(url)) for url in ("http://x", "https://x")} == {
        transport._Adapter
    }
