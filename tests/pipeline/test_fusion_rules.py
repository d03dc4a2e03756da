"""Rules of fusion in runs: records are those of definitions in fractions, for complete, lazy and
counted rankings.
"""

from dataclasses import replace
from fractions import Fraction

import pytest

from desa_ray.errors import Problems
from desa_ray.experiment.checks import setting_problems
from desa_ray.stages.collection import read_rows
from desa_ray.stages.ranking import opened
from desa_ray.stages.top_scores import opened_scores
from desa_ray.stages.worker_cache import WorkerCache
from tests.core import rule_oracle as oracle
from tests.desa_fixtures import dataset
from tests.pipeline.test_lazy import assert_same, computed, shallow, typed

__all__ = ["shallow"]
HALF = Fraction(1, 2)
# Rule and settings -> the oracle's contributions and combination, weights, and its least scores.
RULES = {
    "isr": ("isr", "isr", (1, 1), (0, 0)),
    "log_isr": ("log_isr", "log_isr", (1, 1), (0, 0)),
    "convex": ("convex", "sum", (HALF, HALF), (-1, 0)),
    "zscore fusion.weights={dense:2}": ("zscore", "sum", (2, 1), (0, 0)),
    "dbsf": ("dbsf", "sum", (1, 1), (0, 0)),
    "opensearch": ("min_max", "arithmetic", (1, 1), (0, 0)),
}


def by_definition(stage, name, row):
    """The fused order of one query by the definition of a rule, and its lists."""
    shares, combination, weights, least = RULES[name]
    cache, lists = WorkerCache(), []
    for place, channel in enumerate(("dense", "sparse")):
        docs = opened(cache, stage.inputs[f"channel:{channel}"]).docs(row).tolist()
        pairs = [(d, Fraction(0)) for d in docs]
        if f"scores:{channel}" in stage.inputs:
            best = opened_scores(cache, stage.inputs[f"scores:{channel}"]).best(row)
            pairs = list(zip(best[0].tolist(), map(Fraction, best[1].tolist()), strict=True))
            assert [d for d, _ in pairs] == docs[:1000]
        weight = Fraction(weights[place])
        values = oracle.contributions(shares, pairs, weight, least=Fraction(least[place]))
        lists.append([(d, x) for (d, _), x in zip(pairs, values, strict=True)])
    return oracle.order(combination, lists, [Fraction(w) for w in weights])


@pytest.mark.long
@pytest.mark.parametrize("name", RULES)
def test_records_are_those_of_definitions(name, demo_slice, warm_home, shallow):
    """And lazy ones are the same; so are counted ones, of rules of scores."""
    rule, *more = name.split()
    config = typed(f"fusion={rule}", *more, *dataset(demo_slice), "draws=1", "fusion.k=7")
    cell, records, _ = computed(config, warm_home)
    stage = cell.fused[0]
    names = read_rows(stage.inputs["corpus"])["id"].to_list()
    for row in (0, 7, 19):
        order = by_definition(stage, name, row)
        assert records["top"][row].to_list() == [names[d] for d in order[:7]]
    proved = rule in ("isr", "log_isr", "convex")
    assert records["depth_total"].null_count() == (0 if proved else records.height)
    assert records["turnover"].null_count() < records.height
    _, lazy, stages = computed(replace(config, ranking="lazy"), warm_home)
    assert_same(records, lazy)
    assert "ranking" not in stages
    counted = replace(config, ranking="counted")
    if rule in ("isr", "log_isr"):
        (problem,) = setting_problems(counted)
        assert f"'{rule}' reads complete rankings" in str(problem)


@pytest.mark.parametrize(
    ("overrides", "what"),
    [
        (["fusion.rule=convexx"], "fusion.rule: unknown rule 'convexx'"),
        (["fusion=convex", "method=qudar_score"], "qudar_score is fused by 'score'"),
        (["fusion=isr", "fusion.normaliser=l2"], "fusion.normaliser: rule 'isr' has no normaliser"),
        (["fusion=convex", "fusion.normaliser=l3"], "fusion.normaliser: unknown normaliser"),
        (["fusion=convex", "fusion.normaliser=bounds"], "fusion.most: this normaliser needs"),
        (["fusion=convex", "fusion.most={dense: 1}"], "fusion.most: the normaliser of 'convex'"),
        (["fusion=dbsf", "fusion.least={dense: 0}"], "fusion.least: the normaliser of 'dbsf'"),
        (["fusion=opensearch", "fusion.mean=mode"], "fusion.mean: unknown mean 'mode'"),
        (["fusion=convex", "fusion.prefix=2000"], "prefix is 2000, but fusion 'convex' reads"),
        (["fusion=convex", "fusion.replay=release"], "fusion.replay: replay 'release' supports"),
        (["fusion=qdrant_rrf", "fusion.kappa=0"], "fusion.kappa: Qdrant's k is 0"),
        (["fusion=isr", "ranking=counted"], "fusion 'isr' reads complete rankings"),
        (["fusion=convex", "method=geometric"], "may be minus infinity"),
        (
            ["method=qudar_weighted", "fusion.weights={dense: 2}"],
            "fusion.weights: method qudar_weighted weighs",
        ),
        (["fusion=isr", "evaluation.access_depths=true"], "are those of rrf, not of 'isr'"),
    ],
)
def test_what_a_rule_cannot_do_is_refused(overrides, what):
    problems = Problems(setting_problems(typed(*overrides)))
    assert what in str(problems)
    assert len(problems.problems) == 1


@pytest.mark.long
def test_every_rule_of_the_group_is_sound():
    """With every kind of method, and lazily where it can."""
    rules = ("rrf", "weighted_rrf", "qdrant_rrf", "isr", "log_isr", "convex", "combsum", "combmnz")
    for rule in (*rules, "dbsf", "zscore", "opensearch", "score", "exp4fuse"):
        for method in ("original", "desa", "qudar_weighted", "bm25"):
            assert setting_problems(typed(f"fusion={rule}", f"method={method}")) == []
        lazy = setting_problems(typed(f"fusion={rule}", "ranking=lazy"))
        assert bool(lazy) == (rule == "exp4fuse")
