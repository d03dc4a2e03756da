"""Rankings as people hold them, all fused to the same."""

import gzip
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest

import desa_ray
from desa_ray.errors import DesaError

BM25 = {"q1": {"d1": 3.0, "d2": 2.0, "d3": 2.0}, "q2": {"d4": 1.0}}
DENSE = {"q1": {"d3": 0.9, "d1": 0.8}}
# By hand: q1 is fused from d1 d2 d3 and d3 d1. Of two documents at ranks (1, 2) and (3, 1) the
# first has the higher sum: 1/61 + 1/62 > 1/63 + 1/61.
Q1, Q2 = ("d1", "d3", "d2"), ("d4",)
TOP = Fraction(1, 61) + Fraction(1, 62)


def _rows(run):
    return [(q, d, s) for q, own in run.items() for d, s in own.items()]


def _pandas(run):
    return pd.DataFrame(_rows(run), columns=["qid", "docno", "score"])


def _polars(run):
    return pl.DataFrame(_rows(run), ["query_id", "doc_id", "score"], orient="row")


def _ranked(run):
    """Ranks alone, in a frame whose rows are shuffled."""
    ranked = _polars(run).sort("query_id", "score", "doc_id", descending=[False, True, False])
    ranks = pl.int_range(1, pl.len() + 1).over("query_id").alias("rank")
    return ranked.with_columns(ranks).drop("score").sample(fraction=1, shuffle=True, seed=1)


def _trec(run, path):
    lines = []
    for query, own in run.items():
        order = sorted(sorted(own), key=own.__getitem__, reverse=True)
        lines += [f"{query} Q0 {d} {n} {own[d]} tag\n" for n, d in enumerate(order, 1)]
    data = "".join(lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_runs_of_every_form_are_fused_alike(tmp_path):
    bm25 = [
        BM25,
        _pandas(BM25),
        _polars(BM25),
        _polars(BM25).lazy(),
        _ranked(BM25),
        _trec(BM25, tmp_path / "bm25.trec.gz"),
        str(_trec(BM25, tmp_path / "bm25.trec")),
    ]
    for run in bm25:
        fused = desa_ray.fuse([run, _polars(DENSE)])
        assert {query: own.documents for query, own in fused.items()} == {"q1": Q1, "q2": Q2}
        assert fused["q1"].scores[0] == TOP
        assert fused["q2"].exhausted == (True, True)  # one channel is empty


@pytest.mark.slow  # importing ranx compiles kernels
def test_ranx_runs_are_fused():
    from ranx import Run

    runs = [Run({query: dict(own) for query, own in run.items()}) for run in (BM25, DENSE)]
    assert desa_ray.fuse(runs) == desa_ray.fuse([BM25, DENSE])


def test_frames_of_one_query_are_rankings():
    expected = desa_ray.fuse([BM25["q1"], DENSE["q1"]])
    assert expected.documents == Q1
    frames = [_polars(run).filter(query_id="q1").drop("query_id") for run in (BM25, DENSE)]
    assert desa_ray.fuse(frames) == expected
    assert desa_ray.fuse([frames[0].to_pandas(), DENSE["q1"]]) == expected
    assert desa_ray.fuse([frames[0].head(0), np.array(["d9"])]).documents == ("d9",)


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        (
            [_polars(BM25), ["d1"]],
            "channel 0: holds rankings of many queries, but channel 1 does not",
        ),
        (
            [pl.DataFrame({"doc_id": ["a"]})],
            r"channel 0: no column of scores or ranks among doc_id",
        ),
        ([pd.DataFrame({"score": [1]})], r"channel 0: no column of document ids among score"),
        ([_polars(BM25).vstack(_polars(BM25))], "'d1' is listed twice in query 'q1'"),
        ([_pandas(BM25).assign(score=[1, 2, None, 4])], "channel 0, query 'q1': score nan"),
        ([{1: ["a"]}], "channel 0: query id 1 is not a string"),
        (["absent.trec"], "not a list of document ids .*path of an existing TREC run"),
        ([{"q1": {"a": 1}, "q2": {"b", "c"}}], "is not a finite number"),
    ],
)
def test_runs_with_mistakes_are_refused(channels, message):
    with pytest.raises(DesaError, match=message):
        desa_ray.fuse(channels)


def test_pyterrier_pipelines_are_fused_exactly():
    """Equal sums are one float, and sums closer than floats tell apart keep their exact order."""
    pt = pytest.importorskip("pyterrier")
    from desa_ray.pyterrier import ExactRRF

    bm25, dense = pt.Transformer.from_df(_pandas(BM25)), pt.Transformer.from_df(_pandas(DENSE))
    topics = pd.DataFrame({"qid": ["q1", "q2", "q3"], "query": ["one", "two", "three"]})
    found = ExactRRF(bm25, dense, kappa=60)(topics)
    assert found[["qid", "docno", "rank"]].values.tolist() == [
        *(["q1", docno, rank] for rank, docno in enumerate(Q1)),
        ["q2", "d4", 0],
    ]
    assert found["score"][0] == float(TOP)
    assert found["query"].tolist() == ["one", "one", "one", "two"]
    assert (found[found.qid == "q1"]["score"].diff().dropna() < 0).all()
    weighted = ExactRRF(bm25, dense, weights=["1/4", 1], num_results=1)(topics)
    assert weighted["docno"].tolist() == ["d3", "d4"]
    with pytest.raises(DesaError, match="at least two"):
        ExactRRF(bm25)
