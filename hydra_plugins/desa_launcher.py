"""Hydra launcher `desa`: receives all overrides of a sweep at once and hands the cells to one
runner.

Hydra finds launchers only in the namespace `hydra_plugins`; the task function of a verb says what
is done with its cells.
"""

import json
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
        self.earlier: list[dict[str, Any]] = []  # summaries of earlier batches of the sweep
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

        loader.repository.load_config = from_memory

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run all jobs; returns one completed `JobReturn` per job, its summary as return value."""
        from desa_ray.counting import counting
        from desa_ray.errors import DesaError
        from desa_ray.experiment.spec import Composed

        folder = Path(str(self.config.hydra.sweep.dir))
        cells: list[Composed] = []
        numbered = [*enumerate(job_overrides, initial_job_idx)]
        for number, overrides in counting(numbered, "composing cells"):
            own = folder / self.composer.folder(overrides, number)
            cells.append(Composed(self.composer.cell(overrides), own))
        _check_folders([cell.folder for cell in cells])
        try:
            summaries = self.task.sweep(cells, folder, [*self.earlier])
        except DesaError:  # a search goes on after cells that failed
            self.earlier = _finished(folder) or self.earlier
            raise
        entries = summaries[len(self.earlier) :]
        # Equal cells have one summary, which is listed once.
        self.earlier += {id(entry): entry for entry in entries}.values()
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


def _check_folders(folders: Sequence[Path]) -> None:
    """Refuse cells of which several would write to one folder."""
    from desa_ray.errors import DesaError, listed

    places = [folder.resolve() for folder in folders]
    if twice := sorted(str(place) for place, cells in Counter(places).items() if cells > 1):
        what = f"{len(places)} cells, but several would write to {listed(twice)}"
        raise DesaError(
            what,
            where="hydra.sweep.subdir",
            hint="make it differ between cells, for example ${hydra.job.num}",
        )


def _finished(folder: Path) -> list[dict[str, Any]]:
    """The cells in the summary of a sweep; none where it has no summary."""
    summary = folder / "summary.json"
    return json.loads(summary.read_text(encoding="utf-8"))["cells"] if summary.is_file() else []
