"""`desa tune`: runs and judgments to two answers; wrong input is refused before any computation."""

import json
import random
from pathlib import Path

import polars as pl
import pytest

from desa_ray.core.evaluation import evaluate
from desa_ray.data.trec import read_qrels
from desa_ray.errors import DesaError
from desa_ray.jobs.tune import main
from desa_ray.rules import fuse_rule


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Two runs of 24 queries: the second finds what is relevant, the first does not."""
    random_ = random.Random(4)
    lines: dict[str, list[str]] = {"a.trec": [], "b.trec": [], "qrels.txt": []}
    for query in range(24):
        documents = [f"d{n:02}" for n in range(30)]
        relevant = random_.sample(documents, 3)
        lines["qrels.txt"] += [f"q{query} 0 {d} {random_.randint(1, 2)}" for d in relevant]
        for name, good in (("a.trec", 0.0), ("b.trec", 2.0)):
            scores = {d: random_.random() * 3 + good * (d in relevant) for d in documents}
            ranked = sorted(scores, key=lambda d: -scores[d])[:20]
            for rank, document in enumerate(ranked, 1):
                lines[name].append(f"q{query} Q0 {document} {rank} {scores[document]:.4f} t")
    for name, own in lines.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in own))
    return [str(tmp_path / name) for name in ("a.trec", "b.trec")]


def test_both_answers_are_printed_and_written(files, tmp_path, capsys):
    """And the values of a variant are those of fused runs."""
    qrels, out = str(tmp_path / "qrels.txt"), tmp_path / "out"
    given = [*files, "--qrels", qrels, "--rules", "rrf,convex,isr", "--least", "0,0"]
    grid = ["--weights", "1,1", "--weights", "1,9", "--depth", "all,5"]
    assert main([*given, *grid, "--resamples", "199", "--out", str(out)]) == 0
    said = json.loads((out / "tune.json").read_text())
    assert said["variants"] == 12
    assert said["default"] == "rrf k60 1:1"
    assert said["verdicts"]["together"].startswith("use ")
    assert len(said["selected_on"]) == 12
    printed = capsys.readouterr()
    assert "rrf k60 1:9" in printed.out
    assert "one selection, one test: use " in printed.err
    values = pl.read_parquet(out / "values.parquet")
    runs = [_scored(Path(path)) for path in files]
    rule = {"name": "convex", "weights": ["1/10", "9/10"], "least": [0, 0]}
    fused = {}
    for query in values["query_id"]:
        fused[query] = list(fuse_rule([run[query] for run in runs], rule, k=10).documents)
    wanted = evaluate(read_qrels(Path(qrels)), fused, ["nDCG@10"]).sort("query_id")["value"]
    names = said["names"]
    found = values[f"variant_{names.index('convex 1/10:9/10')}"]
    assert found.to_list() == pytest.approx(wanted.to_list(), abs=1e-12)


def _scored(path: Path) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for line in path.read_text().splitlines():
        query, _, document, _, score, _ = line.split()
        found.setdefault(query, {})[document] = float(score)
    return found


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--rules", "rff"], "no rule 'rff'"),
        (["--measure", "MAP"], "'MAP' is not nDCG@K or R@K"),
        (["--weights", "1,0"], "--weights: weight 0 is not above 0"),
        (["--rules", "rrf,isr", "--normalisers", "min_max"], "--normalisers: none of the rules"),
        (["--rules", "convex"], "needs the least possible score"),
        (["--depth", "0"], "--depth: '0' is not a whole number"),
        (["--least", "0"], "1 least scores for 2 lists"),
        (["--sweep", "x"], "give runs with --qrels, or --sweep"),
        (["--rules", "qdrant_rrf", "--kappa", "0"], "Qdrant's k is 0"),
    ],
)
def test_what_cannot_be_tuned_is_refused(files, tmp_path, options, what):
    with pytest.raises(DesaError, match=what):
        main([*files, "--qrels", str(tmp_path / "qrels.txt"), *options])
