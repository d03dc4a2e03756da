"""Show what `desa run` with the same overrides would reuse and compute; runs nothing but reading the collection."""

from collections.abc import Sequence

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from desa_ray.pipeline.execute import missing
from desa_ray.pipeline.stage import ancestors
from jobs.app import hydra_app, output_folder
from jobs.cells import open_store, plan
from jobs.settings import Order, order_of


def show_plan(orders: Sequence[Order]) -> None:
    """Print the union of all cells' stages, inputs before users, each with its key and whether it is stored."""
    store = open_store(orders[0].config)
    targets = [target for cell in plan(store, orders) for target in cell.targets]
    todo = {stage.key.digest for stage in missing(store, targets)}
    table = Table(title=f"{len(orders)} cells", title_justify="left", title_style="")
    for name in ("stage", "what", "key", "state", "rows", "seconds when made"):
        table.add_column(name, justify="right" if name in ("rows", "seconds when made") else "left", overflow="fold")
    counts = {"compute": 0, "stored": 0, "not needed": 0}
    for stage in ancestors(targets):
        artifact = stage.artifact(store)
        found = artifact.manifest() if artifact.exists() else None
        state = "compute" if stage.key.digest in todo else "stored" if found else "not needed"
        counts[state] += 1
        rows = str(found["counts"].get("rows", "")) if found else ""
        seconds = f"{found['meta']['seconds']:.1f}" if found else ""
        table.add_row(stage.name, stage.label, stage.key.short, state, rows, seconds)
    console = Console(width=None if Console().is_terminal else 160)
    console.print(table)
    console.print(", ".join(f"{count} {state}" for state, count in counts.items() if count))


def _task(config: DictConfig) -> None:
    show_plan([order_of(config, output_folder())])


def main(arguments: list[str]) -> int:
    """`desa plan [overrides]`, with -m for a sweep's plan."""
    return hydra_app("plan", "config", arguments, _task)
