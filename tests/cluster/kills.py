"""Random kills under sweeps: what is killed, and when, follows from a seed and is written down."""

import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
import pytest
from ray.cluster_utils import Cluster

from tests.cluster.ray_nodes import free_ports, token_in_this_process
from tests.cluster.sweeps import Sweep, hashes
from tests.infra.objects import client, object_server
from tests.tracking_servers import tracking_server

MEMORY = 100 << 20
SURVIVED = ("actor", "node", "mlflow")  # by the same run; the others may end it, in one line
LIMIT_S = 240.0


class Proxy:
    """Passes connections on to a server, until they are cut."""

    def __init__(self, target: int):
        self.target, self.open = target, True
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lines: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            if not self.open:
                line.close()
                continue
            try:
                there = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                line.close()
                continue
            self._lines |= {line, there}
            for ends in ((line, there), (there, line)):
                threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        for line in (source, sink):
            self._lines.discard(line)
            line.close()

    def cut(self, seconds: float) -> None:
        self.open = False
        for line in list(self._lines):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        time.sleep(seconds)
        self.open = True

    def end(self) -> None:
        self.open = False
        self._listener.close()


@dataclass(frozen=True)
class Kill:
    """One kill: its place in the campaign, what, and how many shards were finished by then."""

    seed: int
    number: int
    kind: str
    shards: int
    at_s: float


@dataclass
class Campaign:
    """Kills on one cluster of two nodes, with a store on an object server behind a proxy and a
    tracking server; each can die.
    """

    folder: Path
    small_slice: Path
    seed: int
    expected: dict
    kills: list[Kill] = field(default_factory=list)
    sweeps: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.began = time.monotonic()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Everything that a sweep needs, until the block ends."""
        with ExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            where = stack.enter_context(object_server(self.folder / "objects.log"))
            self.s3 = client(where)
            self.s3.create_bucket(Bucket="desa")
            self.proxy = Proxy(int(where["AWS_ENDPOINT_URL"].rpartition(":")[2]))
            stack.callback(self.proxy.end)
            behind = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.proxy.port}"}
            settings = (
                where
                | behind
                | {
                    "RAY_health_check_period_ms": "1000",  # Ray wants this spelling
                    "RAY_health_check_failure_threshold": "3",
                    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
                }
            )
            for name, value in settings.items():
                patch.setenv(name, value)
            stack.enter_context(token_in_this_process())
            (self.port,) = free_ports(1)
            self._start_tracking()
            stack.callback(self._end)
            self._start_cluster()
            yield

    def _start_tracking(self) -> None:
        self.tracking = tracking_server(self.folder, self.port)

    def _start_cluster(self) -> None:
        head = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            self.cluster.add_node(num_cpus=1, object_store_memory=MEMORY)

    def _end(self) -> None:
        """What is there by now; earlier ones were killed."""
        if self.sweeps and self.sweep.process.poll() is None:
            self.sweep.process.kill()
            self.sweep.process.wait()
        self.cluster.shutdown()
        os.killpg(self.tracking.pid, signal.SIGKILL)
        self.tracking.wait()

    def play(self, kinds: list[str]) -> None:
        """Kill in this order, at random moments; then let the last sweep end. Every sweep that ends
        has the records of an undisturbed one.
        """
        self._next_sweep()
        for number, kind in enumerate(kinds):
            self._await_moment()
            kill = Kill(self.seed, number, kind, self._shards(), time.monotonic() - self.began)
            self.kills.append(kill)
            with (self.folder / "kills.jsonl").open("a") as log:
                log.write(f"{json.dumps(asdict(kill))}\n")
            getattr(self, f"_kill_{kind}")()
            self._look(kind)
        deadline = time.monotonic() + LIMIT_S
        while self.sweep.process.poll() is None:
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.2)
        if self.sweep.process.returncode == 2 and kinds[-1] not in SURVIVED:
            self.sweep.start().end()
        self._ended()

    def told(self) -> str:
        """The kills so far, and what the sweep printed."""
        return f"{[asdict(kill) for kill in self.kills]}\n{self.sweep.log}"

    def _next_sweep(self) -> None:
        folder = self.folder / f"sweep{self.sweeps}"
        folder.mkdir()
        store = f"store.root=s3://desa/store{self.sweeps}"
        tracking = f"tracking.uri=http://127.0.0.1:{self.port}"
        self.sweep = Sweep(folder, self.cluster.address, self.small_slice, store, tracking)
        self.sweep.start()
        self.sweeps += 1

    def _shards(self) -> int:
        found = self.s3.list_objects_v2(Bucket="desa", Prefix=f"store{self.sweeps - 1}/")
        names = [entry["Key"] for entry in found.get("Contents", ())]
        return sum("/part-" in name and name.endswith(".json") for name in names)

    def _await_moment(self) -> None:
        """A second or two after the beginning, or so many shards later; another sweep where this
        one ended first.
        """
        before = self._shards()
        if not before and self.chance.random() < 0.3:
            time.sleep(self.chance.uniform(0.5, 5.0))
            return
        wanted = before + self.chance.randint(1, 5)
        deadline = time.monotonic() + LIMIT_S
        while self._shards() < wanted:
            assert time.monotonic() < deadline, self.told()
            if self.sweep.process.poll() is not None:
                self._ended()
                self._next_sweep()
                wanted = self.chance.randint(1, 5)
            time.sleep(0.1)

    def _look(self, kind: str) -> None:
        """Start the sweep again where its process, or what it needs, was killed."""
        if kind in ("driver", "head"):
            code = self.sweep.process.wait(LIMIT_S)
            assert code in (2, -signal.SIGKILL, 0), self.told()
            if kind == "head":
                self._start_cluster()
                where = f"cluster.address={self.cluster.address}"
                own = self.sweep.arguments
                self.sweep.arguments = [
                    where if word.startswith("cluster.address=") else word for word in own
                ]
            if code:
                self.sweep.start()
        elif self.sweep.process.poll() not in (None, 0):
            assert kind not in SURVIVED, self.told()
            assert self.sweep.process.returncode == 2, self.told()
            self.sweep.start()

    def _ended(self) -> None:
        assert self.sweep.process.returncode == 0, self.told()
        assert "Traceback" not in self.sweep.log, self.told()
        assert hashes(self.sweep.folder) == self.expected, self.told()

    # -- what dies

    def _kill_actor(self) -> None:
        found: list[psutil.Process] = []
        deadline = time.monotonic() + 60
        while not found and self.sweep.process.poll() is None and time.monotonic() < deadline:
            found = [child for child in self._children() if "_Actor" in child.name()]
        if found:
            self.chance.choice(sorted(found, key=lambda one: one.pid)).kill()

    def _children(self) -> list[psutil.Process]:
        raylets = [
            psutil.Process(node.all_processes["raylet"][0].process.pid)
            for node in self.cluster.worker_nodes
        ]
        return [child for raylet in raylets for child in raylet.children(recursive=True)]

    def _kill_node(self) -> None:
        nodes = sorted(self.cluster.worker_nodes, key=lambda node: node.unique_id)
        self.cluster.remove_node(self.chance.choice(nodes), allow_graceful=False)
        self.cluster.add_node(num_cpus=1, object_store_memory=MEMORY)

    def _kill_driver(self) -> None:
        self.sweep.process.kill()

    def _kill_head(self) -> None:
        self.cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False)
        self.sweep.process.wait(LIMIT_S)
        for node in list(self.cluster.worker_nodes):
            node.kill_all_processes(check_alive=False, allow_graceful=False)

    def _kill_mlflow(self) -> None:
        os.killpg(self.tracking.pid, signal.SIGKILL)
        self.tracking.wait()
        self._start_tracking()

    def _kill_s3(self) -> None:
        self.proxy.cut(self.chance.uniform(0.5, 3.0))
