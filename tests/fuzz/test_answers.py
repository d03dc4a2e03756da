"""Spoilt answers of servers over real sockets: read, or one error of one printable line each."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import ray

from desa_ray.certified import certified_search
from desa_ray.cluster import job_client
from desa_ray.cluster.ray_job import RayJobs
from desa_ray.config import GeneratorConfig
from desa_ray.engine_channels import search_after
from desa_ray.engines.chat import Request, SamplingSettings
from desa_ray.engines.openai_generator import OpenAIGenerator
from desa_ray.errors import DesaError
from desa_ray.tracking.runs import Tracker
from tests.fuzz.changes import bytes_changed, document_changed
from tests.fuzz.newer_doors import ELASTIC
from tests.hostile import odd
from tests.raw_server import answer, raw_server

FEW, MANY = 12, 700
COMPLETION = {
    "choices": [{"message": {"content": "said"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3},
}
EXPERIMENT = {
    "experiment": {
        "experiment_id": "1",
        "name": "desa/x",
        "artifact_location": "mlflow-artifacts:/1",
        "lifecycle_stage": "active",
        "tags": [{"key": "a", "value": "b"}],
    }
}
VERSION = {
    "version": "4",
    "ray_version": ray.__version__,
    "ray_commit": "",
    "session_name": "",
}


def _complete(url: str, _: Path) -> None:
    config = GeneratorConfig(
        name="server",
        kind="openai",
        model="m",
        base_url=f"{url}/v1",
        max_attempts=1,
        request_timeout_s=5.0,
    )
    request = Request(
        [{"role": "user", "content": "question"}], 1, SamplingSettings(9, 0.7, 0.9, 20)
    )
    (output,) = OpenAIGenerator(config).generate([request])
    output.text.encode()


def _track(url: str, folder: Path) -> None:
    Tracker(url, folder).experiment("x")


def _jobs(url: str, _: Path) -> None:
    RayJobs(url)


def _search(url: str, _: Path) -> None:
    channel = search_after("engine", url, {"match_all": {}}, tie="id", timeout_s=5.0)
    channel.attempts = 1
    certified_search([channel], 2, page=2)


SERVERS: dict[str, tuple[dict, Callable[[str, Path], None]]] = {
    "completions": (COMPLETION, _complete),
    "tracking": (EXPERIMENT, _track),
    "jobs": (VERSION, _jobs),
    "search": (ELASTIC, _search),
}


def spoilt_answer(document: dict, draw: random.Random) -> bytes:
    """The body's values, or any byte of the answer, its status and headers included."""
    whole = answer(json.dumps(document).encode(), "200 OK", "Connection: close")
    if draw.randrange(2):
        return bytes_changed(whole, draw)
    return answer(json.dumps(document_changed(document, draw)).encode(), "200 OK")


def ask(name: str, count: int, seed: int, folder: Path) -> int:
    """How many answers were refused."""
    document, call = SERVERS[name]
    draw, refused, said = random.Random(f"{name} {seed}"), 0, b""

    def talk(connection, heard: bytes) -> None:
        if heard:  # whoever only looks whether somebody listens is left alone
            connection.sendall(said)

    with raw_server(talk) as server:
        for number in range(count):
            said = spoilt_answer(document, draw)
            try:
                call(server.url, folder)
            except DesaError as error:
                refused += 1
                for line in str(error).splitlines():
                    assert odd(line, allowed="") == []
            except BaseException as error:
                error.add_note(f"answer {number}: {said[:2000]!r}")
                raise
    return refused


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
    monkeypatch.setattr(job_client, "REQUEST_TIMEOUT_S", 5.0)


@pytest.mark.parametrize("name", SERVERS)
def test_a_few_spoilt_answers(name, tmp_path):
    assert ask(name, FEW, 0, tmp_path) > FEW // 6


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SERVERS)
def test_hundreds_of_spoilt_answers(name, tmp_path):
    assert ask(name, MANY, 1, tmp_path) > MANY // 6
