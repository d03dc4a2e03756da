"""The simulated cluster against real Ray: the same stages, with engines that sleep, on four nodes
of four GPUs that Ray only counts.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from desa_ray.cluster.session import session
from desa_ray.cluster.transport import RayTransport, ray_supervisor
from desa_ray.config import ClusterConfig
from desa_ray.errors import DesaError
from desa_ray.pipeline.execute import Quiet
from desa_ray.pipeline.packing import Node
from desa_ray.pipeline.scheduler import run_graph
from desa_ray.pipeline.shard_queue import FirstOpen
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage
from desa_ray.pipeline.transport import Event, Up
from desa_ray.store.artifacts import Store
from tests.cluster.ray_nodes import token_in_this_process
from tests.pipeline.simulated_cluster import simulate
from tests.pipeline.simulated_nodes import SimulatedTransport, Timed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

MEMORY = 100 << 20
NODES = {f"node{number}": Node(cpus=8, gpus=4) for number in range(4)}
LOAD_S = {"generator": 20.0, "encoder": 10.0, "scorer": 0.0}


class Sleeping:
    """An engine that takes its time to load."""

    def __init__(self, pool: str):
        time.sleep(LOAD_S[pool])


@dataclass(frozen=True)
class Slept(Timed):
    """Shards that really take `shard_s` seconds."""

    def run(self, engine: Any, stage: Stage, shard: Shard) -> None:
        time.sleep(self.shard_s)
        stage.artifact.write_part(shard.parts[0], b"slept", rows=1)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return Finished("0" * 64, {"rows": self.number})


def pool(name: str, gpus: float) -> Pool:
    size = None if gpus else 4
    return Pool(name, partial(Sleeping, name), size=size, cpus=1, gpus=gpus)


def stages(folder: Path) -> list[Stage]:
    """Of four collections: texts, vectors of documents and of texts, and rankings from both."""
    store = Store(folder)
    generator, encoder, scorer = pool("generator", 1), pool("encoder", 1), pool("scorer", 0)

    def stage(name: str, of: int, work: Slept, **inputs: Stage) -> Stage:
        return Stage(store, name, 1, {"of": of}, work, inputs, f"{of}")

    todo: list[Stage] = []
    for of in range(4):
        texts = stage("generation", of, Slept(generator, 16, 6.0))
        documents = stage("vectors", of, Slept(encoder, 16, 5.0))
        text_vectors = stage("text_vectors", of, Slept(encoder, 4, 4.0), texts=texts)
        both = {"texts": text_vectors, "documents": documents}
        ranking = stage("ranking", of, Slept(scorer, 4, 3.0), **both)
        todo += [texts, documents, text_vectors, ranking]
    return todo


@pytest.fixture
def cluster(monkeypatch) -> Iterator[Cluster]:
    head = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
    root = str(Path(__file__).resolve().parents[2])  # workers find the tests there
    monkeypatch.setenv("PYTHONPATH", root)
    with token_in_this_process():
        nodes = Cluster(initialize_head=True, head_node_args=head)
        for node in NODES.values():
            gpus, cpus = int(node.gpus), int(node.cpus)
            nodes.add_node(num_cpus=cpus, num_gpus=gpus, object_store_memory=MEMORY)
        yield nodes
        nodes.shutdown()


def test_simulated_runs_take_as_long_as_real_ones(cluster, tmp_path, monkeypatch, record_property):
    """Within a tenth, once the simulator is told how long processes take to start here."""
    todo = stages(tmp_path / "real")
    limits = ClusterConfig(kind="existing", address=cluster.address, scorers=None)
    starts = Starts(monkeypatch)
    errors: list[DesaError] = []
    with session(limits):
        supervisor = ray_supervisor(limits, todo[0].store, lambda: None)
        began = time.perf_counter()
        run_graph(todo, supervisor, Quiet(), lambda stage, error: errors.extend(_some(error)))
        took = time.perf_counter() - began
    assert errors == []
    starts.tell_the_simulator(monkeypatch)
    found = simulate(
        stages(tmp_path / "simulated"),
        NODES,
        limits,
        load_s=LOAD_S,
        policy=FirstOpen(),
        max_parallel_stages=supervisor.max_parallel_stages,
    )
    told = f"real {took:.1f} s, simulated {found.makespan_s:.1f} s"
    told += f", {len(starts.every)} processes started in {median(starts.every):.1f} s"
    record_property("makespans", told)
    assert found.makespan_s == pytest.approx(took, rel=0.1), told


class Starts:
    """How long Ray's processes take from being asked for to being up, where they have a place.

    Dozens that start at once on a small machine take many times what one takes, so the simulator
    gets the seconds of each, by pool, in the order in which they were asked for.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self._asked: dict[int, tuple[str, float]] = {}
        self._took: dict[int, float] = {}
        spawn, poll = RayTransport.spawn, RayTransport.poll

        def spawned(transport: RayTransport, worker: int, own: Pool) -> None:
            self._asked[worker] = own.name, time.perf_counter()
            spawn(transport, worker, own)

        def polled(transport: RayTransport, timeout_s: float) -> Sequence[Event]:
            events = poll(transport, timeout_s)
            for event in events:
                if isinstance(event, Up):
                    self._took[event.worker] = time.perf_counter() - self._asked[event.worker][1]
            return events

        monkeypatch.setattr(RayTransport, "spawn", spawned)
        monkeypatch.setattr(RayTransport, "poll", polled)

    @property
    def every(self) -> list[float]:
        return [*self._took.values()]

    def tell_the_simulator(self, monkeypatch: pytest.MonkeyPatch) -> None:
        left: dict[str, list[float]] = {}
        for worker, (name, _) in self._asked.items():
            if worker in self._took:
                left.setdefault(name, []).append(self._took[worker])
        usual = median(self.every)

        def start_s(transport: SimulatedTransport, own: Pool) -> float:
            return left[own.name].pop(0) if left.get(own.name) else usual

        monkeypatch.setattr(SimulatedTransport, "start_s", start_s)


def _some(error: DesaError | None) -> list[DesaError]:
    return [] if error is None else [error]
