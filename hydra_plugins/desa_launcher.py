"""Hydra launcher `desa`: receives all overrides of a sweep at once and hands the cells to one
runner.

Hydra finds launchers only in the namespace `hydra_plugins`; the task function of a verb says what
is done with its cells.
"""

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class DesaLauncherConfig:
    """Hydra's own fields only: the launcher takes no options, `cluster` has them."""

    _target_: str = "hydra_plugins.desa_launcher.DesaLauncher"


ConfigStore.instance().store(group="hydra/launcher", name="desa", node=DesaLauncherConfig)


class DesaLauncher(Launcher):
    """Composes every job's configuration and runs them as one sweep."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.context, self.config = hydra_context, config
        self.task: Any = task_function  # `HydraTask`
        # Before the sweeper writes its notes there, so that they go again with a sweep that is
        # refused.
        self.task.claim(Path(str(config.hydra.sweep.dir)))
        loader: Any = hydra_context.config_loader
        self.composer = self.task.composer(loader, config)
        read, files = loader.repository.load_config, {}

        def from_memory(config_path: str) -> Any:
            if config_path not in files:
                files[config_path] = read(config_path)
            return deepcopy(files[config_path])

        def composed(master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
            del master_config
            return self.composer.compose(sweep_overrides)

        # The sweeper composes every cell to check it: what it composed is taken for the run too.
        loader.load_sweep_config, loader.repository.load_config = composed, from_memory

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run all jobs; returns one completed `JobReturn` per job, its summary as return value."""
        from desa_ray.counting import counting
        from desa_ray.errors import DesaError, listed

        sweep_folder = Path(str(self.config.hydra.sweep.dir))
        configs, folders = [], []
        numbered = [*enumerate(job_overrides, initial_job_idx)]
        for number, overrides in counting(numbered, "composing cells"):
            folders.append(sweep_folder / self.composer.folder(overrides, number))
            configs.append(self.composer.cell(overrides))
        places = [folder.resolve() for folder in folders]
        if twice := sorted(str(place) for place, cells in Counter(places).items() if cells > 1):
            what = f"{len(places)} cells, but several would write to {listed(twice)}"
            raise DesaError(
                what,
                where="hydra.sweep.subdir",
                hint="make it differ between cells, for example ${hydra.job.num}",
            )
        entries = self.task.sweep(configs, folders, sweep_folder)
        returns = []
        for overrides, entry in zip(job_overrides, entries, strict=True):
            done = JobReturn()
            done.overrides, done.status, done.return_value = (
                list(overrides),
                JobStatus.COMPLETED,
                entry,
            )
            returns.append(done)
        return returns
