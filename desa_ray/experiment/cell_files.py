"""The files of a cell's output folder and of a sweep, each written whole or not at all."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from desa_ray.data.run_files import write_run_parquet
from desa_ray.engines.jvm import check_java
from desa_ray.experiment.build import Cell
from desa_ray.experiment.records import result_config
from desa_ray.files import whole
from desa_ray.pipeline.provenance import provenance
from desa_ray.pipeline.stage import ancestors


def write_json(path: Path, value: Any) -> Path:
    """A value as JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    return write_lines(path, [text])


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    """Lines of text."""
    with whole(path) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_records(path: Path, records: pl.DataFrame) -> Path:
    """Query records as parquet."""
    with whole(path) as temporary:
        records.write_parquet(temporary, compression="zstd", statistics=False)
    return path


def write_runs(folder: Path, runs: Sequence[pl.DataFrame]) -> list[Path]:
    """`run.parquet` for draw 0 and `run.draw1.parquet`, ... for the others."""
    paths = []
    for draw, run in enumerate(runs):
        path = folder / ("run.parquet" if draw == 0 else f"run.draw{draw}.parquet")
        with whole(path) as temporary:
            write_run_parquet(temporary, run)
        paths.append(path)
    return paths


def manifest(cell: Cell, config: Mapping[str, Any], recording: Mapping[str, int]) -> dict[str, Any]:
    """What a cell was made of: code, environment, Java, configuration, inputs, and every stage's
    key and content.
    """
    stages = []
    for stage in ancestors(cell.targets):
        artifact = stage.artifact
        found = artifact.manifest() if artifact.exists() else None
        stages.append(
            {
                "stage": stage.name,
                "label": stage.label,
                "key": stage.key.digest,
                "params": dict(stage.params),
                "inputs": dict(stage.key.inputs),
                "content": found and found["content"],
                "counts": found and found["counts"],
                "made_by": (
                    found
                    and {
                        name: found["meta"].get(name)
                        for name in ("commit", "dirty", "versions", "seconds", "makers")
                        if name != "makers" or name in found["meta"]
                    }
                ),
            }
        )
    return {
        **provenance(),
        "java": check_java(cell.config.sparse.java_home),
        "config": config,
        "result_config": result_config(cell),
        "collection": dict(cell.collection.counts),
        "recording": dict(recording),
        "stages": stages,
    }
