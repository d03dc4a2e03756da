"""Windows and look-ups on SciFact with BM25 and MiniLM, against shares measured elsewhere."""

from fractions import Fraction

import numpy as np
import pytest

import desa_ray
from desa_ray.core.rules.certify import random_depths
from desa_ray.core.rules.registry import ScoredList, rule_of
from desa_ray.report.depth_advice import Case, advise, numbered_queries

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]
# The share of queries whose ordered top 20 is exact when both lists are cut at L; kappa 60.
EXACT = {20: 0.00, 50: 0.11, 100: 0.40, 200: 0.70, 500: 0.85, 1000: 0.91}


def test_windows_and_look_ups_are_those_measured(scifact_folder, tmp_path, monkeypatch):
    """Shares within .03; the threshold algorithm within 5 % of 82 (median) and 134 (P95) reads of
    both lists together, and never above 200 = 2 (kappa + 2K).
    """
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    given = ["dataset=scifact", f"dataset.path={scifact_folder}", "encoder=minilm_l6"]
    found = desa_ray.run([*given, "method=original", "tracking.offline=true"])
    runs = {}
    for channel in ("dense", "sparse"):
        ranked = found.rankings(channel=channel).sort("query_id", "rank")
        lists = ranked.group_by("query_id", maintain_order=True).agg("doc_id")
        runs[channel] = dict(lists.iter_rows())
    queries = numbered_queries(runs)
    ones = (Fraction(1), Fraction(1))
    advice = advise(queries, Case(Fraction(60), ones, 20), ends=True)
    assert advice.unknown == 0
    shares = dict(zip(advice.windows, advice.ordered.mean(axis=0), strict=True))
    for length, share in EXACT.items():
        assert shares[length] == pytest.approx(share, abs=0.03)
    rule, reads = rule_of("rrf", ones), []
    for _, lists in queries.values():
        own = [ScoredList(ranked.tolist()) for ranked in lists]
        reads.append(sum(random_depths(rule, own, 20)))
    assert np.median(reads) == pytest.approx(82, rel=0.05)
    assert np.percentile(reads, 95) == pytest.approx(134, rel=0.05)
    assert max(reads) <= 200
