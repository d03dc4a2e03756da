"""A real OpenAI-compatible server of SmolLM2 on this machine: the same records as from the engine,
and then its end.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from desa_ray.config import GeneratorConfig
from desa_ray.engines.generator import load_generator
from desa_ray.engines.openai_generator import OpenAIGenerator
from desa_ray.engines.smollm2 import smollm2_folder
from desa_ray.errors import DesaError

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900), pytest.mark.xdist_group("engine")]
PATIENCE_S = 400


@pytest.fixture(scope="module")
def server(
    model_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, subprocess.Popen]]:
    folder = smollm2_folder(model_home)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--served-model-name", "smollm2", "--host", "127.0.0.1", "--port", str(port)]
    command += [
        "--dtype",
        "float32",
        "--max-model-len",
        "1024",
        "--max-num-seqs",
        "16",
        "--seed",
        "0",
    ]
    command += [
        "--enforce-eager",
        "--no-enable-prefix-caching",
        "--structured-outputs-config.backend",
        "xgrammar",
    ]
    settings = {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    settings |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            env={**os.environ, **settings},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}/v1", process
    finally:
        end(process)


def wait_until_healthy(url: str, process: subprocess.Popen, log: Path) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with direct.open(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.5)
    pytest.fail("the server did not start: " + log.read_text(errors="replace")[-3000:])


def end(process: subprocess.Popen) -> None:
    """The server and its children, which share its session, and nobody else."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def config(url: str, **changes) -> GeneratorConfig:
    settings = {
        "model": "smollm2",
        "base_url": url,
        "backoff_s": 0.05,
        "max_attempts": 3,
        "concurrency": 4,
    }
    return GeneratorConfig(name="server", kind="openai", **(settings | changes))


def test_the_server_gives_the_records_of_the_engine(server, whole, records, tmp_path):
    url, _ = server
    engine = load_generator(config(url), model_home=tmp_path)
    found = records(engine, whole["query_id"].to_list())
    assert found.schema == whole.schema
    same = pl.exclude("model", "revision")
    assert found.select(same).rows(named=True) == whole.select(same).rows(named=True)
    assert found["retries"].sum() > 0


def test_what_the_server_refuses_is_one_clear_error(server, records):
    url, _ = server
    for changes, words in (({"model": "absent"}, "404"), ({"base_url": url + "/v9"}, "404")):
        with pytest.raises(DesaError, match=words) as caught:
            records(OpenAIGenerator(config(url, **changes)), ["q1"])
        assert "\n" not in str(caught.value)


def test_a_server_that_has_gone_is_tried_again_and_then_named(server, records):
    url, process = server
    end(process)
    with pytest.raises(
        DesaError, match=r"the server cannot be reached: .* \(3 attempts .*is it running"
    ):
        records(OpenAIGenerator(config(url)), ["q1"])
