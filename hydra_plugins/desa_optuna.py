"""Hydra sweeper `optuna`: `desa run -m objective=ndcg_at_10 KEY=VALUES` asks Optuna what to try.

Values with commas are choices, `range(1,201)` and `interval(0.1,2)` are numbers; everything else is
fixed. A batch of trials is one planned graph (`desa_ray.experiment.search` has the search).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    IntervalSweep,
    Override,
    QuotedString,
    RangeSweep,
)


@dataclass
class DesaOptunaConfig:
    """How many trials, how many at a time, of which metric, under which seed.

    Attributes:
        objective: a metric of `summary.json`, or a list of several.
        trials: how many are to finish, those of earlier commands with the same search among them.
        max_batch_size: trials that are asked and computed together.
    """

    _target_: str = "hydra_plugins.desa_optuna.DesaOptunaSweeper"
    max_batch_size: int = 5
    params: dict[str, str] | None = None
    grids: Any = None
    objective: Any = None
    trials: int = 30
    seed: int = 0


ConfigStore.instance().store(group="hydra/sweeper", name="optuna", node=DesaOptunaConfig)


class DesaOptunaSweeper(BasicSweeper):
    """Asks for batches of trials, has each run as one sweep, and reports the results."""

    def __init__(
        self,
        max_batch_size: int,
        params: dict[str, str] | None,
        grids: Any,
        objective: Any,
        trials: int,
        seed: int,
    ):
        super().__init__(max_batch_size, params)
        self.grids, self.trials, self.seed, self.together = grids, trials, seed, max_batch_size
        self.objectives = [objective] if isinstance(objective, str) else list(objective or ())

    def sweep(self, arguments: list[str]) -> Any:
        """Run the search; raises what failed, after all trials."""
        from desa_ray.experiment.places import home, search_storage
        from desa_ray.experiment.search import Search

        space, fixed = self._divided(arguments)
        self._check_objectives([*fixed, *(f"{key}={_any(own)}" for key, own in space.items())])
        search = Search(
            space,
            self.objectives,
            fixed=[*fixed, *self._contents(space, fixed)],
            seed=self.seed,
            storage=search_storage(),
            locks=home() / "searches",
        )
        try:
            return self._until_done(search, fixed)
        finally:
            search.close()

    def _until_done(self, search: Any, fixed: Sequence[str]) -> Any:
        """Ask, run and report until the wanted number of trials is finished."""
        from desa_ray.errors import Problems
        from desa_ray.output import print_text

        assert self.config is not None
        folder = Path(str(self.config.hydra.sweep.dir))
        text = f"search {search.name}: {search.finished} of {self.trials} trials are finished"
        print_text(text, stderr=True)
        cells: dict[int, int] = {}  # trial -> number of its cell, and so of its folder
        failures: list[Any] = []
        left = self.trials - search.finished
        while left > 0:
            batch = search.ask(min(self.together, left))
            left -= len(batch)  # one that fails is told, and asked again by another command
            overrides: list[list[str]] = []
            for trial in batch:
                own = [f"{key}={_written(value)}" for key, value in trial.values.items()]
                overrides.append([*fixed, *own])
            self.validate_batch_is_legal(overrides)
            first = len(cells)
            metrics, failure = self._run(overrides, first, folder)
            for number, (trial, found) in enumerate(zip(batch, metrics, strict=True), first):
                cells[trial.number] = number
                search.tell(trial, found)
            _note(folder, search, cells)
            if failure is not None:
                failures.append(failure)
                if not any(metrics) and not search.finished:  # more of it would not help
                    break
        for trial in search.best():
            values = ", ".join(f"{key}={_written(value)}" for key, value in trial.values.items())
            print_text(f"best: trial {trial.number}, {values}", stderr=True)
        if failures:
            raise failures[0] if len(failures) == 1 else Problems(failures)
        return search.table()

    def _divided(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """What is searched, by setting, and the overrides that are fixed."""
        from desa_ray.errors import DesaError

        self._check()
        given = [f"{key}={value}" for key, value in (self.params or {}).items()]
        parsed = OverridesParser.create().parse_overrides([*given, *arguments])
        last = {own.get_key_element(): own for own in parsed}
        space = {key: _searched(own) for key, own in last.items() if own.is_sweep_override()}
        fixed = [
            f"{key}={own.get_value_element_as_str()}"
            for key, own in last.items()
            if not own.is_sweep_override()
        ]
        if not space:
            hint = "give values to choose from: fusion.kappa=range(1,201)"
            raise DesaError("no setting is searched", where="objective", hint=hint)
        return space, fixed

    def _contents(self, space: Mapping[str, Any], fixed: Sequence[str]) -> list[str]:
        """Hashes of the data that trials read: a search of other data under the same names is
        another one.
        """
        from desa_ray.experiment.contents import content_hashes
        from desa_ray.experiment.spec import cell_spec

        launcher: Any = self.launcher
        base = {key: _any(own) for key, own in space.items()}
        points = [base]
        for key, own in space.items():  # a group, or where the data set's files are
            if hasattr(own, "values") and ("." not in key or key.startswith("dataset.")):
                points += [{**base, key: _written(value)} for value in own.values[1:]]
        configs = []
        for point in points:
            overrides = [*fixed, *(f"{key}={value}" for key, value in point.items())]
            configs.append(cell_spec(launcher.composer.cell(overrides), Path()).config)
        return content_hashes(configs)

    def _check_objectives(self, overrides: Sequence[str]) -> None:
        """Refuses objectives that no cell has, before any is computed."""
        from desa_ray.errors import DesaError, choices
        from desa_ray.experiment.checks import MEASURES
        from desa_ray.experiment.summary import metric_names

        launcher: Any = self.launcher
        settings = launcher.composer.cell(overrides)
        known = metric_names([*MEASURES, *settings["evaluation"]["measures"]])
        for name in self.objectives:
            if name not in known:
                hint = choices(name, known, 40)
                raise DesaError(f"no metric {name!r}", where="objective", hint=hint)

    def _check(self) -> None:
        from desa_ray.errors import DesaError

        if self.grids:
            hint = "leave out the experiment or objective="
            raise DesaError("an experiment with several grids cannot be searched", hint=hint)
        if not self.objectives:
            hint = "name a metric: objective=ndcg_at_10"
            raise DesaError("no objective", where="objective", hint=hint)
        for name, value in (
            ("trials", self.trials),
            ("hydra.sweeper.max_batch_size", self.together),
        ):
            if not isinstance(value, int) or value < 1:
                raise DesaError(f"is {value}, expected a whole number above 0", where=name)

    def _run(
        self, overrides: Sequence[Sequence[str]], first: int, folder: Path
    ) -> tuple[list[Mapping[str, Any] | None], Any]:
        """The metrics of each cell, None for one that failed; and the error, where some did."""
        from desa_ray.errors import DesaError

        launcher: Any = self.launcher
        try:
            done = launcher.launch(overrides, first)
            return [entry.return_value["metrics"] for entry in done], None
        except DesaError as error:
            places = [
                folder / launcher.composer.folder(own, number)
                for number, own in enumerate(overrides, first)
            ]
            told = _cells(folder, "failed")
            if not told:
                raise  # before anything was computed
            found = [_cells(place, "cells") for place in places]
            return [cells[0]["metrics"] if cells else None for cells in found], error


def _cells(folder: Path, entry: str) -> list[Any]:
    """An entry of the summary in a folder; nothing where there is no summary."""
    summary = folder / "summary.json"
    if not summary.is_file():
        return []
    return json.loads(summary.read_text(encoding="utf-8")).get(entry, [])


def _note(folder: Path, search: Any, cells: Mapping[int, int]) -> None:
    """`search.json` next to the sweep's summary: the search, its trials, and the best ones."""
    from desa_ray.experiment.cell_files import write_json

    rows = search.table()
    for row in rows:  # trials of earlier commands have their cells elsewhere
        row["cell"] = cells.get(row["trial"])
    best = [trial.number for trial in search.best()]
    facts = {"search": search.name, "seed": search.seed, "objectives": search.objectives}
    write_json(folder / "search.json", {**facts, "best": best, "trials": rows})


def _searched(override: Override) -> Any:
    """What a sweep over values means to a search.

    Raises:
        DesaError: values that are neither plain nor numbers.
    """
    from desa_ray.errors import DesaError
    from desa_ray.experiment.search import Choices, Numbers

    value, key = override.value(), override.get_key_element()
    log = "log" in getattr(value, "tags", ())
    if isinstance(value, IntervalSweep) and value.start is not None and value.end is not None:
        whole = isinstance(value.start, int) and isinstance(value.end, int)
        return Numbers(value.start, value.end, whole=whole, log=log)
    if isinstance(value, RangeSweep):
        texts = list(override.sweep_string_iterator())
        values = sorted(map(float, texts))
        if values:
            whole = all(re.fullmatch(r"-?\d+", text) for text in texts)
            return Numbers(values[0], values[-1], abs(value.step or 1), whole, log)
    if isinstance(value, ChoiceSweep):
        plain: list[Any] = [
            one.text if isinstance(one, QuotedString) else one for one in value.list
        ]
        if all(isinstance(one, str | int | float | bool) for one in plain):
            return Choices(tuple(plain))
    hint = "write choices (a,b), range(1,201) or interval(0.1,2)"
    raise DesaError("cannot be searched", where=key, hint=hint)


def _any(own: Any) -> str:
    """One of the values that are searched, as an override says it."""
    return _written(own.values[0] if hasattr(own, "values") else own.low)


def _written(value: Any) -> str:
    """A value as an override says it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return format(value, ".12g") if isinstance(value, float) else str(value)
