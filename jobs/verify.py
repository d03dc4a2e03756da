"""Check results against expected numbers, such as expected=scifact (Hydra overrides).

An expectations file (conf/expected/NAME.yaml) lists conditions: overrides, metric, value, tolerance
and the value's source. Conditions are run like any cell, so what is stored is reused. Those whose
collection, encoder or engine is not there are listed, a line each with the reason, and left out;
the exit code is 1 if one that was checked does not hold. A row with `differs: REASON` is shown for
comparison only: its value was obtained in another way, so it need not hold.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from desa_ray.credentials import refuse_credentials
from desa_ray.errors import DesaError, Problems, counted, listed
from desa_ray.experiment.places import home
from desa_ray.experiment.prepare import Answers, prepare_cell
from desa_ray.experiment.run import open_store, run_cells
from desa_ray.experiment.spec import CellSpec, addresses
from desa_ray.terminal import PlainTable, screen

from .cli.app import hydra_app, output_folder
from .cli.composition import plain_of
from .cli.console import ConsoleListener, note
from .cli.settings import spec_of

Condition = tuple[str, ...]  # its overrides
_failed: list[str] = []


def _specs(
    rows: list[dict[str, Any]], common: list[str], folder: Path
) -> dict[Condition, CellSpec]:
    specs: dict[Condition, CellSpec] = {}
    given = {override.lstrip("+~").split("=", 1)[0] for override in common}
    for row in rows:
        overrides = tuple(row["overrides"])
        if fixed := given & {override.split("=", 1)[0] for override in overrides}:
            what = f"{listed(sorted(fixed))} is fixed by the expectations"
            raise DesaError(
                what,
                where=" ".join(overrides),
                hint="leave it out, or write expectations of your own",
            )
        if overrides not in specs:
            config = compose("config", overrides=[*overrides, *common])
            specs[overrides] = spec_of(config, folder / str(len(specs)))
    return specs


def _lacking(specs: Mapping[Condition, CellSpec]) -> dict[Condition, str]:
    """Why a condition cannot be run here, for those that cannot: its first problem."""
    store = open_store(next(iter(specs.values())).config)
    found: dict[Condition, str] = {}
    answers = Answers()
    for overrides, spec in specs.items():
        try:
            prepare_cell(spec.config, store, home(), answers)
        except Problems as problems:
            found[overrides] = str(problems.problems[0])
        except DesaError as problem:
            found[overrides] = str(problem)
    return found


def _task(config: DictConfig) -> None:
    refuse_credentials(addresses(plain_of(config)))
    chosen: Any = OmegaConf.select(config, "expected")
    rows: Any = None if chosen is None else OmegaConf.to_container(chosen)
    if not isinstance(rows, list) or not rows:
        raise DesaError(
            "no expectations chosen",
            where="expected",
            hint="desa verify expected=NAME; see conf/expected",
        )
    common = [o for o in HydraConfig.get().overrides.task if not o.startswith("expected=")]
    specs = _specs(rows, common, output_folder())
    lacking = _lacking(specs)
    held = Counter(tuple(row["overrides"]) for row in rows)
    for overrides, reason in lacking.items():
        number = counted(held[overrides], "expectation")
        note(f"{' '.join(overrides)}: {number} not checked: {reason}")
    if len(lacking) == len(specs):
        raise DesaError(
            f"none of {counted(len(rows), 'expectation')} can be checked, for the reasons above",
            where="expected",
            hint="set dataset.path= and encoder.path= to local folders",
        )
    run = {overrides: spec for overrides, spec in specs.items() if overrides not in lacking}
    summary = output_folder() / "summary.json"
    summaries = run_cells(list(run.values()), summary=summary, listener=ConsoleListener())
    _show(rows, dict(zip(run, summaries, strict=True)))


def _show(rows: list[dict[str, Any]], entries: Mapping[Condition, Mapping[str, Any]]) -> None:
    """The table of all conditions; those that do not agree are remembered for the exit code."""
    table = PlainTable(title="expected numbers", title_justify="left", title_style="")
    for name in ("condition", "metric", "expected", "tolerance", "found", "holds", "source"):
        table.add_column(name, overflow="fold")
    checked = 0
    beside: Counter[str] = Counter()
    for row in rows:
        entry = entries.get(tuple(row["overrides"]))
        value = None if entry is None else entry["metrics"].get(row["metric"])
        holds = value is not None and abs(value - row["value"]) <= row["tolerance"]
        differs = row.get("differs")
        if entry is not None and differs is None:
            checked += 1
            if not holds:
                _failed.append(row["metric"])
        if differs is not None:
            beside[differs] += 1
        cells = [
            " ".join(row["overrides"]),
            row["metric"],
            f"{row['value']:.8g}",
            str(row["tolerance"]),
            "-" if value is None else f"{value:.8g}",
            _verdict(entry is not None, holds, differs),
        ]
        table.add_row(*cells, row["source"])
    screen(160).print(table)
    for reason, count in beside.items():
        note(f"{counted(count, 'number')} for comparison only: {reason}")
    expected = counted(len(rows) - beside.total(), "expectation")
    note(f"{checked} of {expected} checked, {len(_failed)} do not agree")


def _verdict(known: bool, holds: bool, differs: str | None) -> str:
    if not known:
        return "not checked"
    if differs is not None:
        return "beside"
    return "yes" if holds else "NO"


def main(arguments: list[str]) -> int:
    """`desa verify expected=NAME [overrides]`; 0 when every condition that is checked holds."""
    _failed.clear()
    code = hydra_app("verify", "verify", arguments, _task, further=("expected",))
    return 1 if _failed else code
