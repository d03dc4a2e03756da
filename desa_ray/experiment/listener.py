"""What a run reports while it is running: progress of stages, notes, finished cells."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from desa_ray.pipeline.estimates import Planned
from desa_ray.pipeline.stage import Stage


class Listener:
    """Shows nothing; others show what they override. Calls may come from several threads."""

    def note(self, text: str) -> None:
        """One line for the user."""

    def planned(self, stages: Sequence[Stage], estimates: Callable[[], Sequence[Planned]]) -> None:
        """What will be computed; `estimates` reads what a plan expects of it."""

    def begin(self, stage: Stage, shards: int, stored: int) -> None:
        """A stage starts; `stored` of its shards are there already."""

    def advance(self, stage: Stage) -> None:
        """One more shard of the stage is stored."""

    def end(self, stage: Stage, seconds: float) -> None:
        """The stage is stored."""

    def close(self) -> None:
        """No stage runs any more."""

    def finished(self, summaries: Sequence[Mapping[str, Any]], measures: Sequence[str]) -> None:
        """All cells that can be finished are; called before the error of a failed one is raised. A
        summary's `apart` has the settings that distinguish its cell from others of equal labels.
        """
