"""Hydra sweeper `desa`: the basic one, and the union of several grids, every cell once.

An experiment that is more than one product of choices gives `hydra.sweeper.grids`, each a mapping
like `params`. Overrides of the command line hold in every grid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from hydra_plugins.desa_launcher import DesaLauncher


@dataclass
class DesaSweeperConfig:
    """The basic sweeper's fields, and `grids`."""

    _target_: str = "hydra_plugins.desa_sweeper.DesaSweeper"
    max_batch_size: int | None = None
    params: dict[str, str] | None = None
    grids: list[Any] = field(default_factory=list)


ConfigStore.instance().store(group="hydra/sweeper", name="desa", node=DesaSweeperConfig)


class DesaSweeper(BasicSweeper):
    """Sweeps over `params` as Hydra's own sweeper does, or over the union of `grids`."""

    def __init__(
        self,
        max_batch_size: int | None = None,
        params: dict[str, str] | None = None,
        grids: Sequence[Mapping[str, Any]] = (),
    ):
        super().__init__(max_batch_size, params)
        self.grids = grids

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Compose every cell, so that a mistake in one is found before any runs; the launcher
        `desa` does so itself.
        """
        if not isinstance(self.launcher, DesaLauncher):
            super().validate_batch_is_legal(batch)

    def split_arguments(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, overrides: list[Override], max_batch_size: int | None
    ) -> list[list[list[str]]]:
        """Batches of cells, each a list of overrides; those of all grids where there are some."""
        if not self.grids:
            return BasicSweeper.split_arguments(overrides, max_batch_size)
        cells = union(self.grids, overrides)
        if max_batch_size is None:
            return [cells]
        return list(BasicSweeper.split_overrides_to_chunks(cells, max_batch_size))


def union(grids: Sequence[Mapping[str, Any]], overrides: list[Override]) -> list[list[str]]:
    """The cells of every grid with `overrides` on top, in order, each set of overrides once."""
    parser = OverridesParser.create()
    found: dict[frozenset[str], list[str]] = {}
    for grid in grids:
        own = parser.parse_overrides([f"{key}={value}" for key, value in grid.items()])
        (cells,) = BasicSweeper.split_arguments([*own, *overrides], None)
        for cell in cells:
            found.setdefault(frozenset(cell), list(cell))
    return list(found.values())
