"""Records of a small cell whose numbers can be computed by hand."""

from math import log2
from pathlib import Path

import pytest

from desa_ray.errors import Problems
from desa_ray.experiment.prepare import prepare
from desa_ray.store.artifacts import Store
from tests.experiment.test_prepare import config
from tests.pipeline.test_lazy import computed


def judge(collection: Path, *rows: tuple[str, str, int]) -> None:
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in rows)]
    (collection / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")


@pytest.mark.long
def test_linear_and_exponential_gain_differ_as_by_hand(collection, tmp_path):
    """Grades 3 and 1 weigh 7 and 1 under exponential gain; a negative grade counts as 0."""
    judge(collection, ("q1", "d0", 1), ("q1", "d1", 3), ("q1", "d2", -1), ("q2", "d2", 2))
    _, records, _ = computed(config(collection, "method=bm25"), tmp_path)
    first, second = records.sort("query_id").iter_rows(named=True)
    gains = {"d0": 1, "d1": 3, "d2": 0}
    ideal = 3 + 1 / log2(3)
    linear = sum(gains[doc] / log2(place + 2) for place, doc in enumerate(first["top"]))
    assert first["ndcg_at_10"] == pytest.approx(linear / ideal, abs=1e-12)
    power = sum((2 ** gains[doc] - 1) / log2(place + 2) for place, doc in enumerate(first["top"]))
    assert first["ndcg_exp_at_10"] == pytest.approx(power / (7 + 1 / log2(3)), abs=1e-12)
    assert first["ndcg_exp_at_10"] != pytest.approx(first["ndcg_at_10"], abs=1e-3)
    assert (second["ndcg_at_10"], second["ndcg_exp_at_10"]) == (1, 1)


def test_exponential_gain_under_cutoffs_is_asked_for(collection, tmp_path):
    """Three documents end before every cutoff, so each value is the complete one. Without the
    setting it is known of binary grades only, where both gains are the same.
    """
    judge(collection, ("q1", "d0", 1), ("q1", "d1", 3), ("q2", "d2", 1), ("q2", "d0", -1))
    asked = config(collection, "method=bm25", "evaluation.exponential_cutoffs=true")
    _, records, _ = computed(asked, tmp_path)
    for row in records.iter_rows(named=True):
        assert row["cut_ndcg_exp_at_10"] == pytest.approx([row["ndcg_exp_at_10"]] * 7, abs=1e-12)
    _, usual, _ = computed(config(collection, "method=bm25"), tmp_path)
    first, second = usual.sort("query_id").iter_rows(named=True)
    assert first["cut_ndcg_exp_at_10"] is None
    assert second["cut_ndcg_exp_at_10"] == second["cut_ndcg_at_10"] == [1.0] * 7
    own = ["config_hash", "fusion_key", "settings", "cut_ndcg_exp_at_10"]
    assert records.drop(own).equals(usual.drop(own), null_equal=True)


@pytest.mark.long
def test_kept_absent_documents_count_as_never_found(collection, tmp_path):
    """In ideal gains and recall; a query that asks for nothing else scores 0, also in a sample."""
    judge(collection, ("q1", "d0", 1), ("q1", "gone", 2), ("q2", "gone", 1))
    keep = ["method=bm25", "dataset.missing_relevant=keep"]
    _, records, _ = computed(config(collection, *keep), tmp_path)
    first, second = records.sort("query_id").iter_rows(named=True)
    place = first["top"].index("d0")
    linear = (1 / log2(place + 2)) / (2 + 1 / log2(3))
    power = (1 / log2(place + 2)) / (3 + 1 / log2(3))
    assert first["ndcg_at_10"] == pytest.approx(linear, abs=1e-12)
    assert first["ndcg_exp_at_10"] == pytest.approx(power, abs=1e-12)
    assert first["recall_at_20"] == 0.5
    # d1 is not judged: it may have grade 2, and be the second relevant one of three
    assert first["judged_at_10"] == first["judged_at_20"] == 0.5
    best = (2 / log2(3 - place) + 1 / log2(place + 2)) / (2 + 1 / log2(3))
    assert first["ndcg_upper_at_10"] == pytest.approx(best)
    assert first["recall_upper_at_20"] == pytest.approx(2 / 3)
    assert (second["ndcg_at_10"], second["ndcg_exp_at_10"], second["recall_at_20"]) == (0, 0, 0)
    part = config(collection, *keep, "dataset.sample=2", "dataset.size=2")
    _, sampled, _ = computed(part, tmp_path)
    assert set(sampled["qrels_hash"]) == set(records["qrels_hash"])


def test_a_grade_beyond_exponential_gain_is_refused(collection, tmp_path):
    judge(collection, ("q1", "d0", 31), ("q2", "d2", 1))
    store = Store(str(tmp_path / "store"))
    with pytest.raises(Problems, match=r"grades up to 30.*'q1'.*'d0'.*31"):
        prepare([config(collection, "method=bm25")], store, tmp_path)
