"""TREC files: what is read, what is refused by file and line, and that a written run comes back as
it was.
"""

import gzip

import numpy as np
import pytest

from desa_ray.data import trec_writing
from desa_ray.data.fast_runs import read_plain_run
from desa_ray.data.trec import QRELS, read_qrels, read_run
from desa_ray.data.trec_writing import run_pieces, write_run
from desa_ray.errors import DesaError


def file(folder, text, name="a.trec"):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_run_is_read_in_the_order_of_its_rank_column(tmp_path):
    text = "q2 Q0 b 7 1.5 t\nq1 Q0 x 0 3 t\r\n\nq2\tQ0\ta 3 2e0 t\nq2 Q0 c 9 1.5 t\n"
    expected = {"q2": ["a", "b", "c"], "q1": ["x"]}
    assert read_run(file(tmp_path, text)) == expected
    assert list(read_run(file(tmp_path, gzip.compress(text.encode()), "a.trec.gz"))) == ["q2", "q1"]


def test_ids_may_hold_any_character_but_ascii_blanks(tmp_path):
    odd = ["a\u00a0b", "c\u2028d", "😀", "\u3000"]
    path = file(tmp_path, "".join(f"q Q0 {d} {i} {-i} t\n" for i, d in enumerate(odd)))
    assert read_run(path) == {"q": odd}


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("q Q0 a 1 2 t\nq Q0 b 2 1\n", ":2", "5 fields, expected 6"),
        ("q Q0 a one 2 t\n", ":1", "rank or score is not a number: one 2"),
        ("q Q0 a 1 nan t\n", ":1", "rank or score is not a number: 1 nan"),
        # Python reads these as 10 and 3; trec_eval does not.
        ("q Q0 a 0 1_0 t\n", ":1", "rank or score is not a number: 0 1_0"),
        ("q Q0 a 0 \u0663 t\n", ":1", "rank or score is not a number: 0 \u0663"),
        ("q Q0 a 1 2 t\nq Q0 a 2 1 t\n", ":2", "a document is listed twice: query q, document a"),
        (
            "q Q0 a 2 3 t\nq Q0 b 1 2 t\n",
            ":1",
            "the score increases with the rank: query q, rank 2",
        ),
        (b"q Q0 \xff 1 2 t\n", ":1", "not UTF-8"),
        ("", "", "the run has no lines"),
    ],
)
def test_broken_runs_are_refused_by_file_and_line(tmp_path, text, where, what):
    path = file(tmp_path, text)
    with pytest.raises(DesaError) as refused:
        read_run(path)
    assert str(refused.value).startswith(f"{path}{where}: {what}")


def test_unreadable_files_are_refused_by_name(tmp_path):
    for path in (
        tmp_path / "absent.trec",
        tmp_path / "absent.trec.gz",
        file(tmp_path, "plain", "b.trec.gz"),
    ):
        with pytest.raises(DesaError, match=path.name):
            read_run(path)
    cut = gzip.compress(b"q Q0 a 1 2 t\n" * 1000)[:-20]
    with pytest.raises(DesaError, match="cannot be read"):
        read_run(file(tmp_path, cut, "c.trec.gz"))


def test_written_runs_come_back_and_their_scores_strictly(tmp_path):
    """Written runs come back and their scores strictly decrease even in float32."""
    rankings = {"q1": [f"d{n}" for n in range(5000)], "q0": ["😀"], "none": []}
    for name in ("r.trec", "r.trec.gz"):
        path = tmp_path / name
        write_run(path, rankings, tag="t")
        assert read_run(path) == {query: docs for query, docs in rankings.items() if docs}
        first = path.read_bytes()
        write_run(path, rankings, tag="t")
        assert path.read_bytes() == first
    rows = [line.split() for line in (tmp_path / "r.trec").read_text(encoding="utf-8").splitlines()]
    scores = np.array([row[4] for row in rows if row[0] == "q1"], np.float32)
    assert (np.diff(scores) < 0).all()


def test_runs_are_written_some_queries_at_a_time(tmp_path, monkeypatch):
    """The pieces make the same file, packed or not; a bad id is found before the first of them."""
    monkeypatch.setattr(trec_writing, "LINES", 3)
    rankings = {f"q{n}": [f"d{m}" for m in range(n % 3)] for n in range(9)}
    whole = "".join(
        f"q{n} Q0 d{m} {m + 1} {n % 3 - m} t\n" for n in range(9) for m in range(n % 3)
    ).encode()
    assert len(list(run_pieces(rankings, tag="t"))) > 3
    write_run(tmp_path / "r.trec", rankings, tag="t")
    write_run(tmp_path / "r.trec.gz", rankings, tag="t")
    assert (tmp_path / "r.trec").read_bytes() == whole
    assert (tmp_path / "r.trec.gz").read_bytes() == gzip.compress(whole, mtime=0)
    with pytest.raises(DesaError, match="query q9: document id 'a b' cannot be written"):
        write_run(tmp_path / "new.trec", rankings | {"q9": ["a b"]}, tag="t")
    assert not (tmp_path / "new.trec").exists()


@pytest.mark.parametrize("rankings", [{"q 1": ["a"]}, {"q": ["a\tb"]}, {"q": [""]}])
def test_ids_that_a_line_cannot_hold_are_not_written(tmp_path, rankings):
    with pytest.raises(DesaError, match="use ids without spaces"):
        write_run(tmp_path / "r.trec", rankings, tag="t")


def test_qrels_are_read_or_refused_by_file_and_line(tmp_path):
    table = read_qrels(file(tmp_path, "q1 0 a 2\nq1 0 b -1\nq2 x a 0\n"))
    assert table.schema == QRELS
    assert table.rows() == [("q1", "a", 2), ("q1", "b", -1), ("q2", "a", 0)]
    for text, what in (
        (
            "q 0 a 1\nq 0 a 2\n",
            ":2: judged twice with different grades: query q, document a: 1 and 2",
        ),
        ("q 0 a high\n", ":1: grade is not a whole number: high"),
        ("q 0 a\n", ":1: 3 fields, expected 4"),
        ("\n", ": there are no judgments"),
    ):
        path = file(tmp_path, text)
        with pytest.raises(DesaError) as refused:
            read_qrels(path)
        assert str(refused.value).startswith(f"{path}{what}")


# Ranks that are no order: BEIR writes 0 everywhere, others give equal scores one rank

TIED = {
    "all zero": ("q Q0 b 0 1.5 t\nq Q0 a 0 7 t\nq Q0 c 0 -3 t\n", ["a", "b", "c"]),
    "all one, equal scores by id": ("q Q0 c 1 2 t\nq Q0 b 1 2 t\nq Q0 a 1 1 t\n", ["b", "c", "a"]),
    "1, 1, 3": ("q Q0 b 1 9 t\nq Q0 a 1 9 t\nq Q0 c 3 8 t\n", ["a", "b", "c"]),
    "scores decide against tied ranks": (
        "q Q0 a 1 5 t\nq Q0 b 1 3 t\nq Q0 c 2 4 t\n",
        ["a", "c", "b"],
    ),
    "equal scores by rank": ("q Q0 z 1 5 t\nq Q0 a 2 5 t\nq Q0 b 2 5 t\n", ["z", "a", "b"]),
    "exponents": ("q Q0 a 0 1e-3 t\nq Q0 b 0 2E2 t\n", ["b", "a"]),
}


@pytest.mark.parametrize("name", TIED)
def test_where_ranks_tie_the_score_orders_and_it_is_told_once(tmp_path, name):
    text, expected = TIED[name]
    told = []
    path = file(tmp_path, text + text.replace("q Q0", "q2 Q0") + "q3 Q0 x 1 2 t\nq3 Q0 y 2 2 t\n")
    assert read_run(path, told.append) == {"q": expected, "q2": expected, "q3": ["x", "y"]}
    assert len(told) == 1
    assert f"{path}: ranks tie in 2 of 3 queries (first 'q')" in told[0]


def test_ranks_with_a_decimal_point_are_whole_numbers(tmp_path):
    told = []
    run = read_run(
        file(tmp_path, "q Q0 a 2.0 1 t\nq Q0 b 1. 2 t\nq Q0 c 10.000 0 t\n"), told.append
    )
    assert (run, told) == ({"q": ["b", "a", "c"]}, [])
    for rank in ("1.5", "1e0", "nan", "0x1", "9999999999"):
        with pytest.raises(DesaError, match=f":1: rank or score is not a number: {rank} 1"):
            read_run(file(tmp_path, f"q Q0 a {rank} 1 t\n"))


def test_distinct_ranks_that_disagree_with_the_scores(tmp_path):
    """Distinct ranks that disagree with the scores are refused with a hint."""
    with pytest.raises(
        DesaError, match=r":2: the score increases with the rank: query q, rank 1 \(sort the lines"
    ):
        read_run(file(tmp_path, "q Q0 a 0 1 t\nq Q0 b 1 2 t\n"))


# Ids

CONTROLS = ["\x00", "\x01", "\x1c", "\x1f", "\x7f", "\x80", "\x85", "\x9f", "\x1b"]


@pytest.mark.parametrize("control", CONTROLS)
def test_control_characters_in_ids_are_refused_by_file_line(tmp_path, control):
    """Control characters in ids are refused by file line and id."""
    run = file(tmp_path, f"q{control}1 Q0 a 1 2 t\nq Q0 b{control} 1 2 t\n")
    with pytest.raises(DesaError) as refused:
        read_run(run)
    assert f"{run}:1: query id with a control character: {f'q{control}1'!r} (" in str(refused.value)
    assert f"{run}:2: document id with a control character: {f'b{control}'!r} (" in str(
        refused.value
    )
    for text in (
        f"q{control} 0 d 1\nq 0 d{control}1 1\n",
        f"query-id\tcorpus-id\tscore\nq{control}\td{control}1\t1\n",
    ):
        with pytest.raises(DesaError) as refused:
            read_qrels(file(tmp_path, text))
        assert f"query id with a control character: {f'q{control}'!r}" in str(refused.value)
        assert f"document id with a control character: {f'd{control}1'!r}" in str(refused.value)


def test_judgments_that_repeat_and_padded_grades_are_read(tmp_path):
    """Judgments that repeat and padded grades are read as a collection reads them."""
    trec = read_qrels(file(tmp_path, "q 0 a 1\nq 0 a 1\nq 0 b -1\nq 0 b 0\nq 0 c +2\n"))
    assert trec.rows() == [("q", "a", 1), ("q", "b", -1), ("q", "c", 2)]
    beir = read_qrels(file(tmp_path, "query-id\tcorpus-id\tscore\nq\ta\t 1 \nq\ta\t1\nq\tc\t+2\n"))
    assert beir.rows() == [("q", "a", 1), ("q", "c", 2)]
    for text in ("query-id\tcorpus-id\tscore\n\ta\t1\n", "query-id\tcorpus-id\tscore\nq\t\t1\n"):
        with pytest.raises(DesaError, match=":2: an empty id"):
            read_qrels(file(tmp_path, text))


PLAIN = [f"q{q} Q0 d{(7 * n + q) % 50} {n} {9 - n / 8} t" for q in (3, 1) for n in range(1, 41)]
ODD_RUNS = {
    "in any order": [*PLAIN[10:], *PLAIN[:10]],
    "interleaved": PLAIN[::2] + PLAIN[1::2],
    "ids beyond ASCII": [line.replace("d1", "Größe") for line in PLAIN],
    "ranks tie": [line.replace(" 3 ", " 4 ") for line in PLAIN],
    "tabs": [line.replace(" ", "\t") for line in PLAIN],
    "two blanks": [line.replace(" Q0 ", "  Q0 ") for line in PLAIN],
    "1.0": [line.replace(" 5 ", " 5.0 ") for line in PLAIN],
    "a quote": [line.replace("d4", 'd"4') for line in PLAIN],
    "a missing tag": [*PLAIN[:5], "q3 Q0 x 99 0.1"],
    "seven fields": [*PLAIN[:5], "q3 Q0 x 99 0.1 t t"],
    "a document twice": [*PLAIN, "q3 Q0 d7 99 -5 t"],
    "scores rise": [*PLAIN, "q3 Q0 x 99 50 t"],
    "no number": [*PLAIN, "q3 Q0 x 99 1_0 t"],
    "infinite": [*PLAIN, "q3 Q0 x 99 -inf t"],
    "a control character": [*PLAIN, "q3 Q0 x\x01 99 -1 t"],
}


@pytest.mark.parametrize("name", ["plain", *ODD_RUNS])
def test_columns_and_lines_read_the_same(name, tmp_path, monkeypatch):
    """The reader by columns takes plain files, or leaves them; never another ranking."""
    path = tmp_path / "run"
    path.write_text("\n".join(ODD_RUNS.get(name, PLAIN)) + "\n", encoding="utf-8")
    taken = read_plain_run([path.read_bytes()])
    if name in ("plain", "in any order", "interleaved", "ids beyond ASCII", "a quote"):
        assert taken is not None
    found = outcome(path)
    if isinstance(found, dict):
        assert name not in ("a document twice", "scores rise", "no number", "infinite")
    monkeypatch.setattr("desa_ray.data.trec.read_plain_run", lambda blocks: None)
    assert outcome(path) == found
    if taken is not None:
        assert isinstance(found, dict)
        assert list(taken.items()) == list(found.items())


def outcome(path):
    try:
        return read_run(path)
    except DesaError as error:
        return str(error)
