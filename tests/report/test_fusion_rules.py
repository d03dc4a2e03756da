"""Fusion rules as rows of a report: an absent rule is rrf; gains are compared query by query."""

import json

import numpy as np
import polars as pl
import pytest

from desa_ray.core.statistics.inference import holm, paired_outcomes
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.build import TABLES
from desa_ray.report.fusion_rules import fusion_rules_tables, rule_settings
from desa_ray.report.study import Study, paired_values
from tests.report.made_up import cell

FEW = Sampling(resamples=199, seed=1)
RULES = ("rrf", "convex", "zscore")


def ruled(method: str, rule: str, seed: int) -> pl.DataFrame:
    """A made-up cell as runs write it: rrf is not named, zscore has no depths."""
    records = cell("scifact", method, seed=seed)
    if rule == "zscore":
        names = [name for name in records.columns if "depth_" in name and "reference" not in name]
        records = records.with_columns(pl.lit(None, records.schema[n]).alias(n) for n in names)
    named = {} if rule == "rrf" else {"fusion.rule": rule}
    settings = json.dumps({**named, "encoder.pooling": "mean"})
    own = f"{method} {rule}"
    return records.with_columns(settings=pl.lit(settings), config_hash=pl.lit(own))


@pytest.fixture
def study() -> Study:
    frames = []
    for place, rule in enumerate(RULES):
        frames += [ruled("original", rule, place), ruled("mine", rule, 10 + place)]
    return Study(pl.concat(frames, how="diagonal_relaxed"))


def test_every_rule_has_rows_of_its_own(study):
    assert list(rule_settings(study)) == list(RULES)
    means, gains = fusion_rules_tables(study, FEW)
    found = [(row.values["rule"], row.values["method"]) for row in means.rows]
    assert found == [(rule, method) for rule in RULES for method in ("Original", "mine")]
    assert means.rows[-1].values["depth_dense"] is None
    assert gains.name == "fusion_rules_original"
    assert fusion_rules_tables in [builder for _, builder, _ in TABLES]


def test_gains_are_paired_and_adjusted_together(study):
    """Against differences taken by hand, in one family of rules and outcomes."""
    gains = fusion_rules_tables(study, FEW)[1]
    columns = []
    for setting in rule_settings(study).values():
        own, base = (study.cell("scifact", method, setting) for method in ("mine", "original"))
        values = paired_values(own, base, ["ndcg_at_10", "recall_at_20"])
        columns.append(values[:, :, 0] - values[:, :, 1])
    found = paired_outcomes([np.concatenate(columns, axis=1)], FEW)
    assert [row.values["effect"] for row in gains.rows] == [own.effect for own in found]
    assert [row.values["p_holm"] for row in gains.rows] == holm([own.p for own in found])
    change = columns[1][:, 0] - columns[0][:, 0]
    assert gains.rows[2].values["change"] == pytest.approx(change.mean())
    assert gains.rows[0].values.get("change") is None
    better = sum(r.values["p_holm"] <= 0.05 and r.values["effect"] > 0 for r in gains.rows[::2])
    assert f"in nDCG@10 under {better} of 3 rules" in gains.notes[1]


def test_one_rule_makes_no_table(study):
    assert fusion_rules_tables(Study(ruled("original", "rrf", 0)), FEW) == []
