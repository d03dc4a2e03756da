"""`desa fuse --rule` and `desa_ray.fuse_rule`."""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
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
        (["--rule", "isr", "--kappa", "60"], "--kappa: rule isr has no kappa"),
        (["--rule", "convex"], "needs the least possible score"),
        (["--rule", "combsum", "--least", "0"], "1 least for 2 lists"),
    ],
)
def test_bad_rules_are_named_before_a_run_is_read(options, what, tmp_path):
    with pytest.raises(DesaError, match=what):
        main(["no.trec", "none.trec", *options, "--out", str(tmp_path / "out")])


ONE, TWO = {"a": 3.0, "b": 2.0}, {"b": 5.0, "c": 1.0}


@pytest.mark.parametrize(
    ("channels", "rule", "k", "what"),
    [
        ([ONE, TWO], "rrf", "3", "k '3' is not a whole number"),
        ([ONE, TWO], "rrf", 2.5, "k 2.5 is not a whole number"),
        ([ONE, TWO], "rrf", 0, "k: k is 0"),
        ([ONE, TWO], None, 3, "rule: None is no rule"),
        ([ONE, TWO], {"name": "rrf", 5: 1}, 3, "rule: no rule has '5'"),
        ([ONE, TWO], {"name": "rrf", "weights": {1, 2}}, 3, "weights: {1, 2} is not a list"),
        ([ONE, TWO], {"name": "rrf", "weights": {"a": 1, "b": 2}}, 3, "is not a list"),
        ([ONE, TWO], {"name": "rrf", "weights": 5}, 3, "weights: 5 is not a list"),
        ([ONE, TWO], {"name": "rrf", "kappa": 10**5000}, 3, "kappa a huge int is not a number"),
        ({"x": ONE}, "rrf", 3, "channels: .* is not a list"),
        (None, "rrf", 3, "channels: None is not a list"),
        ("ab", "rrf", 3, "channels: 'ab' is not a list"),
        ([{"a": 10**400}, TWO], "combsum", 3, "channel 0: score 1000.* is not a finite number"),
        (
            [{"a": 10**5000}, TWO],
            "combsum",
            3,
            "channel 0: score a huge int .* not a finite number",
        ),
        ([{"a": Fraction(10) ** 400}, TWO], "rrf", 3, "channel 0: score .* is not a finite number"),
    ],
)
def test_what_fuse_rule_cannot_take_is_one_line(channels, rule, k, what):
    with pytest.raises(DesaError, match=what) as caught:
        desa_ray.fuse_rule(channels, rule, k=k)
    assert len(str(caught.value)) < 400


def test_scores_are_fused_as_they_are():
    """A fraction is not the float next to it: here only the exact sums differ."""
    third, nearly = Fraction(1, 3), Fraction(1, 3) - Fraction(1, 10**30)
    found = desa_ray.fuse_rule([{"b": third, "a": nearly}], "combsum", k=2)
    assert found.documents == ("b", "a")
    mixed = {"a": Decimal("0.5"), "b": Fraction(1, 2), "c": 0.75}
    assert desa_ray.fuse([mixed], k=3).documents == ("c", "a", "b")
    scores = {"a": np.float32(0.5), "b": Decimal("0.25"), "c": np.int64(0)}
    assert desa_ray.fuse_rule([scores], "combsum", k=3).scores == (0.5, 0.25, 0.0)


@pytest.mark.parametrize("given", [5, None, b"x", [None], "", [""], "x" * 5000])
def test_what_names_no_records_is_one_line(given):
    with pytest.raises(DesaError, match=r"names no records|cannot be looked at"):
        desa_ray.load_records(given)
