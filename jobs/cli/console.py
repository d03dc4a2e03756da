"""What the user sees: progress on stderr while stages run, a table of cells at the end."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from desa_ray.config import DEFAULT_RULE
from desa_ray.core.evaluation import metric_name
from desa_ray.errors import counted
from desa_ray.experiment.listener import Listener
from desa_ray.output import print_text
from desa_ray.pipeline.estimates import Planned
from desa_ray.pipeline.stage import Stage
from desa_ray.terminal import PlainTable, screen

from .progress import StageBars, title_of, titles_of

COLUMNS = {
    "ndcg_at_10": ("nDCG@10", "{:.4f}"),
    "recall_at_20": ("Recall@20", "{:.4f}"),
    "depth_dense": ("L_D", "{:.1f}"),
    "depth_sparse": ("L_S", "{:.1f}"),
    "both_shallower": ("shallower in both", "{:.1%}"),
    "sparse_support": ("sparse support", "{:.1f}"),
}


SAY_EVERY_S = 15.0
QUICK_S = 1.0  # stages below it share a line where there is no terminal


@dataclass
class _Going:
    """A running stage: when it started and was last reported (monotonic seconds), shards stored
    before, open, and done.
    """

    started: float
    spoke: float
    stored: int
    total: int
    done: int = 0


class ConsoleListener(Listener):
    """Live bars of the running stages on a terminal; elsewhere a line per stage when it ends, and
    now and then while it runs.
    """

    def __init__(self) -> None:
        self.console = screen(stderr=True)
        self.bars: StageBars | None = None
        self.titles: dict[str, str] = {}
        self.stages: dict[str, _Going] = {}
        self.quick, self.quick_s = 0, 0.0
        if self.console.is_terminal:
            self.bars = StageBars(self.console, {}, [])

    def planned(self, stages: Sequence[Stage], estimates: Callable[[], Sequence[Planned]]) -> None:
        self.titles = titles_of(stages)
        if self.bars is not None:
            self.bars = StageBars(self.console, self.titles, estimates())

    def note(self, text: str) -> None:
        note(text)

    def begin(self, stage: Stage, shards: int, stored: int) -> None:
        if self.bars is not None:
            self.bars.begin(stage, shards, stored)
        else:
            now = time.monotonic()
            self.stages[stage.key.digest] = _Going(now, now, stored, shards - stored)

    def advance(self, stage: Stage) -> None:
        if self.bars is not None:
            self.bars.advance(stage)
            return
        own = self.stages[stage.key.digest]
        own.done += 1
        now = time.monotonic()
        if now - own.spoke >= SAY_EVERY_S and own.done < own.total:
            own.spoke = now
            left_s = (now - own.started) / own.done * (own.total - own.done)
            done = f"{own.done} of {counted(own.total, 'shard')}"
            self._say(f"{self._title(stage)}: {done}, about {left_s:.0f} s left")

    def end(self, stage: Stage, seconds: float) -> None:
        if self.bars is not None:
            self.bars.end(stage)
        elif seconds < QUICK_S:
            self.quick, self.quick_s = self.quick + 1, self.quick_s + seconds
        else:
            own = self.stages[stage.key.digest]
            kept = f", {own.stored} stored before" if own.stored else ""
            done = f"done in {seconds:.1f} s, {counted(own.total, 'shard')}{kept}"
            self._say(f"{self._title(stage)}: {done}")

    def close(self) -> None:
        if self.bars is not None:
            self.bars.close()
        self._tell_quick()

    def finished(self, summaries: Sequence[Mapping[str, Any]], measures: Sequence[str]) -> None:
        if summaries:
            extra = [metric_name(measure) for measure in measures]
            screen(160).print(cells_table(summaries, extra))

    def _say(self, line: str) -> None:
        self._tell_quick()
        note(line)

    def _title(self, stage: Stage) -> str:
        return self.titles.get(stage.key.digest) or title_of(stage)

    def _tell_quick(self) -> None:
        """The stages too quick for a line of their own, as one."""
        if self.quick:
            note(f"{counted(self.quick, 'quick stage')}: done in {self.quick_s:.1f} s")
        self.quick, self.quick_s = 0, 0.0


def note(text: str) -> None:
    """A line for the person at the terminal, on stderr."""
    print_text(text, stderr=True)


def cells_table(cells: Sequence[Mapping[str, Any]], extra: Sequence[str] = ()) -> PlainTable:
    """Cells as rows, the main numbers as columns; what is the same for all is in the title."""
    names = ("dataset", "method", "encoder", "generator", "kappa", "n_refs", "corpus_docs")
    if any("rule" in cell for cell in cells):
        names = (*names, "rule")
        cells = [{"rule": DEFAULT_RULE, **cell} for cell in cells]
    if len({cell.get("k") for cell in cells}) > 1:
        names = (*names, "k")
    cells = [{**cell, **cell.get("apart", {})} for cell in cells]
    further = dict.fromkeys(name for cell in cells for name in cell.get("apart", {}))
    # A column says something only where two cells that have the setting at all differ in it.
    known: dict[str, list] = {}
    for name in names:
        known[name] = [cell[name] for cell in cells if cell[name] is not None]
    varying = [name for name in names if len(set(known[name])) > 1]
    first = ["method", *(name for name in varying if name != "method"), *further]
    constant = [name for name in names if name not in first and known[name]]
    fixed = ", ".join(f"{name} {known[name][0]}" for name in constant)
    head = cells[0]
    table = PlainTable(
        title=f"{fixed}; {head['n_queries']} queries", title_justify="left", title_style=""
    )
    for name in first:
        table.add_column(name, overflow="fold")
    shown = COLUMNS | {name: (name, "{:.4f}") for name in extra if name not in COLUMNS}
    for title, _ in shown.values():
        table.add_column(title, justify="right")
    for cell in cells:
        values = [cell["metrics"].get(name) for name in shown]
        numbers = [
            "-" if v is None else form.format(v)
            for v, (_, form) in zip(values, shown.values(), strict=True)
        ]
        table.add_row(
            *("-" if cell.get(name) is None else str(cell[name]) for name in first), *numbers
        )
    return table
