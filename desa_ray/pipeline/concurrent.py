"""Runs the missing stages of a plan, side by side where the executor has room for their pools.

The calling thread decides everything: what may start, what is done, what failed. A stage runs in a thread of its own,
which mostly waits for its workers. A pool serves one stage at a time; the next one stands ready behind it, so that the
workers need not wait while a stage is begun, finished or told of. An idle pool that another ready stage wants is kept,
so that loaded models stay loaded. A stage that fails takes only those with it that need it. A stage that lost the whole
cluster has not failed: it begins again, with its stored shards, once the executor has started another.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from desa_ray.errors import DesaError
from desa_ray.pipeline.execute import Progress, ready, run_stage, schedule
from desa_ray.pipeline.executor import Executor, LostCluster
from desa_ray.pipeline.stage import Stage

LOOK_S = 0.5
IN_FLIGHT = 2  # stages of one pool: one has the workers, one stands ready or is being finished

OnStageDone = Callable[[Stage, DesaError | None], None]


def run_graph(
    todo: Sequence[Stage],
    executor: Executor,
    progress: Progress,
    on_stage_done: OnStageDone,
    on_start: Callable[[], None] = lambda: None,
) -> None:
    """Compute the stages; `on_stage_done(stage, error)` is called as each is stored or has failed.

    `on_start` is called once before those. The calls come one after the other: where stages run in
    parallel, from a thread of their own. The executor is closed when no stage needs it any more,
    while the last calls are still going on. An interrupt (or an error that is no DesaError, of a
    stage or a call) stops all stages at their next look and is raised.
    """
    if not any(stage.work.pool for stage in todo) or executor.max_parallel_stages == 1:  # no workers: no cluster either
        on_start()
        _in_turn(todo, executor, progress, on_stage_done)
    else:
        _side_by_side(todo, executor, progress, on_stage_done, on_start)


def _in_turn(todo: Sequence[Stage], executor: Executor, progress: Progress, on_stage_done: OnStageDone) -> None:
    broken: dict[str, DesaError] = {}
    for stage in schedule(todo):
        error = _inherited(stage, broken)
        if error is None:
            try:
                run_stage(stage, executor, progress)
            except DesaError as failure:
                error = failure
        if error is not None:
            broken[stage.key.digest] = error
        on_stage_done(stage, error)


def _side_by_side(
    todo: Sequence[Stage],
    executor: Executor,
    progress: Progress,
    on_stage_done: OnStageDone,
    on_start: Callable[[], None],
) -> None:
    remaining = {stage.key.digest: stage for stage in todo}
    broken: dict[str, DesaError] = {}
    running: dict[Future[None], Stage] = {}
    with (
        ThreadPoolExecutor(1, thread_name_prefix="desa-callbacks") as callbacks,
        ThreadPoolExecutor(IN_FLIGHT * executor.max_parallel_stages, thread_name_prefix="desa-stage") as threads,
    ):
        called = deque([callbacks.submit(on_start)])
        loss: LostCluster | None = None
        try:
            while remaining:
                if loss is not None and not running:
                    try:
                        executor.recover(loss)
                        loss = None
                    except DesaError as failure:
                        called += [callbacks.submit(on_stage_done, stage, failure) for stage in remaining.values()]
                        remaining.clear()
                        break
                startable: list[Stage] = []
                if loss is None:
                    try:
                        startable = _startable(remaining, running, executor)
                    except LostCluster as found:
                        loss = found
                for stage in startable:
                    if (error := _inherited(stage, broken)) is not None:
                        broken[stage.key.digest] = error
                        del remaining[stage.key.digest]
                        if stage.work.pool is not None:
                            executor.release(stage.work.pool)
                        called.append(callbacks.submit(on_stage_done, stage, error))
                        continue
                    running[threads.submit(run_stage, stage, executor, progress)] = stage
                while called and called[0].done():
                    called.popleft().result()
                finished, _ = wait(running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
                for future in finished:
                    stage, error = running.pop(future), None
                    if stage.work.pool is not None:
                        executor.release(stage.work.pool)
                    try:
                        future.result()
                    except LostCluster as found:
                        loss = found
                        continue
                    except DesaError as failure:
                        error = broken[stage.key.digest] = failure
                    del remaining[stage.key.digest]
                    called.append(callbacks.submit(on_stage_done, stage, error))
            executor.close()
            for call in called:
                call.result()
        except BaseException:
            executor.stop()
            callbacks.shutdown(wait=False, cancel_futures=True)
            raise


def _startable(remaining: dict[str, Stage], running: dict[Future[None], Stage], executor: Executor) -> list[Stage]:
    """Ready stages that may start now; their pools are admitted. Never empty while nothing runs."""
    busy_keys = {stage.key.digest for stage in running.values()}
    pools = Counter(stage.work.pool.name if stage.work.pool else stage.key.digest for stage in running.values())
    waiting = [stage for stage in ready(remaining) if stage.key.digest not in busy_keys]
    # Cheap work first, then pools that are up, then small pools: large ones take the room that is left.
    waiting.sort(key=lambda stage: (0, 0) if (pool := stage.work.pool) is None else executor.rank(pool))
    chosen: list[Stage] = []
    for stage in waiting:
        pool = stage.work.pool
        name = pool.name if pool else stage.key.digest
        if pools[name] >= IN_FLIGHT or (not pools[name] and len(pools) >= executor.max_parallel_stages):
            continue
        if pool is not None:
            wanted = {other.work.pool.name for other in waiting if other.work.pool} - {pool.name}
            alone = not running and not chosen
            if not executor.admit(pool, set() if alone else wanted):
                continue
        pools[name] += 1
        chosen.append(stage)
    return chosen


def _inherited(stage: Stage, broken: dict[str, DesaError]) -> DesaError | None:
    return next((broken[s.key.digest] for s in stage.inputs.values() if s.key.digest in broken), None)
