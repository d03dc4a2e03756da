"""A worker: an engine and the shards it computes, in the driver, in a child process or
as an actor.
"""

from typing import Any

from desa_ray.error_boundary import error_boundary
from desa_ray.pipeline.stage import Pool, Task


class Worker:
    """An engine, loaded once by the first task, so that its error is that task's."""

    def __init__(self, pool: Pool):
        self.pool = pool
        self.engine: Any = None

    def load(self) -> None:
        """Load the engine, if that was not done yet."""
        if self.engine is None:
            self.engine = self.pool.factory()

    @property
    def rows_at_once(self) -> int:
        """Of how many rows its engine wants shards at once; 0 for one shard at a time, as where it
        is not loaded.
        """
        return int(getattr(self.engine, "rows_at_once", 0)) if self.pool.in_flight > 1 else 0

    def run(self, task: Task) -> None:
        """Compute one shard; whatever goes wrong is an error for the user, also beyond this
        process.
        """
        with error_boundary(str(task)):
            self.load()
            task.stage.work.run(self.engine, task.stage, task.shard)
