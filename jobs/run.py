"""Run cells: everything from the collection to MLflow (Hydra overrides; -m for a sweep)."""

from omegaconf import DictConfig

from jobs.app import hydra_app, output_folder
from jobs.arrival import arrive
from jobs.cells import run_cells
from jobs.console import note
from jobs.settings import order_of


def _task(config: DictConfig) -> None:
    folder = output_folder()
    run_cells([order_of(config, folder)], summary=None)
    note(f"results: {folder.absolute()}")


def main(arguments: list[str]) -> int:
    """`desa run [overrides]`; with -m the sweep goes through the `desa` launcher."""
    arrive()
    return hydra_app("run", "config", arguments, _task)
