"""`desa submit` on a real cluster with token authentication: a head with its job server, and a
worker node.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from desa_ray.cluster.ray_job import RayJobs
from desa_ray.errors import DesaError
from desa_ray.jobs.cli.arrival import VARIABLE, expectation
from tests.cluster.ray_nodes import (
    RayHead,
    RayNode,
    can_hide_folders,
    token_environment,
    token_in_this_process,
)
from tests.desa_fixtures import dataset, run_desa

# On a busy machine (four busy loops on two cores) a run takes minutes.
pytestmark = pytest.mark.timeout(1000)

# Everything that a shell, Hydra or JSON could take for its own.
ODD = 'encoder.query_prefix="it\'s a=1, #2 é → \\\\ $HOME `ls` *\ta b"'
CASES = [
    ODD,
    "evaluation.measures=['R@100',\"nDCG@20\"]",
    "~evaluation.run_depth",
    r"+generator.revision_note='\\n'",
]


@dataclass
class Site:
    """A running cluster and a disk that its nodes share, except for `hidden`."""

    folder: Path
    head: RayHead
    hidden: Path
    hides: bool

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def start(self, *arguments: str, cwd: Path, **environment: str) -> subprocess.Popen:
        command = [
            sys.executable,
            "-m",
            "desa_ray.jobs",
            "submit",
            f"submit.address={self.head.url}",
            *arguments,
        ]
        variables = {**token_environment(), "DESA_HOME": str(self.home), **environment}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=cwd, env=variables, stdout=pipe, stderr=pipe, text=True
        )

    def submit(self, *arguments: str, cwd: Path, **environment: str) -> tuple[int, str, str]:
        process = self.start(*arguments, cwd=cwd, **environment)
        out, err = process.communicate(timeout=900)
        return process.returncode, out, err


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="desa-", dir="/tmp"))  # Ray's sockets need a short path
    hidden = folder / "hidden"
    hidden.mkdir()
    nodes = []
    try:
        nodes.append(head := RayHead(folder))
        hides = can_hide_folders()
        nodes.append(
            RayNode(
                folder,
                f"--address={head.address}",
                "--num-cpus=2",
                hidden=hidden if hides else None,
            )
        )
        yield Site(folder, head, hidden, hides)
    finally:
        for node in reversed(nodes):
            node.end()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.long
def test_the_slurm_script_counts_the_nodes_that_ray_lists(site):
    """The function of infra/slurm/desa.sbatch, as it stands there, on a real cluster of a head and
    a worker.
    """
    text = (Path(__file__).parents[2] / "infra/slurm/desa.sbatch").read_text()
    (function,) = re.findall(r"^count_nodes\(\) \{$.*?^\}$", text, re.DOTALL | re.MULTILINE)
    variables = {
        **token_environment(),
        "bin": str(Path(sys.executable).parent),
        "address": site.head.address,
    }
    done = subprocess.run(
        ["bash", "-c", f"{function}\ncount_nodes"],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["2"], done.stderr


@pytest.fixture
def script(site: Site):
    """Makes a command that stands in for the platform's on the head node."""

    def write(body: str) -> str:
        path = site.folder / "command"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return f"submit.command={path}"

    return write


def _collection(folder: Path) -> list[str]:
    """Three documents and a query: enough for a BM25 run."""
    (folder / "qrels").mkdir(parents=True)
    texts = ["the cat sat on the mat", "dogs chase cats", "planets orbit the sun"]
    rows = [json.dumps({"_id": f"d{n}", "title": "", "text": text}) for n, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "cat"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td0\t1\n")
    return ["dataset=beir_folder", f"dataset.path={folder}", "tracking.enabled=false"]


@pytest.mark.long
def test_a_run_and_its_configuration_folder_travel_and_nothing(site, tmp_path):
    """A run and its configuration folder travel and nothing else."""
    mine = tmp_path / "my own" / "method"
    mine.mkdir(parents=True)
    original = (Path(__file__).parents[2] / "conf" / "method" / "original.yaml").read_text()
    (mine / "mine.yaml").write_text(original.replace("name: original", "name: mine"))
    (mine.parent / "secrets.txt").write_text("not for the cluster")
    (tmp_path / "data.bin").write_text("nor this")
    overrides = [*_collection(site.folder / "tiny"), "method=mine", ODD]
    code, out, err = site.submit("--config-dir", "my own", *overrides, cwd=tmp_path)
    assert code == 0, out + err
    assert "mine" in out  # the table of cells
    (summary,) = (site.home / "outputs").glob("*/*/summary.json")
    (cell,) = json.loads(summary.read_text())["cells"]
    assert (cell["dataset"], cell["method"]) == ("custom", "mine")
    # What Hydra read there is what was typed here.
    assert yaml.safe_load((summary.parent / ".hydra" / "overrides.yaml").read_text()) == overrides
    # Ray keeps what was sent in a folder of its own.
    (sent,) = (site.folder / "ray").glob(
        "session_2*/runtime_resources/working_dir_files/_ray_pkg_*/conf"
    )
    assert [
        str(path.relative_to(sent.parent)) for path in sent.parent.rglob("*") if path.is_file()
    ] == ["conf/method/mine.yaml"]
    # Nothing is left here
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "data.bin",
        "my own",
    ]


@pytest.mark.long
def test_overrides_arrive_byte_for_byte_and_the_exit_code_comes(site, script, tmp_path):
    """Overrides arrive byte for byte and the exit code comes back."""
    command = script('printf "%s\\0" "$@" > "$DESA_HOME.arguments"; echo ends with 7; exit 7')
    code, out, err = site.submit("-m", command, *CASES, "method=desa,original", cwd=tmp_path)
    assert code == 7, out + err
    assert "ends with 7" in out
    arrived = Path(f"{site.home}.arguments").read_bytes().decode().split("\0")[:-1]
    assert arrived == [
        "run",
        "--config-name",
        "submitted",
        "--multirun",
        *CASES,
        "method=desa,original",
    ]


@pytest.mark.slow
def test_ctrl_c_detaches_and_the_job_can_be_followed_again(site, script, tmp_path):
    command = script(
        'echo begins; while [ ! -e "$DESA_HOME.go" ]; do sleep 0.1; done; echo is over; exit 3'
    )
    process = site.start(command, cwd=tmp_path)
    assert process.stdout is not None
    while "begins" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "continues" in err
    job = re.search(r"submit\.job=(\S+)", err)[1]
    Path(f"{site.home}.go").touch()
    code, out, _ = site.submit(f"submit.job={job}", cwd=tmp_path)
    assert code == 3
    assert (out.count("begins"), out.count("is over")) == (1, 1)
    code, out, err = site.submit(command, "submit.follow=false", cwd=tmp_path)
    assert (code, out) == (0, "")
    assert "submit.job=" in err


@pytest.mark.slow
def test_paths_that_one_node_does_not_share_are_refused(site, tmp_path):
    """Paths that one node does not share are refused with its name."""
    if not site.hides:
        pytest.skip("this system gives processes no mounts of their own")
    home = site.hidden / "home"
    code, out, err = site.submit(
        *_collection(site.hidden / "data"), "method=bm25", f"submit.home={home}", cwd=tmp_path
    )
    assert code == 2, out + err
    errors = [line for line in out.splitlines() if line.startswith("error: ")]
    assert all("all nodes share" in line for line in errors)
    node = r"error: node [\d.]+ \(\w{8}\): "  # one of two
    for what in (
        "DESA_HOME .*hidden/home: the node has no",
        r"dataset\.path=.*hidden/data: No such file",
    ):
        assert [line for line in errors if re.match(node + what, line)], out
    assert not list(home.glob("store/postings/*/part*"))
    assert not list(home.glob(".probe-*"))


@pytest.fixture
def jobs(site) -> Iterator[RayJobs]:
    with token_in_this_process():
        yield RayJobs(site.head.url)


@pytest.mark.slow
def test_every_end_of_a_job_has_its_exit_code(jobs):
    ends = {("true",): 0, ("false",): 1, ("sh", "-c", "kill -9 $$"): 137}
    sent = {jobs.send(command, {}, None): code for command, code in ends.items()}
    assert {job: jobs.follow(job, lambda _: None) for job in sent} == sent
    job = jobs.send(["/nowhere/desa"], {}, None)
    with pytest.raises(DesaError, match=r"submit\.command"):
        jobs.follow(job, lambda _: None)
    job = jobs.send(["sleep", "600"], {}, None)
    while jobs.client.get_job_status(job) == "PENDING":
        time.sleep(0.1)
    jobs.client.stop_job(job)
    assert jobs.follow(job, lambda _: None) == 130
    with pytest.raises(DesaError, match="raysubmit_unknown"):
        jobs.follow("raysubmit_unknown", lambda _: None)


@pytest.mark.long
def test_another_version_than_the_senders_is_refused_first(site, jobs):
    expected, lines = json.loads(expectation({})), []
    sent = json.dumps(expected | {"desa-ray": "9.9"})
    job = jobs.send(
        ["desa", "run"], {VARIABLE: sent, "DESA_HOME": str(site.folder / "other")}, None
    )
    assert jobs.follow(job, lines.append) == 2
    assert f"desa-ray is {expected['desa-ray']}, not 9.9" in "".join(lines)
    assert not (site.folder / "other").exists()


@pytest.mark.long
def test_a_wrong_token_is_one_clear_line(site, tmp_path):
    code, _, err = site.submit(cwd=tmp_path, RAY_AUTH_TOKEN="some-other-token-of-enough-characters")
    assert code == 2
    assert "RAY_AUTH_TOKEN" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_losing_a_worker_node_changes_no_record(site, small_slice, tmp_path):
    common = [*dataset(small_slice), "tracking.enabled=false", "draws=1"]
    done = run_desa(tmp_path, tmp_path / "home", "run", *common, "cluster=serial")
    assert done.returncode == 0, done.stderr
    (serial,) = (tmp_path / "outputs").glob("*/*/summary.json")
    doomed = RayNode(site.folder, f"--address={site.head.address}", "--num-cpus=2")
    try:
        home = site.folder / "lossy"
        small = ["cluster.shard_documents=4", "cluster.encoders=4", f"submit.home={home}"]
        process = site.start(*common, *small, cwd=tmp_path)
        while len(list((home / "store").glob("vectors/*/part-*.json"))) < 3:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        doomed.end(at_once=True)
        out, err = process.communicate(timeout=900)
        assert process.returncode == 0, out + err
    finally:
        doomed.end(at_once=True)
    (lossy,) = (home / "outputs").glob("*/*/summary.json")
    records = [
        json.loads(path.read_text())["cells"][0]["artifacts"]["records.parquet"]
        for path in (serial, lossy)
    ]
    assert records[0] == records[1]
