"""Runs the missing stages of a plan, side by side where the executor has room for their pools.

The calling thread decides everything: what may start, what is done, what failed. A stage runs in a thread of its own,
which only waits for its workers. A pool serves one stage at a time, and an idle pool that another ready stage wants is
kept, so that loaded models stay loaded. A stage that fails takes only those with it that need it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from desa_ray.errors import DesaError
from desa_ray.pipeline.execute import Progress, ready, run_stage, schedule
from desa_ray.pipeline.executor import Executor
from desa_ray.pipeline.stage import Stage
from desa_ray.store.artifacts import Store

LOOK_S = 0.5

Settled = Callable[[Stage, DesaError | None], None]


def run_graph(store: Store, todo: Sequence[Stage], executor: Executor, progress: Progress, settled: Settled) -> None:
    """Compute the stages; `settled(stage, error)` is called in the calling thread as each is stored or has failed.

    An interrupt (or an error that is no DesaError) stops all stages at their next look and is raised.
    """
    if not todo:
        return
    if executor.lanes == 1:
        _in_turn(store, todo, executor, progress, settled)
    else:
        _side_by_side(store, todo, executor, progress, settled)


def _in_turn(store: Store, todo: Sequence[Stage], executor: Executor, progress: Progress, settled: Settled) -> None:
    broken: dict[str, DesaError] = {}
    for stage in schedule(todo):
        error = _inherited(stage, broken)
        if error is None:
            try:
                run_stage(store, stage, executor, progress)
            except DesaError as failure:
                error = failure
        if error is not None:
            broken[stage.key.digest] = error
        settled(stage, error)


def _side_by_side(
    store: Store, todo: Sequence[Stage], executor: Executor, progress: Progress, settled: Settled
) -> None:
    remaining = {stage.key.digest: stage for stage in todo}
    broken: dict[str, DesaError] = {}
    running: dict[Future[None], Stage] = {}
    told: list[tuple[Stage, DesaError | None]] = []  # settled, to be told once the next stages are at work
    with ThreadPoolExecutor(executor.lanes, thread_name_prefix="desa-stage") as threads:
        try:
            while remaining or told:
                for stage in _startable(remaining, running, executor):
                    if (error := _inherited(stage, broken)) is not None:
                        broken[stage.key.digest] = error
                        del remaining[stage.key.digest]
                        if stage.work.pool is not None:
                            executor.release(stage.work.pool)
                        told.append((stage, error))
                        continue
                    running[threads.submit(run_stage, store, stage, executor, progress)] = stage
                for stage, error in told:
                    settled(stage, error)
                told.clear()
                finished, _ = wait(running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
                for future in finished:
                    stage, error = running.pop(future), None
                    if stage.work.pool is not None:
                        executor.release(stage.work.pool)
                    try:
                        future.result()
                    except DesaError as failure:
                        error = broken[stage.key.digest] = failure
                    del remaining[stage.key.digest]
                    told.append((stage, error))
        except BaseException:
            executor.stop()
            raise


def _startable(remaining: dict[str, Stage], running: dict[Future[None], Stage], executor: Executor) -> list[Stage]:
    """Ready stages that may start now; their pools are admitted. Never empty while nothing runs."""
    busy_keys = {stage.key.digest for stage in running.values()}
    busy_pools = {stage.work.pool.name for stage in running.values() if stage.work.pool}
    waiting = [stage for stage in ready(remaining) if stage.key.digest not in busy_keys]
    # Cheap work first, then pools that are up, then small pools: large ones take the room that is left.
    waiting.sort(key=lambda stage: (0, 0) if (pool := stage.work.pool) is None else executor.rank(pool))
    chosen: list[Stage] = []
    for stage in waiting:
        if len(running) + len(chosen) >= executor.lanes:
            break
        pool = stage.work.pool
        if pool is not None:
            wanted = {other.work.pool.name for other in waiting if other.work.pool} - {pool.name}
            alone = not running and not chosen
            if pool.name in busy_pools or not executor.admit(pool, set() if alone else wanted):
                continue
            busy_pools.add(pool.name)
        chosen.append(stage)
    return chosen


def _inherited(stage: Stage, broken: dict[str, DesaError]) -> DesaError | None:
    return next((broken[s.key.digest] for s in stage.inputs.values() if s.key.digest in broken), None)
