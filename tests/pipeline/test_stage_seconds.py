"""A stage's seconds are its own: the start of a session that it happened to ask for first is left out."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

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


class LateExecutor:
    """Takes START_S to start, at the first question, as a Ray session does."""

    def __init__(self, store: Store):
        self.store, self.started = store, False

    def workers_for(self, pool: Pool, tasks: int) -> int:
        if not self.started:
            time.sleep(START_S)
            self.started = True
        return 1

    def turn(self, pool: Pool) -> AbstractContextManager[object]:
        return nullcontext()

    def map(self, pool: Pool, tasks: Sequence[Task], done: Callable[[Task], None]) -> None:
        for task in tasks:
            task.stage.work.run(None, task.stage, task.shard)
            done(task)

    def close(self) -> None:
        pass


def test_the_start_of_a_session_is_charged_to_no_stage(tmp_path):
    store = Store(tmp_path)
    stage = Stage(store, "ranking", 1, {}, Slow())
    started = time.perf_counter()
    run_stage(stage, LateExecutor(store), Quiet())
    assert time.perf_counter() - started >= START_S + WORK_S
    seconds = stage.artifact.manifest()["meta"]["seconds"]
    assert WORK_S <= seconds < START_S
