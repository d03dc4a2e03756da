"""The backend that a configuration asks for, started at the first task: if everything is stored,
neither Ray nor an engine starts.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from desa_ray.cluster.run_series import RunSeries
from desa_ray.config import RunConfig
from desa_ray.errors import DesaError
from desa_ray.experiment.places import home
from desa_ray.pipeline.backend import Backend, LostCluster
from desa_ray.pipeline.processes import (
    MAX_PARALLEL_STAGES,
    MachinePlacement,
    ProcessTransport,
    suits,
)
from desa_ray.pipeline.serial import SerialBackend
from desa_ray.pipeline.stage import Pool, Stage, Task
from desa_ray.pipeline.supervisor import Supervisor
from desa_ray.store.artifacts import Store

if TYPE_CHECKING:
    from desa_ray.cluster.node_watch import NodeWatch


class LazyBackend:
    """Passes everything on to a backend that it starts when it is first needed; ends it with
    `stack`.
    """

    def __init__(
        self,
        config: RunConfig,
        store: Store,
        stack: ExitStack,
        note: Callable[[str], None] = lambda text: None,
        series: RunSeries | None = None,
    ):
        """`note` informs the user about the cluster, `series` monitoring about the run."""
        self.series = series
        self.config, self.store, self.stack, self.note = config.cluster, store, stack, note
        self._backend: Backend | None = None
        self._losses = 0

    @property
    def backend(self) -> Backend:
        if self._backend is None:
            self._backend = self._start()
        return self._backend

    @property
    def max_parallel_stages(self) -> int:
        """One if nothing runs outside the driver; a session need not be up to know that."""
        return 1 if self.config.kind == "serial" else self.backend.max_parallel_stages

    def begin(self, todo: Sequence[Stage]) -> None:
        """Start workers of our own if the stages need them, without a cluster where they need
        little; with a cluster that runs, see `require`.
        """
        if self._backend is not None or self.config.kind != "local":
            return
        pools = [stage.work.pool for stage in todo if stage.work.pool is not None]
        if suits(self.config, todo):
            placement = MachinePlacement(self.config)
            self._backend = supervisor = Supervisor(
                ProcessTransport(), placement, self.config, max_parallel_stages=MAX_PARALLEL_STAGES
            )
            self.stack.callback(supervisor.close)
            supervisor.prestart(pools[0])
        elif pools:
            self._backend = self._start()

    def require(self, configs: Iterable[RunConfig], todo: Sequence[Stage]) -> None:
        """Join a running cluster now, and refuse it where a node lacks what they need, or none
        holds a worker.
        """
        if self.config.kind == "existing" and self._backend is None:
            from desa_ray.cluster.node_watch import NodeWatch
            from desa_ray.cluster.placement import check_pools
            from desa_ray.cluster.preflight import needs_of

            watch = NodeWatch(self.note)
            self._backend = self._start(watch)
            pools = [stage.work.pool for stage in todo if stage.work.pool is not None]
            check_pools(pools, self.config)
            watch.begin(needs_of(configs, home=home(), store_root=self.store.files.root))

    def compute(
        self,
        pool: Pool,
        tasks: Sequence[Task],
        on_start: Callable[[], None],
        on_done: Callable[[Task], None],
    ) -> int:
        return self.backend.compute(pool, tasks, on_start, on_done)

    def expect(self, pools: frozenset[str]) -> None:
        if self._backend is not None:
            self._backend.expect(pools)

    def stop(self) -> None:
        if self._backend is not None:
            self._backend.stop()

    def recover(self, loss: LostCluster) -> None:
        """Start a cluster of our own again; what is stored stays, so that the run continues from
        there.
        """
        self._losses += 1
        self.stack.close()
        self._backend = None
        if self.config.kind != "local":
            raise loss
        if self._losses >= self.config.max_failures:
            raise DesaError(
                f"{loss.what}, {self._losses} times in this run", where=loss.where, hint=loss.hint
            )
        self.note(f"{loss.what}; starting it again")
        self._backend = self._start()

    def _start(self, watch: "NodeWatch | None" = None) -> Backend:
        backend: Backend
        if self.config.kind == "serial":
            backend = SerialBackend(self.config.max_failures)
        else:
            from desa_ray.cluster.session import session
            from desa_ray.cluster.transport import ray_supervisor

            death = self.stack.enter_context(session(self.config))
            backend = ray_supervisor(
                self.config, self.store, death, self.note, self.series, watch=watch
            )
        self.stack.callback(backend.close)
        return backend

    def close(self) -> None:
        self.stack.close()
