"""What `desa submit` refuses before anything is sent, and a submitted run where it arrives."""

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hydra.core.global_hydra import GlobalHydra

from desa_ray.errors import DesaError
from desa_ray.jobs.cli.arrival import VARIABLE, arrive, expectation
from desa_ray.jobs.submit import main


def test_what_a_submitted_run_checks_where_it_arrives(monkeypatch, tmp_path):
    monkeypatch.delenv("DESA_HOME", raising=False)
    monkeypatch.delenv("DESA_OUTPUTS", raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)
    arrive()  # nobody submitted it
    monkeypatch.setenv(VARIABLE, json.dumps(json.loads(expectation({})) | {"code": "0" * 64}))
    with pytest.raises(DesaError, match="different code"):
        arrive()
    monkeypatch.setenv(VARIABLE, expectation({}))
    with pytest.raises(DesaError, match=r"submit\.home"):
        arrive()
    monkeypatch.setenv("DESA_HOME", "relative")
    with pytest.raises(DesaError, match="relative"):
        arrive()
    monkeypatch.setenv("DESA_HOME", str(tmp_path))
    monkeypatch.setenv("DESA_OUTPUTS", "")  # so that it is put back afterwards
    monkeypatch.delenv("DESA_OUTPUTS")
    arrive()
    assert os.environ["DESA_OUTPUTS"] == str(tmp_path / "outputs")


@pytest.fixture
def old_cluster() -> Iterator[str]:
    """A job server of another Ray."""

    class Server(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps(
                {"version": "4", "ray_version": "2.9.3", "ray_commit": "", "session_name": ""}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_): ...

    server = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def _refused(*arguments: str) -> str:
    GlobalHydra.instance().clear()
    with pytest.raises(DesaError) as caught:
        main(list(arguments))
    return str(caught.value)


def test_another_ray_than_the_clusters_is_refused(old_cluster, monkeypatch):
    # An address that is given wins over the environment's.
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")
    assert "runs Ray 2.9.3" in _refused(f"submit.address={old_cluster}", "submit.home=/shared")
    assert os.environ["RAY_API_SERVER_ADDRESS"] == "http://127.0.0.1:9"
    assert "127.0.0.1:9" in _refused("submit.home=/shared")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["fusion.kapa=3"], "fusion.kapa"),
        (["-m", "method=desa,original", "n_refs=0,5"], "n_refs"),
        (["n_refs=9"], "n_refs"),
        (["fusion.kappa=-2"], "fusion.kappa"),
        (["evaluation.measures=[nope]"], "nope"),
        (["dataset=beir_folder", "dataset.path=data/mine"], "dataset.path"),
        (["generator.folder=~/texts"], "generator.folder"),
        (["tracking.uri=sqlite:///mlflow.db"], "tracking.uri"),
        (["hydra.run.dir=here"], "hydra.run.dir"),
        (["submit.home=home"], "submit.home"),
        (["submit.adress=x"], "submit.adress"),
        (["submit.follow=perhaps"], "submit.follow"),
        (["-m", "submit.follow=true,false"], "submit"),
        (["submit.job=1", "method=desa"], "submit.job"),
        (["--config-name", "generate"], "--config-name"),
        (["tracking.uri=http://ann:s3cr3t@server"], "credentials"),
    ],
)
def test_what_is_wrong_is_refused_here(arguments, named, monkeypatch):
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")  # never asked
    message = _refused(*arguments)
    assert named in message
    assert "127.0.0.1:9" not in message
