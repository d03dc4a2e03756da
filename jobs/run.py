"""Run cells: everything from the collection to MLflow (Hydra overrides; -m for a sweep)."""

from omegaconf import DictConfig

from desa_ray.experiment.run import run_cells
from jobs.app import hydra_app, output_folder
from jobs.arrival import arrive
from jobs.console import ConsoleListener, note
from jobs.settings import spec_of


def _task(config: DictConfig) -> None:
    folder = output_folder()
    run_cells([spec_of(config, folder)], summary=None, listener=ConsoleListener())
    note(f"results: {folder.absolute()}")


def main(arguments: list[str]) -> int:
    """`desa run [overrides]`; with -m the sweep goes through the `desa` launcher."""
    arrive()
    return hydra_app("run", "config", arguments, _task)
