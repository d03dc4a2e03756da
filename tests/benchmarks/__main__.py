"""`make bench`: measures everything, prints a line each, writes JSON, and puts the table into
docs/benchmarks.md.

    python -m tests.benchmarks [--out FILE] [--only a,b,...] [--scifact FOLDER] [--page]

Every number is taken on one thread, in CPU seconds (a busy machine changes it little), against a
baseline in the same run. Exits 1 where a target is missed.
"""

import os

if __name__ == "__main__":  # before numpy is imported
    for _name in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
        os.environ[f"{_name}_NUM_THREADS"] = "1"

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from . import counted, indexing, kernels, lucene, runs, vllm_row
from .harness import Measured
from .table import put_into_page

FULL = 382_000  # documents of the largest collection in the paper


def suite(scifact: str | None) -> dict[str, Callable[[], list[Measured]]]:
    """Letter -> benchmark at its full size."""
    dataset = ["dataset=scifact", f"dataset.path={scifact}"] if scifact else ["dataset=demo"]
    return {
        "a": lambda: lucene.complete_lists(100_000),
        "b": lambda: kernels.dense(FULL, 49, 3),
        "c": lambda: kernels.replays(FULL, 3000, 0.55, 300),
        "d": lambda: kernels.fusions(FULL, 5),
        "e": lambda: kernels.lazy(FULL, 15, 0.5),
        "f": lambda: kernels.statistic(3776, 7, 10_000, 50),
        "g": lambda: runs.whole(dataset),
        "i": runs.tracking,
        "k": lambda: counted.counted(200_000, 3),
        "l": lambda: indexing.indexed(100_000, 3),
        "v": lambda: vllm_row.through_the_pool(200, 5),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("tests/benchmarks/results.json"))
    letters = "a,b,c,d,e,f,g,i,k,l" + (",v" if vllm_row.PYTHON.exists() else "")
    parser.add_argument("--only", default=letters, help="g measures h and j too")
    parser.add_argument(
        "--scifact", help="a folder in BEIR layout for whole runs, instead of the demo"
    )
    parser.add_argument("--page", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    everything = suite(options.scifact)
    known = json.loads(options.out.read_text())["results"] if options.out.exists() else []
    missed = False
    for letter in options.only.split(","):
        for found in everything[letter]():
            document = found.document()
            known = [
                own
                for own in known
                if (own["name"], own["baseline"]) != (found.name, found.baseline)
            ]
            known = sorted([*known, document], key=lambda own: own["name"])
            verdict = {True: "met", False: "MISSED", None: ""}[found.met]
            print(
                f"{found.name:16} {found.value:12,.1f} {found.unit:16} {document['target'] or '':8}"
                f" {verdict}"
            )
            missed |= found.met is False
            about = {
                "machine": platform.machine(),
                "cpus": os.cpu_count(),
                "python": platform.python_version(),
            }
            options.out.write_text(
                json.dumps({**about, "results": known}, indent=1, allow_nan=False) + "\n"
            )
    if options.page:
        put_into_page(options.out, Path("docs/benchmarks.md"))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
