"""BM25 from postings equals Lucene's own complete collector, bit for bit, in scores and
in support.
"""

import json
import math
import pickle
from dataclasses import replace
from pathlib import Path

import lucene_process
import numpy as np
import pytest

from desa_ray.engines.bm25 import BM25, Postings
from desa_ray.errors import DesaError


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def corpus(folder: Path) -> dict[str, str]:
    """Ids and texts in file order; text as both channels see it (method.md section 1)."""
    return {
        row["_id"]: f"{row['title']} {row['text']}" if row.get("title") else row["text"]
        for row in rows(folder / "corpus.jsonl")
    }


def assert_equal_to_lucene(
    in_lucene_process, documents: dict[str, str], queries: list[str], **parameters: float
) -> Postings:
    """Score all queries both ways; ids and scores must agree exactly. Returns our postings."""
    ids = sorted(documents, key=str.encode)
    number = {name: i for i, name in enumerate(ids)}
    postings, _ = in_lucene_process(lucene_process.postings, [documents[name] for name in ids])
    scorer = BM25(postings, **parameters)
    analysed = in_lucene_process(lucene_process.analyse, queries)
    oracle = in_lucene_process(lucene_process.collected, documents, queries, *parameters.values())
    for terms, (names, scores) in zip(analysed, oracle, strict=True):
        docs, ours = scorer.scores(terms)
        order = np.argsort([number[name] for name in names])
        assert (docs.dtype, ours.dtype) == (np.int32, np.float32)
        assert docs.tolist() == sorted(number[name] for name in names)
        assert ours.tobytes() == scores[order].tobytes()
    return postings


@pytest.mark.long
def test_scifact_short_and_expanded_queries_equal_lucene(in_lucene_process, scifact_folder):
    folder = scifact_folder
    texts = {row["_id"]: row["text"] for row in rows(folder / "queries.jsonl")}
    references = [row for row in rows(folder / "generations/references.jsonl") if row["draw"] == 0][
        :100
    ]
    short = [texts[row["query_id"]] for row in references]
    expanded = [" ".join([texts[row["query_id"]], *row["texts"]]) for row in references]
    assert len(short) == 100
    assert_equal_to_lucene(in_lucene_process, corpus(folder), short + expanded)


def test_all_cranfield_queries_equal_lucene_and_its_two_empty(in_lucene_process, cranfield_folder):
    """All cranfield queries equal lucene and its two empty documents match nothing."""
    folder = cranfield_folder
    queries = [row["text"] for row in rows(folder / "queries.jsonl")]
    pairs = [f"{a} {b} {a}" for a, b in zip(queries[::4], queries[1::4], strict=False)]
    postings = assert_equal_to_lucene(in_lucene_process, corpus(folder), queries + pairs)
    assert (len(queries), postings.n_documents, postings.doc_count) == (225, 1400, 1398)


@pytest.mark.long
@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.0, 0.4), (0.9, 0.0), (0.9, 1.0)])
def test_other_parameters_equal_lucene(in_lucene_process, k1, b):
    assert_equal_to_lucene(
        in_lucene_process, zipf_documents(300), ["w1x w2x w7x w7x", "w3x"], k1=k1, b=b
    )


def test_long_and_odd_queries_equal_lucene(in_lucene_process):
    documents = zipf_documents(400)
    vocabulary = sorted({word for text in documents.values() for word in text.split()})
    assert len(vocabulary) > 1024
    queries = [
        " ".join(vocabulary),  # more distinct terms than Lucene's default clause limit
        "w1x " * 500 + "w2x",
        "",
        " \t",
        "the of and",
        "unknownword",
        "unknownword w2x",
    ]
    assert_equal_to_lucene(in_lucene_process, documents, queries)


def zipf_documents(n: int) -> dict[str, str]:
    random = np.random.default_rng(n)
    lengths = random.integers(0, 200, size=n)  # well into the lossy length bytes; some empty
    return {
        f"d{i}": " ".join(f"w{w}x" for w in random.zipf(1.3, size) if w < 10_000)
        for i, size in enumerate(lengths)
    }


def tiny() -> Postings:
    """Three documents: "b a a", "" and "b"."""
    return Postings(
        terms=np.frombuffer(b"ab", np.uint8),
        term_offsets=np.array([0, 1, 2]),
        indptr=np.array([0, 1, 3]),
        docs=np.array([0, 0, 2], np.int32),
        freqs=np.array([2, 1, 1], np.int32),
        norms=np.array([3, 0, 1], np.uint8),
        doc_count=2,
        sum_total_term_freq=4,
    )


def test_three_documents_by_hand():
    # n = 2 (the empty document does not count), mean length 4/2 = 2; lengths 3 and 1.
    rare, common = math.log(1 + (2 - 1 + 0.5) / 1.5), math.log(1 + (2 - 2 + 0.5) / 2.5)
    long, short = 0.9 * (0.6 + 0.4 * 3 / 2), 0.9 * (0.6 + 0.4 * 1 / 2)
    scorer = BM25(tiny(), k1=0.9, b=0.4)

    docs, scores = scorer.scores(["a", "b"])
    assert docs.tolist() == [0, 2]
    assert scores == pytest.approx(
        [rare * 2 / (2 + long) + common / (1 + long), common / (1 + short)], rel=1e-6
    )

    docs, scores = scorer.scores(["b", "a", "b", "b"])  # a term weighs as often as it is asked for
    assert scores == pytest.approx(
        [rare * 2 / (2 + long) + 3 * common / (1 + long), 3 * common / (1 + short)], rel=1e-6
    )


@pytest.mark.parametrize("terms", [[], ["zzz"], [""], ["aa", "ab", "0"]])
def test_a_query_without_known_terms_matches_nothing(terms):
    docs, scores = BM25(tiny()).scores(terms)
    assert (docs.dtype, scores.dtype, docs.size, scores.size) == (np.int32, np.float32, 0, 0)


def test_one_query_leaves_nothing_behind_for_the_next():
    scorer = BM25(tiny())
    first = scorer.scores(["b"])
    scorer.scores(["a", "b"])
    again = scorer.scores(["b"])
    assert [array.tobytes() for array in first] == [array.tobytes() for array in again]


def test_a_hit_whose_score_rounds_to_zero_stays():
    docs, scores = BM25(tiny(), k1=1e9).scores(["b"])  # 1 + tf * c(d) rounds to 1 in float32
    assert docs.tolist() == [0, 2]
    assert scores.tolist() == [0, 0]


def test_renumbering_documents_renumbers_the_scores_and_nothing(in_lucene_process):
    """Renumbering documents renumbers the scores and nothing else."""
    texts = list(zipf_documents(200).values())
    permutation = np.random.default_rng(3).permutation(len(texts))
    here, _ = in_lucene_process(lucene_process.postings, texts)
    there, _ = in_lucene_process(lucene_process.postings, [texts[i] for i in permutation])
    for query in (["w1x"], ["w2x", "w5x", "w5x", "w40x"], [f"w{i}x" for i in range(300)]):
        docs, scores = BM25(here).scores(query)
        moved, moved_scores = BM25(there).scores(query)
        back = np.argsort(permutation[moved])
        assert permutation[moved][back].tolist() == docs.tolist()
        assert moved_scores[back].tobytes() == scores.tobytes()


def test_postings_survive_their_arrays_memory_mapping(tmp_path):
    """Postings survive their arrays memory mapping and pickling."""
    postings = tiny()
    for name, array in postings.arrays().items():
        np.save(tmp_path / f"{name}.npy", array)
    mapped = Postings.from_arrays(
        {path.stem: np.load(path, mmap_mode="r") for path in tmp_path.glob("*.npy")}
    )
    assert mapped.content_hash() == postings.content_hash()
    assert not mapped.docs.flags.writeable
    pickled = pickle.loads(pickle.dumps(mapped))
    assert pickled.content_hash() == postings.content_hash()
    assert not pickled.docs.flags.writeable
    assert (
        BM25(mapped).scores(["a", "b"])[1].tobytes()
        == BM25(postings).scores(["a", "b"])[1].tobytes()
    )


def test_the_content_hash_sees_every_part():
    postings = tiny()
    changed = [
        replace(postings, terms=np.frombuffer(b"ac", np.uint8)),
        replace(postings, docs=np.array([0, 0, 1], np.int32)),
        replace(postings, freqs=np.array([1, 2, 1], np.int32)),
        replace(postings, norms=np.array([3, 0, 2], np.uint8)),
        replace(postings, norms=np.array([3, 0, 1, 0], np.uint8)),
    ]
    assert len({p.content_hash() for p in [postings, *changed]}) == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"docs": np.array([0, 0, 3], np.int32)}, "term 'b' has a document number out of range"),
        ({"docs": np.array([-1, 0, 2], np.int32)}, "term 'a' has a document number out of range"),
        ({"docs": np.array([0, 2, 2], np.int32)}, "term 'b' has documents out of order"),
        ({"freqs": np.array([2, 0, 2], np.int32)}, "term 'b' has a frequency below 1"),
        (
            {"freqs": np.array([2, 1, 1], np.float32)},
            "freqs is float32 of 1 dimensions, not one of int32",
        ),
        ({"freqs": np.array([2, 1], np.int32)}, "differ in number"),
        (
            {"terms": np.frombuffer(b"ba", np.uint8)},
            "term 'a' has a position out of the byte order of terms",
        ),
        (
            {"terms": np.frombuffer(b"aa", np.uint8)},
            "term 'a' has a position out of the byte order of terms",
        ),
        ({"indptr": np.array([0, 2, 2])}, "indptr does not increase from 0 to 3"),
        ({"indptr": np.array([0, 1, 2])}, "indptr does not increase from 0 to 3"),
        ({"indptr": np.array([0, 3])}, "differ in number"),
        ({"term_offsets": np.array([0, 2, 1])}, "term_offsets does not increase from 0 to 2"),
        ({"doc_count": 3}, "2 documents with 4 term occurrences, but the statistics say 3 and 4"),
        (
            {"sum_total_term_freq": 5},
            "2 documents with 4 term occurrences, but the statistics say 2 and 5",
        ),
    ],
)
def test_arrays_that_are_no_postings_are_refused(change, message):
    with pytest.raises(
        DesaError, match=f"^postings: these are not the postings of an index: .*{message}"
    ):
        replace(tiny(), **change)


def test_a_missing_array_is_refused():
    arrays = tiny().arrays()
    del arrays["norms"]
    with pytest.raises(DesaError, match="postings need the arrays terms, term_offsets"):
        Postings.from_arrays(arrays)
