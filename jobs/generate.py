"""Generate text without a run (Hydra overrides; export=FOLDER writes JSONL).

What is generated goes to the store, where `desa run` with the same data set and generator finds it.
An export is read by `generator=recorded generator.folder=FOLDER`, so a cluster can generate and a
laptop replay.
"""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
from omegaconf import DictConfig, OmegaConf

from desa_ray.engines.prompts import prompt_names
from desa_ray.errors import DesaError, Problems, counted, listed
from desa_ray.experiment.cell_files import write_lines
from desa_ray.experiment.lazy_backend import LazyBackend
from desa_ray.experiment.places import home
from desa_ray.experiment.prepare import prepare_texts
from desa_ray.experiment.run import open_store
from desa_ray.pipeline.execute import missing
from desa_ray.pipeline.feasible import check_feasible
from desa_ray.pipeline.scheduler import run_graph
from desa_ray.pipeline.stage import Stage, ancestors
from desa_ray.stages.generation import read_generations
from desa_ray.store.leases import Lease
from desa_ray.terminal import PlainTable, screen
from desa_ray.writing import not_written

from .cli.app import hydra_app, output_folder
from .cli.console import ConsoleListener, note
from .cli.settings import spec_of


def _task(config: DictConfig) -> None:
    spec = spec_of(config, output_folder(), ("prompts", "export"))
    prompts: Any = OmegaConf.to_container(config.prompts)
    given = [spec.config.prompt.name] if spec.config.prompt else []
    if unknown := [name for name in prompts if name not in (*prompt_names(), *given)]:
        raise DesaError(
            f"unknown prompts {listed(unknown)}",
            where="prompts",
            hint=f"known: {listed(prompt_names())}",
        )
    store = open_store(spec.config)
    source = prepare_texts(spec.config, prompts, store, home())
    stages = {
        (prompt, draw): source.stage(prompt, draw)
        for prompt in prompts
        for draw in range(spec.config.draws)
    }
    todo = missing(list(stages.values()))
    check_feasible(todo, spec.config.cluster)
    note(f"{counted(len(stages), 'prompt draw')}, {counted(len(todo), 'stage')} to compute")
    with ExitStack() as stack:
        keys = [stage.key.digest for stage in ancestors(list(stages.values()))]
        stack.enter_context(Lease.acquire(store.files, f"generate-{uuid4().hex[:12]}", keys))
        listener = ConsoleListener()
        stack.callback(listener.close)
        backend = LazyBackend(spec.config, store, stack.enter_context(ExitStack()), note)
        if todo:
            backend.require([spec.config], todo)
        errors: dict[str, DesaError] = {}
        run_graph(
            todo,
            backend,
            listener,
            lambda _, error: errors.update({str(error): error} if error else {}),
        )
        if errors:  # what else could be generated is stored
            raise Problems(errors.values()) if len(errors) > 1 else next(iter(errors.values()))
    fresh = {stage.key.digest for stage in todo}
    screen(140).print(_table(stages, fresh))
    if config.export is not None:
        for prompt in prompts:
            draws = [stages[prompt, draw] for draw in range(spec.config.draws)]
            path = export(draws, Path(config.export), prompt)
            note(f"exported: {path}")


def _table(stages: dict[tuple[str, int], Stage], fresh: set[str]) -> PlainTable:
    """Validity, fallbacks and speed of each prompt and draw."""
    table = PlainTable(title="generated text", title_justify="left", title_style="")
    for name in (
        "prompt",
        "draw",
        "state",
        "queries",
        "valid",
        "retries",
        "fallbacks",
        "tokens",
        "tokens/s",
    ):
        table.add_column(name, justify="left" if name in ("prompt", "state") else "right")
    for (prompt, draw), stage in stages.items():
        manifest = stage.artifact.manifest()
        counts = manifest["counts"]
        rows, fallbacks = counts["rows"], counts["fallbacks"]
        tokens = counts.get("completion_tokens")
        new = stage.key.digest in fresh
        speed = (
            f"{tokens / manifest['meta']['seconds']:.1f}"
            if tokens and new and not counts.get("reused")
            else "-"
        )
        valid = f"{(rows - fallbacks) / rows:.1%}" if rows else "-"
        shown = [
            counts.get("retries", "-"),
            fallbacks,
            tokens if tokens is not None else "-",
            speed,
        ]
        state = "computed" if new else "stored"
        table.add_row(prompt, str(draw), state, str(rows), valid, *map(str, shown))
    return table


def export(draws: list[Stage], folder: Path, prompt: str) -> Path:
    """Writes the draws of a prompt as `<folder>/<prompt>.jsonl`; fallbacks keep their flag and
    reason.
    """
    lines = []
    for stage in draws:
        records = read_generations(stage).records.select(
            "query_id", "draw", "texts", "fallback", "reason"
        )
        for row in records.filter(pl.col("query_id").is_not_null()).iter_rows(named=True):
            fallen = {"fallback": True, "reason": row["reason"]} if row["fallback"] else {}
            line = {
                "query_id": row["query_id"],
                "prompt": prompt,
                "draw": row["draw"],
                "texts": row["texts"],
                **fallen,
            }
            lines.append(json.dumps(line, ensure_ascii=False))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return write_lines(folder / f"{prompt}.jsonl", lines)
    except OSError as error:
        hint = "name another folder; the texts are in the store"
        raise not_written(error, where=f"export {folder}", hint=hint) from None


def main(arguments: list[str]) -> int:
    """`desa generate [overrides]`."""
    return hydra_app("generate", "generate", arguments, _task, further=("prompts", "export"))
