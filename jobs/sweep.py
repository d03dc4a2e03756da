"""What the launcher does with the cells of a `-m` command, by the module of the verb."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from jobs.cells import Order, run_cells
from jobs.console import note
from jobs.plan import OPTIONS, plan_config, show_plan
from jobs.settings import order_of
from jobs.submit import check_sweep


def _orders(configs: Sequence[DictConfig], folders: Sequence[Path], further: Sequence[str] = ()) -> list[Order]:
    return [order_of(config, folder, further) for config, folder in zip(configs, folders, strict=True)]


def run_sweep(configs: Sequence[DictConfig], folders: Sequence[Path], folder: Path) -> list[dict[str, Any]]:
    """Run the cells; `folder/summary.json` holds them all."""
    orders = _orders(configs, folders)
    folder.mkdir(parents=True, exist_ok=True)
    entries = run_cells(orders, summary=folder / "summary.json")
    note(f"results: {folder.absolute()}")
    return entries


def plan_sweep(configs: Sequence[DictConfig], folders: Sequence[Path], folder: Path) -> list[dict[str, Any]]:
    """Show the plan of all cells together; runs nothing."""
    show_plan(_orders(configs, folders, OPTIONS), plan_config(configs[0]))
    return [{} for _ in configs]


SWEEPS: Mapping[str, Callable[[Sequence[DictConfig], Sequence[Path], Path], list[dict[str, Any]]]] = {
    "jobs.run": run_sweep,
    "jobs.plan": plan_sweep,
    "jobs.submit": check_sweep,
}
