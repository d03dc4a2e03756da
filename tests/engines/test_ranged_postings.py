"""Postings in ranges are one index: equal terms, counts, scores and content hash, bit for bit."""

from itertools import pairwise

import lucene_process
import numpy as np
import pytest

import desa_ray.engines.merged_postings as merged_module
from desa_ray.engines.bm25 import BM25
from desa_ray.engines.merged_postings import merge_ranges
from desa_ray.engines.postings import Postings
from desa_ray.engines.ranged_postings import CorpusStatistics, RangedPostings, places_of, words

# Orders of bytes, of UTF-16 and of code points differ among these; one begins another.
ODD = ["zebra", "zeb", "\u00e9t\u00e9", "\uff5emark", "\U0001d4d0script", "\u4e2d\u6587", "a\u0301"]


def texts(count: int = 230) -> list[str]:
    """Zipfian words and odd ones; the last eight documents, a range of their own among five, and
    some others have no terms.
    """
    random = np.random.default_rng(11)
    found: list[str] = []
    for size in random.integers(0, 90, count - 8):
        own = [f"w{word}x" for word in random.zipf(1.3, size) if word < 5000]
        found.append(" ".join([*own, *random.choice(ODD, min(3, size))]))
    return [*found, *([""] * 8)]


EDGES = {1: [0, 230], 2: [0, 100, 230], 5: [0, 1, 40, 150, 222, 230]}


@pytest.fixture(scope="module")
def whole(in_lucene_process) -> Postings:
    return in_lucene_process(lucene_process.postings, texts())[0]


def made(in_lucene_process, tmp_path, edges: list[int], backwards: bool) -> RangedPostings:
    """Ranges indexed one after another, the last one first or last, and their merged statistics."""
    spans = list(enumerate(pairwise(edges)))
    parts: dict[int, Postings] = {}
    for number, (start, stop) in reversed(spans) if backwards else spans:
        parts[number] = in_lucene_process(lucene_process.postings, texts()[start:stop])[0]
    merged = merge_ranges([parts[number] for number, _ in spans], tmp_path)
    return RangedPostings(merged.statistics, edges, parts.__getitem__)


@pytest.mark.parametrize("count", EDGES)
@pytest.mark.parametrize("backwards", [False, True])
def test_ranges_are_one_index(count, backwards, whole, in_lucene_process, tmp_path, monkeypatch):
    """Terms, statistics, content hash and scores of 1, 2 and 5 ranges, whichever is made first."""
    monkeypatch.setattr(merged_module, "STEP_TERMS", 50)
    monkeypatch.setattr(merged_module, "BLOCK", 64)
    ranged = made(in_lucene_process, tmp_path, EDGES[count], backwards)
    parts = [ranged.range(number) for number in range(count)]
    (tmp_path / "again").mkdir()
    merged = merge_ranges(parts, tmp_path / "again")
    for name, array in merged.arrays().items():
        assert array.tobytes() == whole.arrays()[name].tobytes(), name
    assert merged.content_hash() == whole.content_hash()
    one, many = BM25(whole), BM25(ranged)
    asked = np.array([0, 1, 2, 39, 40, 99, 149, 150, 221, 229], np.int32)
    for terms in (["w1x"], ["w2x", "w5x", "w5x", "zeb", *ODD], ["unknown"], [], ["zebra", "w1x"]):
        for span in ((0, None), (20, 160), (99, 101), (224, 230), (7, 7)):
            same(one.scores(terms, *span), many.scores(terms, *span))
        same(one.scores_of(terms, asked), many.scores_of(terms, asked))


def same(one: tuple[np.ndarray, np.ndarray], many: tuple[np.ndarray, np.ndarray]) -> None:
    for left, right in zip(one, many, strict=True):
        assert (left.dtype, left.tobytes()) == (right.dtype, right.tobytes())


def test_ranges_equal_lucene(in_lucene_process, tmp_path):
    """Scores of five ranges are those that Lucene's own collector finds in one index."""
    documents = {f"d{number:03d}": text for number, text in enumerate(texts())}
    queries = ["w1x w2x w7x w7x", "zebra zeb w3x w11x", "\u4e2d\u6587 mark w2x"]
    scorer = BM25(made(in_lucene_process, tmp_path, EDGES[5], backwards=False))
    analysed = in_lucene_process(lucene_process.analyse, queries)
    oracle = in_lucene_process(lucene_process.collected, documents, queries)
    for terms, (names, scores) in zip(analysed, oracle, strict=True):
        docs, ours = scorer.scores(terms)
        numbers = np.array([int(name[1:]) for name in names])
        order = np.argsort(numbers)
        assert docs.tolist() == numbers[order].tolist()
        assert ours.tobytes() == scores[order].tobytes()
        assert docs.size > 10


def test_places_of_words():
    """Found words by their place, others by the number of terms before them."""
    terms, offsets = words([b"a", b"ab", b"b", "\u00e9".encode()])
    wanted = words([b"", b"a", b"aa", b"ab", b"abc", b"b", b"c", b"\xc3\xa9", b"\xf0"])
    assert places_of(wanted, terms, offsets).tolist() == [-1, 0, -2, 1, -3, 2, -4, 3, -5]
    nothing = CorpusStatistics(*words([]), np.zeros(1, np.int64), 0, 0)
    assert nothing.documents_with("a") == 0


def test_ranges_without_any_term(tmp_path):
    """A corpus of blank documents matches nothing."""
    none, start = np.empty(0, np.int32), np.zeros(1, np.int64)
    blank = Postings(np.empty(0, np.uint8), start, start, none, none, np.zeros(3, np.uint8), 0, 0)
    merged = merge_ranges([blank, blank], tmp_path)
    six = np.zeros(6, np.uint8)
    assert merged.content_hash() == (
        Postings(np.empty(0, np.uint8), start, start, none, none, six, 0, 0).content_hash()
    )
    docs, _ = BM25(RangedPostings(merged.statistics, [0, 3, 6], lambda _: blank)).scores(["a"])
    assert docs.size == 0
