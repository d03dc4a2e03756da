"""`desa audit`: files of engines, what is printed, and the exit code."""

import json
from pathlib import Path

import pytest

from desa_ray.data.answers import FORMATS, read_answer
from desa_ray.errors import DesaError
from desa_ray.jobs.audit import main

BM25 = [("x", 9.5), ("y", 5.0), ("z", 1.0)]
DENSE = [("y", 0.9), ("x", 0.8), ("w", 0.7)]
FUSED = [("x", 1 / 61 + 1 / 62), ("y", 1 / 61 + 1 / 62), ("w", 1 / 63), ("z", 1 / 63)]


def shaped(engine, hits):
    """An answer as each engine writes it, by hand after its documentation."""
    if engine in ("elasticsearch", "opensearch"):
        own = [{"_index": "i", "_id": d, "_score": s, "_source": {}} for d, s in hits]
        return {"took": 2, "timed_out": False, "_shards": {"total": 1}, "hits": {"hits": own}}
    if engine == "qdrant":
        points = [{"id": d, "version": 3, "score": s} for d, s in hits]
        return {"result": {"points": points}, "status": "ok", "time": 0.002}
    if engine == "weaviate":
        rows = [{"title": "t", "_additional": {"id": d, "score": str(s)}} for d, s in hits]
        return {"data": {"Get": {"Article": rows}}}
    if engine == "milvus":
        return {"code": 0, "data": [{"id": d, "distance": s} for d, s in hits]}
    return [{"id": d, "text": "t", "_relevance_score": s} for d, s in hits]


def written(folder: Path, engine: str, **lists) -> list[str]:
    paths = []
    for name, hits in lists.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(shaped(engine, hits)))
        paths.append(str(path))
    return paths


@pytest.mark.parametrize("engine", FORMATS)
def test_answers_of_every_engine_are_read_and_explained(engine, tmp_path, capsys):
    answer, *legs = written(tmp_path, engine, answer=FUSED, bm25=BM25, dense=DENSE)
    assert read_answer(Path(legs[0])).ids == ("x", "y", "z")
    assert read_answer(Path(legs[0]), engine).scores == (9.5, 5.0, 1.0)
    assert main([answer, "--legs", *legs]) == 0
    assert "explained by: reciprocal rank fusion, kappa 60" in capsys.readouterr().out


def test_trec_tsv_and_distances_are_read(tmp_path):
    trec = tmp_path / "a.trec"
    trec.write_text("q Q0 x 1 2.5 t\nq Q0 y 2 1.5 t\nr Q0 z 1 1 t\n")
    assert read_answer(trec, query="q").ids == ("x", "y")
    with pytest.raises(DesaError, match="holds 2 queries"):
        read_answer(trec)
    tsv = tmp_path / "b.tsv"
    tsv.write_text("q\tx\t2.5\nq\ty z\t1.5\n")
    assert read_answer(tsv).ids == ("x", "y z")
    rows = [{"id": 7, "_distance": 0.1}, {"id": 8, "_distance": 0.4}]
    (tmp_path / "c.json").write_text(json.dumps(rows))
    found = read_answer(tmp_path / "c.json")
    assert (found.ids, found.scores, found.ascending) == (("7", "8"), (0.1, 0.4), True)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "is not JSON"),
        ('{"hits": 3}', "is not an answer of a known engine"),
        ('{"data": {"Get": {"A": []}}}', "contains no hits"),
        ('[{"_relevance_score": 1}]', "hit 1 has no id"),
        ('[{"id": "a", "_relevance_score": 1}, {"id": "b"}]', "1 hits have no score"),
        ('[{"id": "a", "_relevance_score": "x"}]', "is not a number"),
        ("q\tx\n", "line 1 has 2 fields"),
    ],
)
def test_what_is_no_answer_is_one_line(text, what, tmp_path):
    (tmp_path / "answer").write_text(text)
    with pytest.raises(DesaError, match=what):
        read_answer(tmp_path / "answer")


def test_an_impossible_rank_is_printed_with_both_ledgers(tmp_path, capsys):
    wrong = [FUSED[0], FUSED[2], FUSED[1]]
    answer, *legs = written(tmp_path, "qdrant", answer=wrong, bm25=BM25, dense=DENSE)
    assert main([answer, "--legs", *legs, "--rule", "rrf"]) == 1
    printed = capsys.readouterr().out
    assert "WRONG (1): rank 2 is impossible" in printed
    assert "w (bm25: absent, gives 0; dense: rank 3, score 0.7, gives 0.015873)" in printed
    assert "y (bm25: rank 2, score 5, gives 0.016129; dense: rank 1" in printed


def test_other_answers_and_judgments_are_compared(tmp_path, capsys):
    answer, *legs, longer, page = written(
        tmp_path,
        "elasticsearch",
        answer=FUSED[:2],
        bm25=BM25,
        dense=DENSE,
        longer=FUSED[1::-1],
        page=[FUSED[1], FUSED[1]],
    )
    (tmp_path / "qrels").write_text("q 0 x 1\nq 0 y 0\n")
    more = ["--longer", longer, "--again", longer, "--pages", page]
    more += ["--qrels", str(tmp_path / "qrels"), "--query", "q"]
    assert main([answer, "--legs", *legs, *more]) == 1
    printed = capsys.readouterr().out
    for case in ("WRONG (2)", "WRONG (3)", "WRONG (8)", "note (9): judged@2: 100%", "WRONG (9)"):
        assert case in printed
