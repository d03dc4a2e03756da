"""The files of a cell's output folder and of a sweep, each written whole or not at all."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl

from desa_ray.data.trec import has_blanks, run_pieces, without_blanks, write_pieces, write_run
from desa_ray.engines.jvm import check_java
from desa_ray.errors import DesaError
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


def write_runs(
    folder: Path, method: str, runs: Sequence[pl.DataFrame], note: Callable[[str], None]
) -> list[Path]:
    """`run.trec` for draw 0 and `run.draw1.trec`, ... for the others, scores strictly
    decreasing.
    """
    tags = [f"desa-{method}-draw{draw}" for draw in range(len(runs))]
    paths = [
        folder / ("run.trec" if draw == 0 else f"run.draw{draw}.trec") for draw in range(len(runs))
    ]
    with ExitStack() as stack:
        temporaries = [stack.enter_context(whole(path)) for path in paths]
        _write_all(temporaries, runs, tags, note)
    return paths


def _write_all(
    paths: Sequence[Path],
    runs: Sequence[pl.DataFrame],
    tags: Sequence[str],
    note: Callable[[str], None],
) -> None:
    """All runs with their ids as they are, or all of them percent-encoded."""
    if not all(map(_write_plain, paths, runs, tags)):
        note("ids with blanks: percent-encoded in the TREC runs, as they are in records.parquet")
        for path, run, tag in zip(paths, runs, tags, strict=True):
            write_run(path, _spelled(run), tag=tag)


def _write_plain(path: Path, run: pl.DataFrame, tag: str) -> bool:
    """Writes the run with its ids as they are; False where one of them has a blank."""
    ascii_only = True

    def pieces() -> Iterator[bytes]:
        nonlocal ascii_only
        for piece in run_pieces(run, tag=tag):
            ascii_only = ascii_only and piece.isascii()
            yield piece

    try:
        write_pieces(path, pieces())
    except DesaError:
        return False
    # A blank beyond ASCII, such as a no-break space, divides no fields here, but does elsewhere.
    return ascii_only or not has_blanks((run["query_id"], run["docs"].explode()))


def _spelled(run: pl.DataFrame) -> dict[str, list[str]]:
    rows = run.select("query_id", "docs").iter_rows()
    return {
        without_blanks(query): list(map(without_blanks, documents)) for query, documents in rows
    }


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
