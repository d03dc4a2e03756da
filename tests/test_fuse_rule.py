"""`desa fuse --rule` and `desa_ray.fuse_rule`."""

from pathlib import Path

import polars as pl
import pytest

import desa_ray
from desa_ray.errors import DesaError
from desa_ray.jobs.fuse import main

A = {"x": 9.0, "y": 5.0, "z": 1.0}
B = {"y": 5.0, "x": 4.0, "w": 3.0}


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    for name, own in (("a", A), ("b", B)):
        lines = [f"q Q0 {d} {n} {s} t" for n, (d, s) in enumerate(own.items(), 1)]
        (tmp_path / f"{name}.trec").write_text("\n".join(lines) + "\n")
    return [str(tmp_path / "a.trec"), str(tmp_path / "b.trec")]


def test_a_rule_fuses_dicts_exactly():
    """Convex with least 0: x = (1 + 4/5)/2, y = (5/9 + 1)/2."""
    found = desa_ray.fuse_rule([A, B], {"name": "convex", "least": [0, 0]}, k=2)
    assert found.documents == ("x", "y")
    assert found.scores == (0.9, 7 / 9)
    assert found.sorted_depths == (2, 2)
    assert found.random_depths is not None
    assert sum(found.random_depths) <= 4
    plain = desa_ray.fuse_rule([list(A), list(B)], "rrf", k=2)
    assert plain.documents == desa_ray.fuse([list(A), list(B)], k=2).documents
    assert plain.sorted_depths == desa_ray.fuse([list(A), list(B)], k=2).depths
    refused = desa_ray.fuse_rule([A, B], "dbsf")
    assert refused.sorted_depths is None
    assert "mean and standard deviation" in (refused.refused or "")
    assert desa_ray.fuse_rule([A, B], "dbsf", frozen=True).sorted_depths is not None
    with pytest.raises(DesaError, match="no rule has 'alpha'"):
        desa_ray.fuse_rule([A, B], {"name": "convex", "alpha": 0.5})


def test_the_verb_fuses_by_scores(runs, tmp_path: Path, capsys):
    out = tmp_path / "out"
    options = ["--rule", "convex", "--least", "0,0", "--k", "2", "--out", str(out)]
    assert main([*runs, *options]) == 0
    ranked = [line.split()[2] for line in (out / "fused.trec").read_text().splitlines()]
    assert ranked == ["x", "y", "w", "z"]
    scores = pl.read_parquet(out / "scores.parquet")["scores"][0].to_list()
    assert scores == [0.9, 7 / 9, 0.3, 1 / 18]
    depths = pl.read_csv(out / "depths.csv")
    assert depths.columns == ["query_id", "fused", "sorted_a", "sorted_b", "random_a", "random_b"]
    assert "convex, top 2" in capsys.readouterr().out


def test_the_verb_says_why_there_are_no_depths(runs, tmp_path: Path, capsys):
    assert main([*runs, "--rule", "zscore", "--out", str(tmp_path / "out")]) == 0
    assert "no depths: zscore normalises" in capsys.readouterr().err
    assert "sorted_a" not in pl.read_csv(tmp_path / "out" / "depths.csv").columns


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--normaliser", "l2"], "rrf uses ranks only"),
        (["--rule", "rff"], "unknown rule 'rff'"),
        (["--rule", "convex"], "needs the least possible score"),
        (["--rule", "combsum", "--least", "0"], "1 least for 2 lists"),
    ],
)
def test_bad_rules_are_named_before_a_run_is_read(options, what, tmp_path):
    with pytest.raises(DesaError, match=what):
        main(["no.trec", "none.trec", *options, "--out", str(tmp_path / "out")])
