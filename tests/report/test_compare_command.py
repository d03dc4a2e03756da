"""`desa compare` on made-up runs: effectiveness as pytrec_eval and ranx have it, statistics as
scipy's.

A document is relevant (grade 1 or 2) by the SHA-256 of topic and document, and each run favours
relevant documents more than the one before. Every tool gets the same.
"""

import gzip
import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import pytrec_eval
from scipy import stats

from desa_ray.data.trec import read_qrels, read_run
from desa_ray.data.trec_writing import write_qrels, write_run
from desa_ray.errors import DesaError
from desa_ray.jobs.compare import compare_tables, main, run_values

NAMES = ("first", "second", "third", "fourth")
MEASURES = ("nDCG@10", "R@20")


def grade(topic: str, document: str) -> int:
    value = hashlib.sha256(f"{topic} {document}".encode()).digest()[0]
    return 2 if value < 20 else 1 if value < 70 else -1 if value < 80 else 0


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Paths of the runs and of the judgments; one topic has no positive judgment, one stands in no
    run, and judged documents of a topic are missing from some runs.
    """
    folder = tmp_path_factory.mktemp("files")
    topics = [str(number) for number in range(1, 36)]
    documents = [f"doc-{number:03}" for number in range(150)]
    rng = np.random.default_rng(0)
    runs = {}
    for favour, name in enumerate(NAMES):
        run = {}
        for topic in topics:
            own = [favour * grade(topic, document) for document in documents]
            order = np.argsort(-(rng.normal(size=len(documents)) + own))
            run[topic] = [documents[place] for place in order[: 100 + favour]]
        runs[name] = folder / f"{name}.trec.gz"
        write_run(runs[name], run, tag="t")
    rows = [(t, d, 0 if t == "7" else grade(t, d)) for t in topics for d in documents[:120]]
    rows.append(("nowhere", "d", 1))
    qrels = folder / "qrels.txt.gz"
    write_qrels(qrels, pl.DataFrame(rows, ["query_id", "doc_id", "grade"], orient="row"))
    return runs, qrels


@pytest.fixture(scope="module")
def values(files):
    runs, qrels = files
    return run_values(
        {name: read_run(path) for name, path in runs.items()}, read_qrels(qrels), MEASURES
    )


def plain(qrels) -> dict[str, dict[str, int]]:
    grades: dict[str, dict[str, int]] = {}
    for query, document, value in read_qrels(qrels).iter_rows():
        grades.setdefault(query, {})[document] = max(value, 0)
    return {query: own for query, own in grades.items() if any(own.values())}


def written(path, tmp_path) -> dict[str, dict[str, float]]:
    """A run as our own export has it, read back by splitting its lines: scores strictly
    decrease.
    """
    target = tmp_path / "run.trec"
    write_run(target, read_run(path), tag="t")
    scores: dict[str, dict[str, float]] = {}
    for line in target.read_text().splitlines():
        query, _, document, _, score, _ = line.split()
        scores.setdefault(query, {})[document] = float(score)
    return scores


@pytest.mark.parametrize("name", NAMES)
def test_effectiveness_equals_pytrec_eval(files, values, name, tmp_path):
    runs, qrels = files
    evaluator = pytrec_eval.RelevanceEvaluator(plain(qrels), {"ndcg_cut.10", "recall.20"})
    theirs = evaluator.evaluate(written(runs[name], tmp_path))
    ours = values[name].rows_by_key("query_id", named=True, unique=True)
    assert len(theirs) == 34
    for query, expected in theirs.items():
        assert ours[query]["nDCG@10"] == pytest.approx(expected["ndcg_cut_10"], abs=1e-12)
        assert ours[query]["R@20"] == pytest.approx(expected["recall_20"], abs=1e-12)
    assert set(ours) == {*theirs, "nowhere"}
    assert (ours["nowhere"]["nDCG@10"], ours["nowhere"]["R@20"]) == (0, 0)


RANX = """
import json, sys
from ranx import Qrels, Run, evaluate
judged, runs = json.load(open(sys.argv[1]))
found = {}
for name, scores in runs.items():
    run = Run(scores)
    evaluate(Qrels(judged), run, ["ndcg@10", "recall@20"])
    scores = run.scores.items()
    found[name] = {metric: {q: float(v) for q, v in own.items()} for metric, own in scores}
print(json.dumps(found))
"""


@pytest.mark.long
def test_effectiveness_equals_ranx(files, values, tmp_path):
    runs, qrels = files
    judged = {query: own for query, own in plain(qrels).items() if query != "nowhere"}
    given = {
        name: {q: own for q, own in written(runs[name], tmp_path).items() if q in judged}
        for name in NAMES
    }
    (tmp_path / "given.json").write_text(json.dumps([judged, given]))
    done = subprocess.run(
        [sys.executable, "-c", RANX, str(tmp_path / "given.json")],
        # Compiling its metrics takes a minute, running them does not
        env={
            **os.environ,
            "NUMBA_DISABLE_JIT": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    for name, theirs in json.loads(done.stdout.splitlines()[-1]).items():
        ours = (
            values[name]
            .filter(pl.col("query_id") != "nowhere")
            .rows_by_key("query_id", named=True, unique=True)
        )
        for query in judged:
            assert ours[query]["nDCG@10"] == pytest.approx(theirs["ndcg@10"][query], abs=1e-12)
            assert ours[query]["R@20"] == pytest.approx(theirs["recall@20"][query], abs=1e-12)


def test_statistics_are_the_reports_and_agree_with_scipy(values):
    means, effects = compare_tables(values, MEASURES, 10_000, 0)
    for row in means.rows:
        own = values[row.about["run"]]
        assert [row.values[m] for m in MEASURES] == pytest.approx([own[m].mean() for m in MEASURES])
    for row in effects.rows:
        measure = row.about["outcome"]
        change = (values[NAMES[0]][measure] - values[row.about["other"]][measure]).to_numpy()
        theirs = stats.permutation_test(
            (change,),
            np.mean,
            permutation_type="samples",
            n_resamples=10_000,
            rng=np.random.default_rng(0),
        ).pvalue
        assert row.values["p"] == pytest.approx(theirs, abs=0.03)
        assert row.values["effect"] == pytest.approx(change.mean())
        assert row.values["p_holm"] >= row.values["p"] > 0
    assert len(effects.rows) == 3 * 2


def test_the_command_prints_and_writes_what_it_computed(files, tmp_path, capsys):
    runs, qrels = files
    pair = [str(runs["fourth"]), str(runs["first"])]
    assert (
        main(
            [
                *pair,
                "--qrels",
                str(qrels),
                "--resamples",
                "500",
                "--seed",
                "4",
                "--out",
                str(tmp_path / "o"),
            ]
        )
        == 0
    )
    shown = capsys.readouterr()
    assert "Means over 35 judged queries" in shown.out
    assert "lacks 1 of 35 judged queries: they score 0" in shown.err
    assert "has 1 queries without a positive judgment: left out" in shown.err
    effects = pl.read_csv(tmp_path / "o" / "effects.csv")
    assert effects["outcome"].to_list() == list(MEASURES)
    queries = pl.read_csv(tmp_path / "o" / "queries.csv")
    first = queries.filter(pl.col("run") == "fourth")["nDCG@10"].mean()
    second = queries.filter(pl.col("run") == "first")["nDCG@10"].mean()
    assert effects["effect"][0] == pytest.approx(first - second)


def test_runs_and_judgments_of_different_kinds_are_refused(files, tmp_path):
    runs, qrels = files
    other = tmp_path / "other.trec"
    write_run(other, {"unknown": ["d"]}, tag="t")
    with pytest.raises(DesaError, match="has none of the judged queries"):
        main([str(other), str(runs["fourth"]), "--qrels", str(qrels)])
    nothing = tmp_path / "nothing.txt"
    write_qrels(nothing, pl.DataFrame({"query_id": ["1"], "doc_id": ["d"], "grade": [0]}))
    with pytest.raises(DesaError, match="no query has a positive judgment"):
        main([str(runs["fourth"]), "--qrels", str(nothing)])
    with pytest.raises(DesaError, match=r"--resamples: .*use from 1 to"):
        main([str(other), "--qrels", str(qrels), "--resamples", "0"])


def test_written_judgments_come_back_and_ids_with_blanks(tmp_path):
    """Written judgments come back and ids with blanks are refused."""
    rows = pl.DataFrame(
        {"query_id": ["q", "q", "é"], "doc_id": ["a", "b", "😀"], "grade": [1, -1, 2]}
    )
    for name in ("q.txt", "q.txt.gz"):
        write_qrels(tmp_path / name, rows)
        assert read_qrels(tmp_path / name).rows() == rows.rows()
    assert (
        gzip.decompress((tmp_path / "q.txt.gz").read_bytes()) == (tmp_path / "q.txt").read_bytes()
    )
    with pytest.raises(DesaError, match="cannot be written to a TREC file"):
        write_qrels(tmp_path / "q.txt", rows.with_columns(doc_id=pl.lit("a b")))


def test_more_resamples_than_memory_holds_are_refused(tmp_path):
    (tmp_path / "a.trec").write_text("q1 Q0 d0 1 1.0 t\n")
    (tmp_path / "q.txt").write_text("q1 0 d0 1\n")
    with pytest.raises(DesaError, match=r"--resamples: .*use from 1 to 1000000"):
        main(
            [
                str(tmp_path / "a.trec"),
                "--qrels",
                str(tmp_path / "q.txt"),
                "--resamples",
                "100000000000",
            ]
        )


def test_err_of_ids_with_hyphens_and_measures_with_commas(tmp_path, capsys):
    """What perl's gdeval scored 0: it drops all of an id up to its last hyphen."""
    (tmp_path / "run.trec").write_text("need-01 Q0 d-1 1 2 t\nneed-01 Q0 d-2 2 1 t\n")
    (tmp_path / "qrels").write_text("need-01 0 d-1 1\n")
    names = "ERR@10,nDCG(dcg='exp-log2',judged_only=True)@10,nDCG@10,Accuracy@2"
    arguments = [
        str(tmp_path / "run.trec"),
        "--qrels",
        str(tmp_path / "qrels"),
        "--out",
        str(tmp_path / "o"),
    ]
    assert main([*arguments, "--measures", names]) == 0
    means = pl.read_csv(tmp_path / "o" / "runs.csv")
    assert means.row(0)[1:] == (0.0625, 1.0, 1.0, 1.0)
    assert "0.0625" in capsys.readouterr().out


def test_grades_that_a_measure_does_not_take_are_refused_by_file(tmp_path):
    """Grades that a measure does not take are refused by file and judgment."""
    (tmp_path / "run.trec").write_text("q-1 Q0 d 1 2 t\n")
    (tmp_path / "qrels").write_text("q-1 0 d 5\n")
    with pytest.raises(
        DesaError, match=r"'ERR@10' takes grades up to 4.*'q-1'.*'d', grade 5"
    ) as refused:
        main(
            [
                str(tmp_path / "run.trec"),
                "--qrels",
                str(tmp_path / "qrels"),
                "--measures",
                "nDCG@10,ERR@10",
            ]
        )
    assert refused.value.where == str(tmp_path / "qrels")
    assert "leave the measure out" in refused.value.hint


def test_judgments_of_another_id_space_are_refused_with_examples(tmp_path):
    (tmp_path / "run.trec").write_text("q1 Q0 doc1 1 2 t\nq1 Q0 doc2 2 1 t\n")
    (tmp_path / "qrels").write_text("q1 0 1 1\nq1 0 2 0\n")
    with pytest.raises(
        DesaError, match=r"not one of its 2 documents is judged.*'doc1' there, '1' in the"
    ) as refused:
        main([str(tmp_path / "run.trec"), "--qrels", str(tmp_path / "qrels")])
    assert refused.value.where == "run run"
    assert refused.value.hint


def test_runs_and_judgments_come_through_pipes_of_a_shell(tmp_path):
    """`desa compare <(zcat run.gz) --qrels <(cat qrels)`: bash hands over /dev/fd/63 and
    the like.
    """
    (tmp_path / "run.gz").write_bytes(gzip.compress(b"q-1 Q0 d 0 2 t\nq-1 Q0 e 0 3 t\n"))
    (tmp_path / "qrels").write_text("q-1 0 d 1\n")
    command = (
        f"exec {sys.executable} -m desa_ray.jobs compare <(zcat run.gz) <(cat run.gz) --qrels <(cat"
        " qrels) --measures RR"
    )
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "DESA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "0.5000" in done.stdout
    assert done.stderr.count("ranks tie in 1 of 1 queries (first 'q-1')") == 2


def test_what_beir_writes_is_compared_and_told(tmp_path, capsys):
    (tmp_path / "run.trec").write_text("q1 Q0 b 0 1.0 t\nq1 Q0 a 0 2.5 t\n")
    (tmp_path / "qrels").write_text("q1 0 a 1\n")
    assert (
        main([str(tmp_path / "run.trec"), "--qrels", str(tmp_path / "qrels"), "--measures", "RR"])
        == 0
    )
    shown = capsys.readouterr()
    assert "1.0000" in shown.out
    assert shown.err.count("ranks tie in 1 of 1 queries") == 1
