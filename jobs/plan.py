"""Show what a run would reuse and compute, its time and size (Hydra overrides; -m for a sweep).

Runs nothing but reading the collection. Options of its own: view=table|tree, detail=true,
explain=CELL.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from omegaconf import DictConfig
from pydantic import Field
from pydantic.dataclasses import dataclass

from desa_ray.config import STRICT, ClusterConfig
from desa_ray.config_check import checked
from desa_ray.config_values import Int
from desa_ray.counting import counting
from desa_ray.errors import DesaError, listed
from desa_ray.experiment.build import Cell
from desa_ray.experiment.fusing import fused_methods, kappa_of
from desa_ray.experiment.spec import CellSpec, Composed, cell_spec
from desa_ray.output import print_text
from desa_ray.pipeline.explain import Reason, explain
from desa_ray.pipeline.feasible import check_feasible
from desa_ray.pipeline.stage import ancestors
from desa_ray.printable import printable
from desa_ray.store.artifacts import Store
from desa_ray.terminal import PlainTable, screen, shown

from .cli.app import Summaries, hydra_app, output_folder
from .cli.composition import Plain, plain_of
from .cli.given import check_used, distinct
from .cli.plan_views import growth, plan_table, plan_tree, totals
from .cli.planning import estimated, planned_cells
from .cli.settings import spec_of

OPTIONS = ("view", "detail", "explain")


@dataclass(frozen=True, config=STRICT)
class PlanConfig:
    view: Literal["table", "tree"]
    detail: bool
    explain: Annotated[Int, Field(ge=0)] | None


def plan_config(settings: Plain) -> PlanConfig:
    return checked(PlanConfig, {name: settings[name] for name in OPTIONS})


def show_plan(specs: Sequence[CellSpec], options: PlanConfig) -> None:
    """Print the union of all cells' stages; raises `Problems` with everything that could
    not run.
    """
    if options.explain is not None and options.explain >= len(specs):
        numbers = "the only cell is 0" if len(specs) == 1 else f"cells are 0 to {len(specs) - 1}"
        raise DesaError(f"there is no cell {options.explain}", where="explain", hint=numbers)
    cluster = specs[0].config.cluster
    if options.explain is not None:
        store, cells = planned_cells(specs)
        _explain(store, options.explain, cells[options.explain], options.detail)
        return
    store, cells = planned_cells(specs)
    with store.snapshot():
        _show(store, cells, options, cluster)


def _show(store: Store, cells: Sequence[Cell], options: PlanConfig, cluster: ClusterConfig) -> None:
    stages = estimated(store, cells)
    show = plan_tree if options.view == "tree" else plan_table
    title = f"{len(cells)} cells" if len(cells) > 1 else "1 cell"
    screen(160).print(show(title, stages, cluster, options.detail))
    devices = dict.fromkeys(line for cell in cells for line in cell.devices)
    for line in [*totals(store, stages), *devices, *growth(cluster)]:
        print_text(line)
    check_feasible([planned.stage for planned in stages if planned.to_compute], cluster)


def _explain(store: Store, number: int, cell: Cell, detail: bool) -> None:
    config = cell.config
    name = f"cell {number}: {config.dataset.name} {config.method.name} {config.encoder.name}"
    kappa = kappa_of(config.fusion, fused_methods(config))
    if kappa is not None:
        name += f" kappa {kappa}"
    reasons = explain(store, cell.targets)
    total = sum(1 for _ in ancestors(cell.targets))
    if not reasons:
        print_text(f"{name}: everything is stored ({total} stages), nothing would be computed")
        return
    print_text(f"{name}: {len(reasons)} of {total} stages must be computed")
    table = PlainTable(title_justify="left")
    for column in ("why: stored -> this cell", "differs in", "must be computed for it"):
        table.add_column(column, overflow="fold")
    for why, origins, stages in _causes(reasons):
        table.add_row(why, ", ".join(origins), stages)
    screen(160).print(table)
    if not detail:
        return
    table = PlainTable(title_justify="left")
    for column in ("stage", "what", "key", "nearest stored", "why"):
        table.add_column(column, overflow="fold")
    for reason in reasons:
        stage, why = (
            reason.stage,
            [reason.text] if reason.text else [str(one) for one in reason.differences],
        )
        table.add_row(
            stage.name,
            stage.label,
            stage.key.short,
            reason.nearest or "-",
            shown("\n".join(map(printable, why))),
        )
    screen(160).print(table)


def _causes(reasons: Sequence[Reason]) -> list[tuple[str, list[str], str]]:
    """Each cause once: in words, the kinds of stages whose own parameter it is, and how many stages
    it makes miss.
    """
    origins: dict[str, list[str]] = {}
    behind: dict[str, Counter[str]] = {}
    for reason in reasons:
        causes = (
            [(reason.text, reason.stage.name)]
            if reason.text
            else [(str(d), d.stage) for d in reason.differences]
        )
        for why, origin in causes:
            own = origins.setdefault(why, [])
            if origin not in own:
                own.append(origin)
        for why in dict.fromkeys(why for why, _ in causes):
            behind.setdefault(why, Counter())[reason.stage.name] += 1
    rows = []
    for why, own in origins.items():
        users = [f"{count} {name}" for name, count in behind[why].items()]
        rows.append((why, own, listed(users)))
    return rows


def _sweep(cells: Sequence[Composed], folder: Path, earlier: Summaries) -> Summaries:
    """Show the plan of all cells together; runs nothing."""
    del folder
    specs = [cell_spec(*cell, OPTIONS) for cell in counting(cells, "reading cells")]
    check_used(specs)
    show_plan(distinct(specs), plan_config(cells[0].settings))
    return [*earlier, *({} for _ in cells)]


def _task(config: DictConfig) -> None:
    specs = [spec_of(config, output_folder(), OPTIONS)]
    check_used(specs)
    show_plan(specs, plan_config(plain_of(config)))


def main(arguments: list[str]) -> int:
    """`desa plan [overrides]`, with -m for a sweep's plan."""
    return hydra_app("plan", "plan", arguments, _task, sweep=_sweep, further=OPTIONS)
