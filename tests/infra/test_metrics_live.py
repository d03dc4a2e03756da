"""A real Prometheus scrapes a real Ray during a sweep: every panel has data, and the totals are the
sweep's own.
"""

import getpass
import json
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.cluster.ray_nodes import token_environment
from tests.desa_fixtures import dataset
from tests.infra.panels import ELSEWHERE, expressions
from tests.infra.programs import REPOSITORY, free_port, program

sys.path.insert(0, str(REPOSITORY / "tests" / "engines"))
from chat_server import chat_server

pytestmark = pytest.mark.slow
WINDOW = "10m"


@pytest.fixture(scope="module")
def ray_head() -> Iterator[tuple[str, int]]:
    """A cluster of one node as `ray start` makes it; its address and the port of its metrics."""
    port, metrics, dashboard = free_port(), free_port(), free_port()
    command = [
        str(Path(sys.executable).with_name("ray")),
        "start",
        "--head",
        "--block",
        "--num-cpus=2",
    ]
    command += ["--node-ip-address=127.0.0.1", f"--port={port}", f"--metrics-export-port={metrics}"]
    command += [
        f"--dashboard-port={dashboard}",
        "--object-store-memory=104857600",
        "--disable-usage-stats",
    ]
    environment = {**token_environment(), "RAY_metrics_report_interval_ms": "1000"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield f"127.0.0.1:{port}", metrics
    finally:
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        for left in psutil.wait_procs(family, timeout=10)[1]:
            left.kill()


@pytest.fixture(scope="module")
def prometheus(ray_head, tmp_path_factory) -> Iterator[str]:
    """A Prometheus that scrapes the head each second; its address."""
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    config = yaml.safe_load((REPOSITORY / "infra/compose/prometheus.yml").read_text())
    config["global"]["scrape_interval"] = "1s"
    (ray,) = [job for job in config["scrape_configs"] if job["job_name"] == "ray"]
    ray.pop("file_sd_configs")
    config["scrape_configs"] = [
        {**ray, "static_configs": [{"targets": [f"127.0.0.1:{ray_head[1]}"]}]}
    ]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        program("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
    ]
    command.append(f"--web.listen-address=127.0.0.1:{port}")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _until_ready(f"http://127.0.0.1:{port}/-/ready")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def _until_ready(address: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < deadline, address
            time.sleep(0.2)


def _ask(address: str, expression: str) -> list[float]:
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{address}/api/v1/query?{query}", timeout=30) as answer:
        return [float(row["value"][1]) for row in json.load(answer)["data"]["result"]]


def _drawn(address: str, expression: str) -> list[dict]:
    """The series that a panel draws over the last ten minutes."""
    now = time.time()
    span = {"query": expression, "start": now - 600, "end": now, "step": 1}
    query = urllib.parse.urlencode(span)
    with urllib.request.urlopen(f"{address}/api/v1/query_range?{query}", timeout=30) as answer:
        return json.load(answer)["data"]["result"]


def _until(address: str, expression: str, timeout_s: float = 90) -> list[float]:
    deadline = time.monotonic() + timeout_s
    while not (found := _ask(address, expression)):
        assert time.monotonic() < deadline, expression
        time.sleep(1)
    return found


@pytest.fixture(scope="module")
def swept(ray_head, prometheus, small_slice, tmp_path_factory) -> str:
    """After a sweep of two cells, in which one encoder was killed, and the same sweep again."""
    folder = tmp_path_factory.mktemp("sweep")
    environment = {**token_environment(), "DESA_HOME": str(folder / "home")}
    _until(prometheus, "last_over_time(ray_node_cpu_utilization[1m])")
    with chat_server() as server:
        arguments = [
            "-m",
            "method=original,desa",
            *dataset(small_slice),
            "tracking.enabled=false",
            "draws=1",
        ]
        arguments += [
            "cluster=existing",
            f"cluster.address={ray_head[0]}",
            "cluster.shard_documents=5",
        ]
        arguments += [
            "generator=openai_server",
            "generator.model=m",
            f"generator.revision={'a' * 40}",
        ]
        arguments += [f"generator.base_url={server.url}"]
        command = [sys.executable, "-m", "desa_ray.jobs", "run", *arguments]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        while len(list((folder / "home/store/vectors").glob("*/part-*.json"))) < 2:
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.05)
        _actor(ray_head[0]).kill()
        assert process.wait(400) == 0, (folder / "log").read_text()
        again = [*command, "fusion.kappa=20"]
        done = subprocess.run(
            again, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    time.sleep(5)  # the last report and scrape
    return prometheus


def _actor(address: str) -> psutil.Process:
    """A worker of the cluster at this address, told from those of other clusters on this machine by
    its parents.
    """
    port = address.rpartition(":")[2]
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"].startswith("ray::_Actor"):
            above = [part for parent in process.parents() for part in parent.cmdline()]
            if any(port in part for part in above):
                return process
    raise AssertionError("no actor is at work")


def test_every_panel_has_data(swept):
    empty = [
        f"{one.dashboard}: {one.panel}: {one.text}"
        for one in expressions()
        if not ELSEWHERE.search(one.text) and not _drawn(swept, one.filled(WINDOW))
    ]
    assert empty == []


def test_the_totals_are_the_sweeps_own(swept):
    def total(name: str, kind: str = "") -> float:
        return sum(_ask(swept, f"sum(max_over_time(ray_desa_{name}_total{kind}[{WINDOW}]))"))

    assert total("queries_replayed") == 4 * 8  # two cells, twice, of 8 queries
    assert total("stages", '{stage="fusion", outcome="computed"}') == 4
    # The second sweep took all but fusion from the store
    assert total("stages", '{outcome="reused"}') > 0
    assert total("generations") == 8
    assert total("generation_requests") >= 8
    # The killed worker took its last second of counts with it.
    assert 50 <= total("documents_encoded") <= 100
    assert total("shard_failures") >= 1
    assert total("shard_retries") == total("shard_failures")


def test_the_series_of_a_run_end_with_it(swept):
    """Two sweeps of one user: each has its short id, and shows its shards while it runs."""
    found = _drawn(swept, 'max by (run, user, state) (ray_desa_run_shards{state!="left"})')
    runs = {row["metric"]["run"] for row in found}
    assert len(runs) == 2
    assert all(len(run) == 8 for run in runs)
    assert {row["metric"]["user"] for row in found} == {getpass.getuser()}
    most = {state: max(_values(found, state)) for state in ("done", "lost")}
    assert most["done"] >= 20  # a hundred documents, five a shard
    assert most["lost"] >= 1
    deadline = time.monotonic() + 60
    while _ask(swept, "ray_desa_run_shards"):
        assert time.monotonic() < deadline
        time.sleep(2)


def _values(found: list[dict], state: str) -> list[float]:
    rows = [row["values"] for row in found if row["metric"]["state"] == state]
    return [float(value) for row in rows for _, value in row]
