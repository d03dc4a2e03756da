"""What the launcher does with the cells of a `-m` command, by the module of the verb."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from desa_ray.experiment.run import run_cells
from desa_ray.experiment.spec import CellSpec
from jobs.console import ConsoleListener, note
from jobs.plan import OPTIONS, plan_config, show_plan
from jobs.settings import spec_of
from jobs.submit import check_sweep


def _specs(configs: Sequence[DictConfig], folders: Sequence[Path], further: Sequence[str] = ()) -> list[CellSpec]:
    return [spec_of(config, folder, further) for config, folder in zip(configs, folders, strict=True)]


def run_sweep(configs: Sequence[DictConfig], folders: Sequence[Path], folder: Path) -> list[dict[str, Any]]:
    """Run the cells; `folder/summary.json` holds them all."""
    specs = _specs(configs, folders)
    folder.mkdir(parents=True, exist_ok=True)
    entries = run_cells(specs, summary=folder / "summary.json", listener=ConsoleListener())
    note(f"results: {folder.absolute()}")
    return entries


def plan_sweep(configs: Sequence[DictConfig], folders: Sequence[Path], folder: Path) -> list[dict[str, Any]]:
    """Show the plan of all cells together; runs nothing."""
    show_plan(_specs(configs, folders, OPTIONS), plan_config(configs[0]))
    return [{} for _ in configs]


SWEEPS: Mapping[str, Callable[[Sequence[DictConfig], Sequence[Path], Path], list[dict[str, Any]]]] = {
    "jobs.run": run_sweep,
    "jobs.plan": plan_sweep,
    "jobs.submit": check_sweep,
}
