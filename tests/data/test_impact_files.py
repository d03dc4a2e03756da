"""Files of impacts: what is read, and that everything wrong with one is told at once."""

import json

import pytest

from desa_ray.data.impact_files import QUERY_VECTORS, read_impacts
from desa_ray.errors import DesaError, Problems

IDS = ["d0", "d1", "d2"]


@pytest.fixture
def read(tmp_path):
    def reads(*lines: object, wanted=IDS, known=IDS, empty=()):
        file = tmp_path / "impacts.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return read_impacts(file, 100.0, wanted, frozenset(known), frozenset(empty))

    return reads


def row(name: object, **vector: object) -> dict:
    return {"id": name, "vector": vector}


GOOD = [row("d2", a=1.5), row("d0", b=0.25, c=0), row("d1")]


def test_impacts_come_in_the_order_of_documents(read):
    assert read(*GOOD) == [{"b": 25}, {}, {"a": 150}]
    assert read(*GOOD, wanted=["d2"]) == [{"a": 150}]
    assert read(*GOOD[:2], empty=["d1"]) == [{"b": 25}, {}, {"a": 150}]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([*GOOD, row("d1", a=1)], "listed twice: document 'd1'"),
        (GOOD[:2], "documents without impacts (1): 'd1'"),
        ([*GOOD, row("d7", a=1)], "documents that the collection lacks (1): 'd7'"),
        ([*GOOD[:2], row("d1", a=-1)], "term 'a' has the weight -1"),
        ([*GOOD[:2], row("d1", a=1e9)], "term 'a' has the weight 1000000000.0"),
        ([*GOOD[:2], row("d1", a=1 << 70)], "term 'a' has a weight above"),
        ([*GOOD[:2], '{"id": "d1", "vector": {"a": NaN}}'], "term 'a' has the weight nan"),
        ([*GOOD[:2], '{"id": "d1", "vector": {"a": 1e999}}'], "term 'a' has the weight inf"),
        ([*GOOD[:2], '{"id": "d1", "vector": {"a": 1, "a": 2}}'], "'a' is listed twice"),
        ([*GOOD[:2], row("d1", a="1")], "term 'a' has the weight"),
        ([*GOOD[:2], row("d1", a=True)], "term 'a' has the weight true"),
        ([*GOOD[:2], {"id": "d1", "vector": [1]}], "vector is [1], expected terms"),
        ([*GOOD[:2], {"id": "d1"}], "vector is null"),
        ([*GOOD, {"vector": {}}], "not the id of a document: no id"),
        ([*GOOD, row(3)], "not the id of a document: id is 3"),
        ([*GOOD, "[]"], "not a JSON object"),
        ([*GOOD, "{"], "malformed JSON"),
    ],
)
def test_wrong_files_are_refused_with_the_place(read, lines, told):
    with pytest.raises(Problems) as found:
        read(*lines)
    assert told in str(found.value)
    assert "impacts.jsonl" in str(found.value)


def test_all_faults_are_told_together(read):
    with pytest.raises(Problems) as found:
        read(row("d7"), row("d0", a=-1), row("d0"), row("d2", a=-2), "nothing")
    message = str(found.value)
    for told in ("'d7'", "'d1'", "listed twice", "2 such lines", "malformed JSON"):
        assert told in message
    assert len(message.splitlines()) == 5


def test_vectors_of_queries_are_named_as_such(tmp_path):
    file = tmp_path / "vectors.jsonl"
    file.write_text('{"id": "q1", "vector": {"a": 0.5}}\n{"id": "q9", "vector": {}}\n')
    asked = ["q1", "q2"]
    with pytest.raises(Problems) as found:
        read_impacts(file, 100.0, asked, frozenset(asked), frozenset(), QUERY_VECTORS)
    assert "queries that the collection lacks (1): 'q9'" in str(found.value)
    assert "queries without vectors (1): 'q2'" in str(found.value)
    assert read_impacts(file, 100.0, asked, None, frozenset(["q2"]), QUERY_VECTORS) == [
        {"a": 50},
        {},
    ]
    with pytest.raises(DesaError, match=r"set sparse\.query_vectors"):
        read_impacts(tmp_path / "none", 100.0, asked, None, frozenset(), QUERY_VECTORS)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DesaError, match=r"none\.jsonl: cannot be read"):
        read_impacts(tmp_path / "none.jsonl", 100.0, IDS, frozenset(IDS), frozenset())
