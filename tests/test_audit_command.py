"""`desa audit`: files of engines, what is printed, and the exit code."""

import gzip
import json
import os
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
    if engine == "qdrant_client":
        return {"points": [{"id": d, "version": 0, "score": s, "payload": {}} for d, s in hits]}
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
        ("q\tx\n", ":1: 2 fields, expected 3"),
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


def hit(**changed) -> str:
    """Elasticsearch's answer with one hit."""
    own = {"_id": "x", "_score": 1.5} | changed
    return json.dumps({"timed_out": False, "_shards": {"failed": 0}, "hits": {"hits": [own]}})


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (hit(_score=10**400), "score 1000.* is not a number"),
        (hit(_score=True), "score true is not a number"),
        (hit(_score="1_0"), "score '1_0' is not a number"),
        (hit(_score="\u0663"), "is not a number"),
        (hit(_score=float("nan")), "score NaN is not a number"),
        (hit(_id=""), "hit 1 has the id ''"),
        (hit(_id="a\nWRONG (1): x"), r"hit 1 has the id 'a\\nWRONG"),
        (hit(_id="a\0b"), "hit 1 has the id"),
        (hit(_id="\ud800"), "hit 1 has the id"),
        (hit(_score=0).replace('"_score": 0', f'"_score": {"9" * 5000}'), "4300 digits"),
        (hit().replace('"_id"', '"_id": "y", "_id"'), "'_id' is listed twice"),
        (hit().replace('"failed": 0', '"failed": 2'), "2 shards failed"),
        (hit().replace("false", "true"), "timed out"),
        ("[" * 100_000, "nested too deeply"),
        ("q\tx\x1b\t1\n", "hit 1 has the id"),
        ("q\tx\t1\nq\ty\n", ":2: 2 fields, expected 3"),
        ("", "contains no hits"),
    ],
)
def test_hostile_answers_are_one_line(text, what, tmp_path):
    (tmp_path / "answer").write_text(text)
    with pytest.raises(DesaError, match=what) as caught:
        read_answer(tmp_path / "answer")
    assert len(str(caught.value).splitlines()) == 1


def test_answers_come_packed_through_pipes_and_with_byte_order_marks(tmp_path):
    """A pipe is read once; a line separator is a letter of an id, not the end of a line."""
    text = "q Q0 x 1 2.5 t\nq Q0 y 2 1.5 t\n"
    (tmp_path / "a.trec.gz").write_bytes(gzip.compress(text.encode()))
    found = read_answer(tmp_path / "a.trec.gz")
    assert (found.name, found.ids) == ("a", ("x", "y"))
    (tmp_path / "b.json").write_bytes(b"\xef\xbb\xbf" + hit().encode())
    assert read_answer(tmp_path / "b.json").ids == ("x",)
    (tmp_path / "c.tsv").write_text("q\tx\u2028y\t1.5\r\n")
    assert read_answer(tmp_path / "c.tsv").ids == ("x\u2028y",)
    reading, writing = os.pipe()
    os.write(writing, text.encode())
    os.close(writing)
    assert read_answer(Path(f"/dev/fd/{reading}")).ids == ("x", "y")
    os.close(reading)


def test_pipes_that_say_nothing_devices_and_folders_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("desa_ray.unpacking.SILENCE_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    for place, what in (
        (tmp_path / "pipe", "a pipe that sent nothing"),
        (Path("/dev/zero"), "neither a file nor a pipe"),
        (tmp_path, "is a folder"),
    ):
        with pytest.raises(DesaError, match=what):
            read_answer(place)
    monkeypatch.setattr("desa_ray.data.answers.LARGEST", 10)
    (tmp_path / "long.json").write_text(hit())
    with pytest.raises(DesaError, match="has more than 0 MiB"):
        read_answer(tmp_path / "long.json")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--weights", "1,1"], "--weights: is of a declared rule"),
        (["--kappa", "60"], "--kappa: is of a declared rule"),
        (["--legs-go-on"], "--legs-go-on: is of a declared rule"),
        (["--ascending", "dnse"], "no leg is called 'dnse' .did you mean dense"),
        (["--qrels", "QRELS"], "name it with --query"),
        (["--qrels", "QRELS", "--query", "z"], "judge no query 'z'"),
        (["--rule", "rrf", "--kappa", "1e999"], "kappa 1e999 is out of range"),
    ],
)
def test_options_that_would_change_nothing_are_refused(options, what, tmp_path, capsys):
    answer, *legs = written(tmp_path, "qdrant", answer=FUSED, bm25=BM25, dense=DENSE)
    (tmp_path / "QRELS").write_text("q 0 x 1\n")
    options = [str(tmp_path / own) if own == "QRELS" else own for own in options]
    with pytest.raises(DesaError, match=what):
        main([answer, "--legs", *legs, *options])
    assert capsys.readouterr().out == ""


def test_names_of_legs_forge_no_line(tmp_path, capsys):
    answer, bm25, dense = written(tmp_path, "qdrant", answer=FUSED[::-1], bm25=BM25, dense=DENSE)
    odd = Path(bm25).rename(tmp_path / "b\nWRONG (1): forged.json")
    main([answer, "--legs", str(odd), dense, "--rule", "rrf"])
    printed = capsys.readouterr().out.splitlines()
    assert "forged" in "".join(printed)
    assert not [line for line in printed if line.startswith("WRONG (1): forged")]


def test_many_legs_that_go_on_are_refused(tmp_path):
    names = [f"leg{number}" for number in range(20)]
    answer, *legs = written(tmp_path, "qdrant", answer=FUSED, **dict.fromkeys(names, BM25))
    with pytest.raises(DesaError, match="20 legs that go on"):
        main([answer, "--legs", *legs, "--rule", "rrf", "--legs-go-on"])
