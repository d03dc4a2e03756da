"""A real Slurm of two nodes on this machine: munge, a controller and two node daemons of the test's
own, which end with it.

The names n1 and n2 lead to this machine in a mount namespace that the node daemons share with
their jobs alone. Key, state and spool lie in the test's folder.
"""

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
import ray

from tests.cluster.ray_nodes import can_hide_folders
from tests.infra.programs import free_port, program

NODES, CPUS = ("n1", "n2"), 2
CONFIGURATION = """\
ClusterName=desa
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
PluginDir={plugins}
SlurmUser=root
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
KillWait=20
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus}"
    " RealMemory=4000\n"
)
PARTITION = "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"


class Slurm:
    """What a user of the cluster has: its commands, on nodes that run."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.bin = Path(program("sbatch")).parent
        plugins = Path(program("slurmctld-wlm")).parents[1].glob("lib/*/slurm-wlm")
        self.plugins = next(plugins)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "LD_LIBRARY_PATH": f"{self.plugins.parent}:{self.plugins}",
            "SLURM_CONF": str(folder / "slurm.conf"),
        }
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.nodes: dict[str, subprocess.Popen] = {}

    def start(self, name: str) -> None:
        """A node's daemon; it and its jobs see the names of the nodes."""
        sbin = Path(program("slurmd-wlm")).parent
        shown = 'mount --bind "$0" /etc/hosts && exec "$@"'
        apart = ["unshare", "--mount", "sh", "-c", shown, str(self.folder / "hosts")]
        node = [f"{sbin}/slurmd-wlm", "-D", "-c", "-N", name, "-d", f"{sbin}/slurmstepd-wlm"]
        self.nodes[name] = daemon(self, name, *apart, *node)

    def lose(self, name: str) -> None:
        """A node and all that runs on it end at once, as in a power failure."""
        family = [psutil.Process(self.nodes[name].pid)]
        for process in psutil.process_iter(["environ", "ppid"]):
            variables = process.info["environ"] or {}
            own = variables.get("SLURM_CONF") == self.environment["SLURM_CONF"]
            if own and variables.get("SLURMD_NODENAME") == name:
                family.append(process)
                # The keeper of a step is nobody's child.
                keeper = psutil.Process(process.info["ppid"])
                if keeper.name().startswith("slurmstepd"):
                    family.append(keeper)
        for one in family:
            if one.is_running():
                one.kill()
        self.nodes.pop(name).wait(30)

    def end(self) -> None:
        for node in self.nodes.values():
            ended(node)

    def command(self, *arguments: str, cwd: Path | None = None) -> str:
        """What a command of Slurm's prints."""
        done = subprocess.run(
            arguments,
            cwd=cwd,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def state(self, job: str) -> str:
        """A job's state and exit code."""
        told = self.command("scontrol", "show", "job", "--oneliner", job)
        fields = dict(field.split("=", 1) for field in told.split() if "=" in field)
        return f"{fields['JobState']} {fields['ExitCode']}"

    def wait(self, job: str, *states: str, timeout_s: float) -> str:
        """The job's state, once it is one of these or no longer waits, runs or ends."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            found = self.state(job)
            word = found.split()[0]
            if word in states or word not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
                return found
            time.sleep(0.5)
        raise AssertionError(f"job {job} is {self.state(job)} after {timeout_s} s")


def configuration(slurm: Slurm) -> str:
    host = socket.gethostname()
    own = {"host": host, "folder": slurm.folder, "plugins": slurm.plugins}
    nodes = [NODE.format(name=name, host=host, port=free_port(), cpus=CPUS) for name in NODES]
    return CONFIGURATION.format(controller=free_port(), **own) + "".join(nodes) + PARTITION


def daemon(slurm: Slurm, name: str, *command: str) -> subprocess.Popen:
    """A daemon in the foreground; what it says lies in the folder."""
    with (slurm.folder / f"{name}.log").open("w") as log:
        return subprocess.Popen(command, env=slurm.environment, stdout=log, stderr=log)


def ended(process: subprocess.Popen) -> None:
    """End a daemon and what it started, each by its number."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)
    for one in family:
        if one.is_running():
            one.kill()


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[Slurm]:
    """Slurm with two idle nodes; the test skips where it cannot run."""
    if os.geteuid() != 0 or not can_hide_folders():
        pytest.skip("Slurm's daemons run as root, with mounts of their own")
    slurm = Slurm(folder)
    controller = program("slurmctld-wlm")
    (folder / "slurm.conf").write_text(configuration(slurm))
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge.key").chmod(0o600)
    hosts = "".join(f"{ray.util.get_node_ip_address()} {name}\n" for name in NODES)
    (folder / "hosts").write_text(Path("/etc/hosts").read_text() + hosts)
    munge = [
        program("munged"),
        "--foreground",
        f"--socket={folder}/munge.socket",
        f"--key-file={folder}/munge.key",
        f"--pid-file={folder}/munge.pid",
        f"--seed-file={folder}/munge.seed",
        "--force",
    ]
    with ExitStack() as started:
        started.callback(ended, daemon(slurm, "munged", *munge))
        wait_for((folder / "munge.socket").exists, folder)
        started.callback(ended, daemon(slurm, "slurmctld", controller, "-D", "-i"))
        started.callback(slurm.end)
        for name in NODES:
            slurm.start(name)
        wait_for(lambda: idle(slurm) == list(NODES), folder)
        yield slurm


def idle(slurm: Slurm) -> list[str]:
    done = subprocess.run(
        ["sinfo", "--Node", "--noheader", "--format=%N", "--states=idle"],
        env=slurm.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return sorted(done.stdout.split())


def wait_for(there: Callable[[], bool], folder: Path, timeout_s: float = 60) -> None:
    until = time.monotonic() + timeout_s
    while not there():
        if time.monotonic() > until:
            told = "\n".join(log.read_text()[-2000:] for log in sorted(folder.glob("*.log")))
            raise RuntimeError(told)
        time.sleep(0.2)
