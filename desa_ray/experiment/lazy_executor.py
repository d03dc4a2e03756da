"""The executor a configuration asks for, started at the first task: a plan of hits starts neither Ray nor engines."""

from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import AbstractContextManager, ExitStack

from desa_ray.config import RunConfig
from desa_ray.errors import DesaError
from desa_ray.experiment.places import home
from desa_ray.pipeline.executor import Executor, LostCluster, SerialExecutor
from desa_ray.pipeline.processes import ProcessExecutor, suits
from desa_ray.pipeline.stage import Pool, Stage, Task
from desa_ray.store.artifacts import Store


class LazyExecutor:
    """Passes everything on to an executor that it starts when it is first needed; ends it with `stack`."""

    def __init__(
        self, config: RunConfig, store: Store, stack: ExitStack, note: Callable[[str], None] = lambda text: None
    ):
        """`note` tells the user what happened to the cluster."""
        self.config, self.store, self.stack, self.note = config.cluster, store, stack, note
        self._executor: Executor | None = None
        self._losses = 0

    @property
    def executor(self) -> Executor:
        if self._executor is None:
            self._executor = self._start()
        return self._executor

    @property
    def max_parallel_stages(self) -> int:
        """One where nothing runs beside the driver; a session need not be up to know that."""
        return 1 if self.config.kind == "serial" else self.executor.max_parallel_stages

    def begin(self, todo: Sequence[Stage]) -> None:
        """Start workers of our own if the stages need them, without a cluster where they need little; with a cluster
        that runs, see `require`.
        """
        if self._executor is not None or self.config.kind != "local":
            return
        pools = [stage.work.pool for stage in todo if stage.work.pool is not None]
        if suits(self.config, todo):
            self._executor = executor = ProcessExecutor(self.store.files.root, self.config)
            self.stack.callback(executor.close)
            executor.start(pools[0])
        elif pools:
            self._executor = self._start()

    def require(self, configs: Iterable[RunConfig], todo: Sequence[Stage]) -> None:
        """Join a running cluster now, and refuse it where a node lacks what they need, or none holds a worker."""
        if self.config.kind == "existing" and self._executor is None:
            from desa_ray.cluster.preflight import check_nodes, needs_of
            from desa_ray.cluster.resources import check_pools

            self._executor = self._start()
            check_pools([stage.work.pool for stage in todo if stage.work.pool is not None])
            check_nodes(needs_of(configs, home=home(), store_root=self.store.files.root))

    def rank(self, pool: Pool) -> tuple[int, int]:
        return self.executor.rank(pool)

    def admit(self, pool: Pool, keep: Set[str]) -> bool:
        return self.executor.admit(pool, keep)

    def release(self, pool: Pool) -> None:
        self.executor.release(pool)

    def turn(self, pool: Pool) -> AbstractContextManager[object]:
        return self.executor.turn(pool)

    def stop(self) -> None:
        if self._executor is not None:
            self._executor.stop()

    def workers_for(self, pool: Pool, tasks: int) -> int:
        return self.executor.workers_for(pool, tasks)

    def map(self, pool: Pool, tasks: Sequence[Task], done: Callable[[Task], None]) -> None:
        self.executor.map(pool, tasks, done)

    def recover(self, loss: LostCluster) -> None:
        """Start a cluster of our own again; what is stored stays, so that the run goes on from there."""
        self._losses += 1
        self.stack.close()
        self._executor = None
        if self.config.kind != "local" or self._losses >= self.config.max_failures:
            raise DesaError(f"{loss.what}, {self._losses} times in this run", where=loss.where, mend=loss.mend)
        self.note(f"{loss.what}; starting it again")
        self._executor = self._start()

    def _start(self) -> Executor:
        if self.config.kind == "serial":
            executor: Executor = SerialExecutor(self.store.files.root)
        else:
            from desa_ray.cluster.executor import RayExecutor
            from desa_ray.cluster.session import session

            death = self.stack.enter_context(session(self.config))
            executor = RayExecutor(self.store.files.root, self.config, death)
        self.stack.callback(executor.close)
        return executor

    def close(self) -> None:
        self.stack.close()
