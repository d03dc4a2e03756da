"""Files of texts of documents: what is read, and that everything wrong with one is told at once."""

import json

import pytest

from desa_ray.data.document_texts import expanded, read_document_texts
from desa_ray.errors import Problems

IDS = ["d0", "d1"]
GOOD = [{"id": "d1", "texts": []}, {"id": "d0", "texts": ["a b", "c"], "other": 1}]


@pytest.fixture
def read(tmp_path):
    def reads(*lines: object, wanted=IDS):
        file = tmp_path / "texts.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return read_document_texts(file, wanted, frozenset(IDS))

    return reads


def test_texts_come_in_the_order_of_documents(read):
    assert read(*GOOD) == [["a b", "c"], []]
    assert read(*GOOD, wanted=["d1"]) == [[]]


def test_texts_follow_the_document_line_by_line():
    assert expanded("one", ["two", "three"]) == "one\ntwo\nthree"
    assert expanded("one", []) == "one"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (GOOD[:1], "documents without texts (1): 'd0'"),
        ([*GOOD, {"id": "d7", "texts": []}], "documents that the collection lacks (1): 'd7'"),
        ([*GOOD, GOOD[0]], "listed twice: document 'd1'"),
        ([GOOD[0], {"id": "d0", "texts": "a"}], "texts is 'a', expected a list of texts"),
        ([GOOD[0], {"id": "d0"}], "texts is null, expected a list"),
        ([GOOD[0], {"id": "d0", "texts": ["a", 3]}], "not a text: 3"),
        ([GOOD[0], '{"id": "d0", "texts": ["\\ud800"]}'], "not a text: "),
        ([*GOOD, {"texts": []}], "not the id of a document: no id"),
    ],
)
def test_wrong_text_files_are_refused_with_the_place(read, lines, told):
    with pytest.raises(Problems) as found:
        read(*lines)
    assert told in str(found.value)
    assert "texts.jsonl" in str(found.value)
