"""Check results against expected numbers: desa verify expected=scifact dataset.path=... (Hydra
overrides).

An expectations file (conf/expected/NAME.yaml) lists conditions: overrides, metric, value, tolerance
and the value's source. Conditions are run like any cell, so what is stored is reused; the exit code
is 1 when one does not hold.
"""

from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from desa_ray.errors import DesaError, listed
from desa_ray.experiment.run import run_cells
from desa_ray.experiment.spec import CellSpec
from desa_ray.terminal import PlainTable, screen

from .cli.app import hydra_app, output_folder
from .cli.console import ConsoleListener
from .cli.settings import spec_of

_failed: list[str] = []


def _specs(
    rows: list[dict[str, Any]], common: list[str], folder: Path
) -> dict[tuple[str, ...], CellSpec]:
    specs: dict[tuple[str, ...], CellSpec] = {}
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


def _task(config: DictConfig) -> None:
    found: Any = OmegaConf.select(config, "expected")
    rows: Any = None if found is None else OmegaConf.to_container(found)
    if not isinstance(rows, list) or not rows:
        raise DesaError(
            "no expectations chosen",
            where="expected",
            hint="desa verify expected=NAME; see conf/expected",
        )
    common = [o for o in HydraConfig.get().overrides.task if not o.startswith("expected=")]
    specs = _specs(rows, common, output_folder())
    summary = output_folder() / "summary.json"
    summaries = run_cells(list(specs.values()), summary=summary, listener=ConsoleListener())
    entries = dict(zip(specs, summaries, strict=True))
    table = PlainTable(title="expected numbers", title_justify="left", title_style="")
    for name in ("condition", "metric", "expected", "tolerance", "found", "holds", "source"):
        table.add_column(name, overflow="fold")
    for row in rows:
        value = entries[tuple(row["overrides"])]["metrics"].get(row["metric"])
        holds = value is not None and abs(value - row["value"]) <= row["tolerance"]
        if not holds:
            _failed.append(row["metric"])
        shown = "-" if value is None else f"{value:.5g}"
        cells = [
            " ".join(row["overrides"]),
            row["metric"],
            str(row["value"]),
            str(row["tolerance"]),
            shown,
        ]
        table.add_row(*cells, "yes" if holds else "NO", row["source"])
    screen(160).print(table)


def main(arguments: list[str]) -> int:
    """`desa verify expected=NAME [overrides]`; 0 when every condition holds."""
    code = hydra_app("verify", "verify", arguments, _task, further=("expected",))
    return 1 if _failed else code
