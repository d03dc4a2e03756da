"""From Hydra's configuration of one cell to the typed one."""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from desa_ray.experiment.spec import CellSpec, cell_spec

from .composition import plain_of


def spec_of(config: DictConfig, folder: Path, further: Sequence[str] = ()) -> CellSpec:
    """A composed configuration as a cell to run; every wrong or unknown value is reported at once.

    Args:
        config: as Hydra composed it.
        folder: where the cell's files go.
        further: top-level keys that the verb reads itself.
    """
    return cell_spec(plain_of(config), folder, further)
