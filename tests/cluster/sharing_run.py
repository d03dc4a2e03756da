"""A run of a few stages on a shared cluster, without data: `python -m tests.cluster.sharing_run
ADDRESS STORE STAGES SETTINGS` computes the stages one after the other, each on a pool of its own.

STAGES is JSON: name, CPUs and GPUs of a worker, number of shards, seconds of a shard, and
megabytes that it holds meanwhile (0 where that is left out). A part holds the id of the node where
it was computed. Prints a line of JSON per event: what was noted, and when each shard ended.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray

from desa_ray.cluster.node_watch import NodeWatch
from desa_ray.cluster.preflight import Needs
from desa_ray.cluster.session import session
from desa_ray.cluster.transport import ray_supervisor
from desa_ray.config import ClusterConfig
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Task, Work, bounds, shards_of
from desa_ray.store.artifacts import Store


@dataclass(frozen=True)
class Sleep(Work):
    """Shards of one row that take a while."""

    pool: Pool | None
    shard_count: int
    seconds: float
    megabytes: int = 0

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(self.shard_count, 1)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.bin")

    def run(self, engine: Any, stage: Stage, shard: Shard) -> None:
        held = b"x" * (self.megabytes << 20)
        time.sleep(self.seconds)
        del held
        node = ray.get_runtime_context().get_node_id()
        stage.artifact.write_part(shard.parts[0], node.encode(), rows=1)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return Finished("0" * 64)


def tell(**event: Any) -> None:
    sys.stdout.write(f"{json.dumps(event | {'at': time.time()})}\n")
    sys.stdout.flush()


def main(address: str, root: str, stages: str, settings: str) -> None:
    config = ClusterConfig(kind="existing", address=address, **json.loads(settings))
    store = Store(root)
    with session(config) as death:
        watch = NodeWatch(lambda text: tell(note=text))
        supervisor = ray_supervisor(config, store, death, lambda text: tell(note=text), watch=watch)
        try:
            watch.begin(Needs({"store.root": root}, {}))
            for name, cpus, gpus, shard_count, seconds, *held in json.loads(stages):
                pool = Pool(name, dict, size=None, cpus=cpus, gpus=gpus)
                work = Sleep(pool, shard_count, seconds, *held)
                stage = Stage(store, name, 1, {"by": os.getpid()}, work)
                shards = stage.work.shards(stage.work.layout(stage))
                tasks = [Task(stage, shard) for shard in shards]
                supervisor.compute(
                    pool,
                    tasks,
                    lambda name=name: tell(start=name),
                    lambda task, name=name: tell(done=name, shard=task.shard.number),
                )
        finally:
            supervisor.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
