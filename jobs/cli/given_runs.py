"""What verbs over TREC runs share: names of the runs, options with several values, measures."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from desa_ray.printable import printable

from .arguments import ArgumentParser, check_least

MEASURES = ("nDCG@10", "R@20")
MAX_RESAMPLES = 1_000_000


def several(text: str) -> list[str]:
    """Values between commas."""
    return text.split(",")


def measure_names(text: str) -> list[str]:
    """Names between commas; a comma within brackets belongs to its measure."""
    return re.split(r",(?![^(]*\))", text)


def add_measures(parser: ArgumentParser) -> None:
    """The option `--measures`."""
    parser.add_argument(
        "--measures",
        type=measure_names,
        default=list(MEASURES),
        metavar="M,M",
        help=f"names of ir_measures, separated by commas ({','.join(MEASURES)})",
    )


def check_resamples(arguments: argparse.Namespace) -> None:
    """Raises DesaError for `--resamples` and `--seed` out of range."""
    check_least("--resamples", arguments.resamples, 1, MAX_RESAMPLES)
    check_least("--seed", arguments.seed, 0)


def _stem(name: str) -> str:
    return name.removesuffix(".parquet").removesuffix(".gz").removesuffix(".trec")


def run_names(paths: Sequence[Path]) -> list[str]:
    """Run names from file names, `a.trec.gz` to `a`, each once and printable; if they are equal,
    the folder is added, then the position.
    """
    stems = [_stem(path.name) or path.name for path in paths]
    stems = [printable(stem) for stem in stems]  # a file's name need not be text
    if len(set(stems)) < len(stems):
        folders = [printable(path.absolute().parent.name) for path in paths]
        stems = [f"{folder}_{stem}" for folder, stem in zip(folders, stems, strict=True)]
    placed = [f"{stem}_{place}" for place, stem in enumerate(stems, 1)]
    named = [
        number if stems.count(stem) > 1 else stem
        for number, stem in zip(placed, stems, strict=True)
    ]
    return named if len(set(named)) == len(named) else placed
