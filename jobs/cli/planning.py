"""Cells and stages of a plan, for the verb and for `desa_ray.plan`."""

from collections.abc import Sequence

from desa_ray.experiment.build import Cell
from desa_ray.experiment.places import home
from desa_ray.experiment.prepare import prepare
from desa_ray.experiment.run import open_store, plan
from desa_ray.experiment.spec import CellSpec
from desa_ray.pipeline.estimates import Planned, plan_stages
from desa_ray.pipeline.machine import this_machine
from desa_ray.store.artifacts import Store


def planned_stages(specs: Sequence[CellSpec]) -> tuple[Store, list[Cell], list[Planned]]:
    """The store, the cells, and the union of their stages with what is left to compute."""
    store, cells = planned_cells(specs)
    return store, cells, estimated(store, cells)


def estimated(store: Store, cells: Sequence[Cell]) -> list[Planned]:
    """The stages of some cells, with what is left to compute."""
    targets = [target for cell in cells for target in cell.targets]
    with store.snapshot():
        return plan_stages(store, targets, cells[0].config.cluster, this_machine())


def planned_cells(specs: Sequence[CellSpec]) -> tuple[Store, list[Cell]]:
    """The store and the cells, prepared."""
    store = open_store(specs[0].config)
    return store, plan(prepare([spec.config for spec in specs], store, home()))
