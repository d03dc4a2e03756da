"""Progress on a terminal: a bar for each running stage, and one for all of them with the time that
is left.

Finished stages make no rows: they count in the last one.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from desa_ray.errors import counted
from desa_ray.pipeline.estimates import Planned
from desa_ray.pipeline.stage import Stage, ancestors
from desa_ray.printable import printable
from desa_ray.terminal import Console

from .plan_views import duration

TRUSTED = 0.05  # share of the work after which its own pace corrects the estimate


def title_of(stage: Stage) -> str:
    """The kind of a stage and what of it."""
    return printable(f"{stage.name:12} {stage.label}")


def _labels(stage: Stage) -> list[str]:
    """Each label once of a stage and what it is computed from, in order."""
    return list(dict.fromkeys(own.label for own in ancestors([stage])))


def _shortest(labels: Sequence[str], common: Collection[str]) -> str:
    """The shortest label that is not a common one."""
    return min((label for label in labels if label not in common), key=len, default="")


def titles_of(stages: Sequence[Stage]) -> dict[str, str]:
    """Key -> a title that no other stage has: where titles are equal, they are distinguished by
    what the stages are built on (data set, encoder, texts), else the start of the key.
    """
    titles = {stage.key.digest: title_of(stage) for stage in stages}
    alike: dict[str, list[Stage]] = {}
    for stage in {stage.key.digest: stage for stage in stages}.values():
        alike.setdefault(titles[stage.key.digest], []).append(stage)
    for title, group in alike.items():
        if len(group) == 1:
            continue
        labels = [_labels(stage) for stage in group]
        common = set(labels[0]).intersection(*labels[1:])
        shortest = [_shortest(own, common) for own in labels]
        distinct = len(set(shortest)) == len(group) and all(shortest)
        for stage, short in zip(group, shortest, strict=True):
            word = short if distinct else stage.key.short
            titles[stage.key.digest] = f"{title} ({printable(word)})"
    return titles


@dataclass
class _Row:
    """A running stage: its bar, what of it was stored, shards done and in all; its share of the
    work.
    """

    task: TaskID
    stored: int
    done: int
    total: int


class StageBars:
    """The bars of one run.

    Args:
        console: the terminal.
        titles: key -> title, as `titles_of` gives.
        planned: what a plan expects of the stages to come; none where nothing is known.
    """

    def __init__(self, console: Console, titles: Mapping[str, str], planned: Sequence[Planned]):
        self.titles = titles
        self.planned = {own.stage.key.digest: own for own in planned if own.to_compute}
        known = [own.seconds for own in self.planned.values() if own.seconds is not None]
        usual = sum(known) / len(known) if known else 1.0
        # Seconds of each stage; of one that nothing is known of, those of the mean stage.
        self.weights: dict[str, float] = {}
        for digest, own in self.planned.items():
            self.weights[digest] = max(usual if own.seconds is None else own.seconds, 0.01)
        self.estimated = bool(known)
        self.finished: set[str] = set()
        self.rows: dict[str, _Row] = {}
        self.started = time.monotonic()
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[status]}", markup=False),
            TimeElapsedColumn(),
            console=console,
        )
        self.all: TaskID | None = None

    def begin(self, stage: Stage, shards: int, stored: int) -> None:
        """A row for the stage; the row of all is the last one."""
        if self.all is not None:
            self.bars.remove_task(self.all)
        digest = stage.key.digest
        title = self.titles.get(digest) or title_of(stage)
        task = self.bars.add_task(title, total=max(shards, 1), completed=stored, status="")
        self.rows[digest] = _Row(task, stored, stored, shards)
        if self.planned:
            self.all = self.bars.add_task("all", total=1.0, status="")
        self._show(digest)
        self.bars.start()  # with the first stage only

    def advance(self, stage: Stage) -> None:
        row = self.rows[stage.key.digest]
        row.done += 1
        self._show(stage.key.digest)

    def end(self, stage: Stage) -> None:
        """The stage's row goes."""
        row = self.rows.pop(stage.key.digest, None)
        if row is not None:
            self.bars.remove_task(row.task)
        self.finished.add(stage.key.digest)
        self._show_all()

    def close(self) -> None:
        self.bars.stop()

    def _show(self, digest: str) -> None:
        row, own = self.rows[digest], self.planned.get(digest)
        status = f"{row.done} of {counted(row.total, 'shard')}"
        if own is not None and own.items and own.unit:
            items = round(own.items * self._share(row))
            status = f"{items:,} of {own.items:,} {own.unit}"
        self.bars.update(row.task, completed=row.done, status=status)
        self._show_all()

    def _share(self, row: _Row) -> float:
        """How much of what was open is done."""
        return (row.done - row.stored) / max(row.total - row.stored, 1)

    def _show_all(self) -> None:
        if self.all is None:
            return
        whole = sum(self.weights.values())
        done = sum(self.weights[digest] for digest in self.finished & self.weights.keys())
        for digest, row in self.rows.items():
            done += self.weights.get(digest, 0.0) * self._share(row)
        status = f"{len(self.finished)} of {counted(len(self.planned), 'stage')}"
        left = self.left_s(whole, done)
        if left is not None and done < whole:
            status += f", about {duration(left)} left"
        self.bars.update(self.all, completed=done / whole, status=status)

    def left_s(self, whole: float, done: float) -> float | None:
        """Seconds that are left: as the plan expects them, corrected by the pace so far; None where
        neither is known.
        """
        if done > TRUSTED * whole:
            return (whole - done) * (time.monotonic() - self.started) / done
        return whole - done if self.estimated else None
