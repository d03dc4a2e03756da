"""Run cells: everything from the collection to MLflow (Hydra overrides; -m for a sweep)."""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from desa_ray.counting import counting
from desa_ray.experiment.run import run_cells
from desa_ray.experiment.spec import Composed, cell_spec

from .cli.app import Summaries, hydra_app, output_folder
from .cli.arrival import arrive
from .cli.console import ConsoleListener, note
from .cli.given import check_used, distinct, of_each
from .cli.searching import KEYS
from .cli.settings import spec_of


def _task(config: DictConfig) -> None:
    folder = output_folder()
    specs = [spec_of(config, folder)]
    check_used(specs)
    run_cells(specs, summary=None, listener=ConsoleListener())
    note(f"results: {folder.absolute()}")


def _sweep(cells: Sequence[Composed], folder: Path, earlier: Summaries) -> Summaries:
    """Run the cells, equal ones once; `folder/summary.json` holds them all."""
    specs = [cell_spec(*cell) for cell in counting(cells, "reading cells")]
    check_used(specs)
    different = distinct(specs)
    folder.mkdir(parents=True, exist_ok=True)
    summaries = run_cells(
        different, summary=folder / "summary.json", listener=ConsoleListener(), earlier=earlier
    )
    note(f"results: {folder.absolute()}")
    return of_each(specs, summaries, len(earlier))


def main(arguments: list[str]) -> int:
    """`desa run [overrides]`; with -m the sweep goes through the `desa` launcher."""
    arrive()
    return hydra_app("run", "config", arguments, _task, sweep=_sweep, further=KEYS)
