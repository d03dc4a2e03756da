"""Shell scripts, Dockerfile and cluster launcher: linted, and the Slurm script run dry with a
stand-in for Slurm.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.infra.programs import REPOSITORY, program

SCRIPTS = [
    *sorted(REPOSITORY.glob("infra/**/*.sh")),
    REPOSITORY / "infra/slurm/desa.sbatch",
    REPOSITORY / ".ci/run",
]
DOCKERFILE = (REPOSITORY / "infra/Dockerfile").read_text()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script):
    shellcheck = str(Path(sys.executable).with_name("shellcheck"))
    done = subprocess.run(
        [shellcheck, "--shell=bash", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def listed_nodes(count: int) -> str:
    """What `ray list nodes --filter state=ALIVE --format json` of Ray 2.60 prints: every node on
    the same line.

    tests/cluster/test_submit.py gives the script's own command to a real cluster.
    """
    nodes = [
        {
            "node_id": f"{number:056x}",
            "node_ip": f"192.0.2.{number}",
            "is_head_node": number == 1,
            "state": "ALIVE",
            "state_message": None,
            "node_name": f"node{number}",
            "resources_total": {"memory": "15.548 GiB", f"node:192.0.2.{number}": 1.0, "CPU": 16.0},
            "labels": {"ray.io/node-id": f"{number:056x}"},
            "start_time_ms": None,
            "end_time_ms": None,
        }
        for number in range(1, count + 1)
    ]
    return json.dumps(nodes) + "\n\n"


@pytest.fixture
def slurm(tmp_path):
    """Stand-ins on the PATH that note what they are asked, and an environment of the kind the
    script expects.
    """
    tools, venv = tmp_path / "tools", tmp_path / "venv" / "bin"
    tools.mkdir()
    venv.mkdir(parents=True)
    log = tmp_path / "log"
    stand_ins = {
        tools / "scontrol": "printf '%s\\n' node1 node2 node3",
        # srun runs the command here, as if on the node it names.
        tools / "srun": (
            f'echo "srun $*" >>{log}; while [ "${{1#--}}" != "$1" ]; do shift; done; exec "$@"'
        ),
        venv / "ray": (
            f"""echo "ray $* auth=$RAY_AUTH_MODE token=${{#RAY_AUTH_TOKEN}}" >>{log}
if [ "$1" = list ]; then cat {tmp_path}/nodes.json; exit; fi
trap 'kill $!; echo ended >>{log}; exit' TERM
sleep 60 >/dev/null 2>&1 &
wait"""
        ),
        venv / "desa": (
            f'echo "desa home=$DESA_HOME $(printf "<%s>" "$@")" >>{log}; exit "${{DESA_CODE:-0}}"'
        ),
    }
    for path, text in stand_ins.items():
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    (venv / "python").symlink_to(sys.executable)

    def run(
        *arguments: str, joined: int | str = 3, **variables: str
    ) -> tuple[subprocess.CompletedProcess, list[str]]:
        (tmp_path / "nodes.json").write_text(
            joined if isinstance(joined, str) else listed_nodes(joined)
        )
        log.write_text("")
        environment = {
            "PATH": f"{tools}:/usr/bin:/bin",
            "SLURM_JOB_ID": "4242",
            "SLURM_JOB_NODELIST": "node[1-3]",
            "SLURM_CPUS_PER_TASK": "16",
            "SLURM_GPUS_ON_NODE": "2",
            "DESA_POLL_S": "0",
            "DESA_HOME": "/shared/desa",
            "DESA_VENV": str(venv.parent),
            **variables,
        }
        script = REPOSITORY / "infra/slurm/desa.sbatch"
        environment = {name: value for name, value in environment.items() if value}
        done = subprocess.run(
            ["bash", script, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done, log.read_text().splitlines()

    return run


def test_slurm_starts_a_node_each_and_passes_overrides_whole(slurm):
    done, log = slurm("-m", "method=original,desa", "dataset.name=a b;$(x)")
    assert done.returncode == 0, done.stderr
    port = 20000 + 4242
    starts = [line for line in log if line.startswith("ray start")]
    assert len(starts) == 3
    assert sum("--head" in line and f"--port={port}" in line for line in starts) == 1
    assert sum(f"--address=node1:{port}" in line for line in starts) == 2
    assert all(
        "--num-cpus 16 --num-gpus 2 --block" in line and "auth=token token=64" in line
        for line in starts
    )
    nodes = {
        node
        for line in log
        if line.startswith("srun")
        for node in re.findall(r"--nodelist=(\S+)", line)
    }
    assert nodes == {"node1", "node2", "node3"}
    (run,) = [line for line in log if line.startswith("desa ")]
    words = ["run", "-m", "method=original,desa", "dataset.name=a b;$(x)", "cluster=existing"]
    assert (
        run == "desa home=/shared/desa"
        f" {''.join(f'<{word}>' for word in words)}<cluster.address=node1:{port}>"
    )
    assert log.count("ended") == 3  # nothing is left running


def test_slurm_returns_the_runs_exit_code(slurm):
    done, log = slurm("dataset=demo", DESA_CODE="7")
    assert done.returncode == 7
    assert log.count("ended") == 3


def test_slurm_refuses_what_cannot_work_before_it_starts(slurm):
    """Slurm refuses what cannot work before it starts anything."""
    for arguments, variables in (
        ([], {}),
        (["x=1"], {"DESA_HOME": ""}),
        (["x=1"], {"DESA_VENV": "/nowhere"}),
    ):
        done, log = slurm(*arguments, **variables)
        assert done.returncode
        assert done.stderr
        assert log == []


def test_slurm_says_which_nodes_did_not_join(slurm):
    done, log = slurm("dataset=demo", joined=2)
    assert done.returncode == 1
    assert "2 of 3 nodes joined" in done.stderr
    assert not any(line.startswith("desa ") for line in log)


@pytest.mark.parametrize("printed", ["", "Failed to connect to the API server\n"])
def test_slurm_counts_no_node_of_what_is_no_list(slurm, printed):
    done, log = slurm("dataset=demo", joined=printed)
    assert done.returncode == 1
    assert "0 of 3 nodes joined" in done.stderr
    assert not any(line.startswith("desa ") for line in log)


def test_slurm_gives_every_step_the_cpus_of_the_job(slurm):
    """Slurm 22.05 and newer hand --cpus-per-task of a job on to no step."""
    _, log = slurm("dataset=demo")
    steps = [line for line in log if line.startswith("srun ")]
    assert len(steps) == 4
    assert all("--cpus-per-task=16 " in step for step in steps)


def test_ray_up_accepts_the_cluster_file():
    import ray
    from jsonschema import Draft7Validator

    config = yaml.safe_load((REPOSITORY / "infra/ray/cluster.yaml").read_text())
    schema = json.loads((Path(ray.__file__).parent / "autoscaler/ray-schema.json").read_text())
    assert [error.message for error in Draft7Validator(schema).iter_errors(config)] == []
    assert list(Draft7Validator(schema).iter_errors({**config, "max_worker": 1}))


def test_the_cluster_file_ends_its_own_nodes_and_opens_its_own_dashboard():
    """The port is the one that `ray dashboard` forwards from the head's loopback device."""
    from ray.scripts.scripts import dashboard

    config = yaml.safe_load((REPOSITORY / "infra/ray/cluster.yaml").read_text())
    head, worker = config["head_start_ray_commands"], config["worker_start_ray_commands"]
    assert not any("ray stop" in command for command in [*head, *worker])
    (forwarded,) = [option.default for option in dashboard.params if option.name == "remote_port"]
    assert f"--dashboard-host=127.0.0.1 --dashboard-port={forwarded} " in head[-1]
    (place,) = {re.findall(r"--temp-dir=(.+?) --", command[-1])[0] for command in (head, worker)}
    for commands in (head, worker):
        assert commands[0].endswith(f"infra/ray/end_node.py {place}")


@pytest.mark.long
def test_a_node_is_ended_by_its_folder_and_others_are_left(tmp_path):
    """Processes that name a place in the folder as Ray's do, one of a folder that begins alike."""
    sleep = "import time; print(flush=True); time.sleep(600)"
    marks = ["--temp_dir=NODE/x", "--session-dir=NODE/session_1", "NODE/session_1/sockets/raylet"]
    places = [*(mark.replace("NODE", f"{tmp_path}/ray") for mark in marks), f"{tmp_path}/rays/x"]
    processes = [
        subprocess.Popen([sys.executable, "-c", sleep, place], stdout=subprocess.PIPE)
        for place in places
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        script = REPOSITORY / "infra/ray/end_node.py"
        done = subprocess.run(
            [sys.executable, script, tmp_path / "ray"], capture_output=True, text=True, check=True
        )
        assert done.stdout == f"ended 3 processes of {tmp_path}/ray\n"
        assert [process.wait(10) for process in processes[:3]] == [-15] * 3
        assert processes[3].poll() is None
    finally:
        for process in processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def test_the_dockerfile_copies_what_exists_and_installs():
    """The dockerfile copies what exists and installs from the locks."""
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)
    names = [name for _, name in stages]
    assert {"cpu", "gpu", "mlflow"} <= set(names)
    for number, (source, _) in enumerate(stages):
        assert source in names[:number] or re.fullmatch(r"python:3\.12-[a-z-]+", source)
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        *sources, _ = line.split()
        assert all((REPOSITORY / source).exists() for source in sources), line
    for lock in ("cpu", "gpu", "mlflow"):
        assert f"requirements/{lock}.txt" in DOCKERFILE
    assert DOCKERFILE.count("--require-hashes") == 3
    # Each image ends as a user that is not root.
    for target in ("cpu", "gpu", "mlflow"):
        body = DOCKERFILE.split(f" AS {target}\n")[1].split("\nFROM ")[0]
        assert "USER 1000:1000" in body


def test_the_build_context_holds_what_the_dockerfile_copies():
    kept = {
        line[1:]
        for line in (REPOSITORY / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    sources = {
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    }
    assert all(source in kept or source.split("/")[0] in kept for source in sources), sources - kept


def test_the_proxy_example_is_a_configuration_that_nginx_takes(tmp_path):
    nginx = program("nginx")
    key, certificate = tmp_path / "key.pem", tmp_path / "fullchain.pem"
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=mlflow.example",
        "-days",
        "1",
    ]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    site = (
        (REPOSITORY / "infra/nginx/mlflow.conf").read_text().replace("/etc/ssl/desa", str(tmp_path))
    )
    logs = f"pid {tmp_path}/pid; error_log stderr;"
    paths = "".join(
        f"{kind}_temp_path {tmp_path};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "nginx.conf").write_text(
        f"{logs} events {{}} http {{ access_log off; {paths} {site} }}"
    )
    done = subprocess.run(
        [nginx, "-t", "-c", tmp_path / "nginx.conf"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
