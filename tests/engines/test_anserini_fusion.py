"""Fusion rules against Anserini's own `FuseRuns`, from the jar that the platform installs."""

import gzip
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest

from desa_ray.core.identifiers import numbered
from desa_ray.core.rules.fuse import fuse
from desa_ray.core.rules.registry import ScoredList, rule_of
from desa_ray.data.trec import read_scored_run
from desa_ray.engines.jvm import anserini_jar, java_folder

NAMES = ("abstract", "fulltext", "paragraph")
THIRD = (Fraction(1, 3),) * 3
WEIGHTS = (Fraction(1, 2), Fraction(3, 10), Fraction(1, 5))
CASES = {  # FuseRuns' options -> the rule, its weights and its normaliser
    "-method rrf -rrf_k 60": ("rrf", (Fraction(1),) * 3, None),
    "-method average": ("combsum", THIRD, "none"),
    "-method average -min_max_normalization": ("combsum", THIRD, "min_max"),
    "-method weighted -weights 0.5,0.3,0.2": ("combsum", WEIGHTS, "none"),
    "-method weighted -weights 0.5,0.3,0.2 -min_max_normalization": ("convex", WEIGHTS, "min_max"),
    "-method interpolation -alpha 0.75 -min_max_normalization": (
        "convex",
        (Fraction(3, 4), Fraction(1, 4)),
        "min_max",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("options", CASES)
def test_rules_equal_anserinis(options, treccovid_runs, tmp_path: Path):
    """Five topics of three published runs: scores to float32 and six printed digits, and the order
    wherever Anserini's scores differ.
    """
    name, weights, normaliser = CASES[options]
    files = []
    for run in NAMES[: len(weights)]:
        packed = gzip.decompress((treccovid_runs / f"r2.{run}.trec.gz").read_bytes()).decode()
        lines = [line for line in packed.splitlines() if line.split()[0] in {*"12345"}]
        files.append(tmp_path / f"{run}.trec")
        files[-1].write_text("\n".join(lines) + "\n")
    java = java_folder(None) / "bin" / "java"
    assert shutil.which(java)
    command = [java, "-Xmx256m", "-cp", anserini_jar(), "io.anserini.fusion.FuseRuns"]
    given = [*options.split(), "-output", tmp_path / "out", "-runs", *files]
    subprocess.run([*map(str, command), *map(str, given)], check=True, capture_output=True)
    theirs = read_scored_run(tmp_path / "out")
    runs = [read_scored_run(file) for file in files]
    assert len(theirs) == 5
    for query, ranked in theirs.items():
        plain = [[d for d, _ in run[query]] for run in runs]
        ids, arrays = numbered(plain)
        lists = []
        for run, numbers in zip(runs, arrays, strict=True):
            scores = [Fraction(score) for _, score in run[query]]
            lists.append(ScoredList(numbers.tolist(), scores))
        rule = rule_of(name, weights, normaliser=normaliser)
        ours = [(ids[n], float(score)) for n, score in fuse(rule, lists)]
        exact = dict(ours)
        for place, (document, score) in enumerate(ranked):
            assert score == pytest.approx(exact[document], rel=2e-6, abs=2e-6)
            assert score == pytest.approx(ours[place][1], rel=2e-6, abs=2e-6)
