"""A stage's seconds are its own: the start of a session that it happened to ask for first is left
out.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from desa_ray.pipeline.backend import LostCluster
from desa_ray.pipeline.execute import Quiet, run_stage
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Task, Work, bounds, shards_of
from desa_ray.store.artifacts import Store

START_S, WORK_S = 0.8, 0.1
POOL = Pool("slow", dict)


@dataclass(frozen=True)
class Slow(Work):
    """One shard that takes WORK_S."""

    pool: Pool = POOL

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(1, 1)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.bin")

    def run(self, engine: Any, stage: Stage, shard: Shard) -> None:
        time.sleep(WORK_S)
        stage.artifact.write_part(shard.parts[0], b"x", rows=1)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return Finished("0" * 64, {"rows": 1})


class LateBackend:
    """Takes START_S to start, at the first question, as a Ray session does."""

    max_parallel_stages = 1

    def compute(
        self,
        pool: Pool,
        tasks: Sequence[Task],
        on_start: Callable[[], None],
        on_done: Callable[[Task], None],
    ) -> int:
        time.sleep(START_S)
        on_start()
        for task in tasks:
            task.stage.work.run(None, task.stage, task.shard)
            on_done(task)
        return 1

    def expect(self, pools: frozenset[str]) -> None: ...

    def stop(self) -> None: ...

    def recover(self, loss: LostCluster) -> None:
        raise loss

    def close(self) -> None: ...


def test_the_start_of_a_session_is_charged_to_no_stage(tmp_path):
    store = Store(tmp_path)
    stage = Stage(store, "ranking", 1, {}, Slow())
    started = time.perf_counter()
    run_stage(stage, LateBackend(), Quiet())
    assert time.perf_counter() - started >= START_S + WORK_S
    seconds = stage.artifact.manifest()["meta"]["seconds"]
    assert WORK_S <= seconds < START_S
