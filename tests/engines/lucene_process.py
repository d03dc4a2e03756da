"""What runs inside the one helper process that holds a JVM: our own engine, and Lucene's collector
as its oracle.

The oracle indexes under the users' ids in the order given, builds queries with Pyserini's own query
generator from raw text, and returns what a plain `IndexSearcher` collects: every hit with Lucene's
score, before any tie adjuster.
"""

import json
import os
import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from desa_ray.engines import lucene
from desa_ray.engines.analysis import ENGLISH
from desa_ray.engines.bm25 import Postings
from desa_ray.engines.jvm import start_jvm
from desa_ray.engines.lucene import Lucene

HEAP = "512m"
BY_INDEX = 1 << 30  # characters between two flushes, which make the engine build Lucene's index
_engine: Lucene


def start(heap: str = HEAP) -> None:
    """Initialise the process; a foreign Java in the environment must not matter."""
    global _engine
    os.environ["JAVA_HOME"] = os.environ["JVM_PATH"] = "/nowhere/java"
    _engine = Lucene(heap=heap)


def restart(heap: str) -> str:
    return start_jvm(None, heap)


def versions() -> dict[str, str]:
    return _engine.versions()


def analyse(texts: Sequence[str], analyzer: str = ENGLISH) -> list[list[str]]:
    return _engine.analyse(texts, analyzer)


def postings(
    texts: Sequence[str], flush_characters: int | None = None, analyzer: str = ENGLISH
) -> tuple[Postings, list[str]]:
    """The engine's postings, and what it left behind in its scratch folder."""
    with tempfile.TemporaryDirectory() as scratch:
        built = _engine.build_postings(
            iter(texts), Path(scratch), analyzer=analyzer, flush_characters=flush_characters
        )
        return built, [path.name for path in Path(scratch).iterdir()]


def byte_lengths(lengths: Sequence[int]) -> list[int]:
    """Lucene's one-byte forms of document lengths."""
    from jnius import autoclass

    form = autoclass("org.apache.lucene.util.SmallFloat").intToByte4
    return [form(length) & 0xFF for length in lengths]


def postings_in_batches(texts: Sequence[str], characters: int, analyzer: str) -> Postings:
    """The engine's postings, with so many characters analysed in one call."""
    kept = lucene.BATCH_CHARACTERS
    lucene.BATCH_CHARACTERS = characters
    try:
        return postings(texts, analyzer=analyzer)[0]
    finally:
        lucene.BATCH_CHARACTERS = kept


def postings_of_few_characters(texts: Sequence[str], most: int) -> Postings:
    """The engine's postings, with at most so many characters in one call, as of a tiny heap."""
    kept, _engine._most_characters = _engine._most_characters, most
    try:
        return postings(texts)[0]
    finally:
        _engine._most_characters = kept


def postings_on_a_full_disk(texts: Sequence[str], file_limit: int) -> None:
    """`postings` in a process that may not write files of more than `file_limit` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, before[1]))
    try:
        postings(texts, BY_INDEX)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def query_terms(text: str) -> dict[str, float]:
    """Terms and boosts of the query that Pyserini's searcher would run."""
    boosts = {}
    for clause in _cast("org.apache.lucene.search.BooleanQuery", _query(text)).clauses().toArray():
        boost = _cast("org.apache.lucene.search.BoostQuery", clause.query())
        boosts[_cast("org.apache.lucene.search.TermQuery", boost.getQuery()).getTerm().text()] = (
            boost.getBoost()
        )
    return boosts


def collected(
    documents: dict[str, str], queries: Sequence[str], k1: float = 0.9, b: float = 0.4
) -> list[tuple[list[str], np.ndarray]]:
    """For each query Lucene's hits: document ids and float32 scores."""
    from jnius import autoclass

    with tempfile.TemporaryDirectory() as folder:
        writer = autoclass("io.anserini.index.SimpleIndexer")(folder, False, 1)
        for name, text in documents.items():
            if text.strip():
                assert writer.addRawDocument(json.dumps({"id": name, "contents": text}))
        writer.close(True)
        reader = autoclass("io.anserini.index.IndexReaderUtils").getReader(folder)
        stored = reader.storedFields()
        names = [stored.document(i).get("id") for i in range(reader.maxDoc())]
        searcher = autoclass("org.apache.lucene.search.IndexSearcher")(reader)
        searcher.setMaxClauseCount(1 << 20)
        searcher.setSimilarity(
            autoclass("org.apache.lucene.search.similarities.BM25Similarity")(k1, b)
        )
        to_json = autoclass("com.fasterxml.jackson.databind.ObjectMapper")().writeValueAsString
        results = []
        for text in queries:
            # Jackson writes a float so that it reads back as the same float, and in one call for
            # all hits.
            hits = json.loads(to_json(searcher.search(_query(text), max(reader.maxDoc(), 1))))[
                "scoreDocs"
            ]
            scores = np.array([np.float32(hit["score"]) for hit in hits], np.float32)
            results.append(([names[hit["doc"]] for hit in hits], scores))
        reader.close()
    return results


def indexed_as(
    documents: Sequence[str], query: str, arguments: Sequence[str], analyzer_class: str
) -> tuple[dict[str, dict[int, int]], list[int], list[tuple[int, np.float32]]]:
    """What Anserini's IndexCollection makes of documents (ids are their numbers) with these
    arguments: term -> document -> frequency, the documents' lengths as indexed, and Lucene's hits
    for a query under this class of analyzer, with scores.
    """
    from jnius import autoclass

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.mkdir()
        lines = [json.dumps({"id": str(n), "contents": text}) for n, text in enumerate(documents)]
        (source / "documents.jsonl").write_text("\n".join(lines), encoding="utf-8")
        index = str(Path(folder) / "index")
        given = ["-collection", "JsonCollection", "-input", str(source), "-index", index]
        given += ["-generator", "DefaultLuceneDocumentGenerator", "-threads", "1", "-optimize"]
        autoclass("io.anserini.index.IndexCollection").main([*given, *arguments])
        reader = autoclass("io.anserini.index.IndexReaderUtils").getReader(index)
        assert (reader.numDocs(), reader.leaves().size()) == (len(documents), 1)
        segment, stored = reader.leaves().get(0).reader(), reader.storedFields()
        names = [int(stored.document(i).get("id")) for i in range(reader.maxDoc())]
        frequencies: dict[str, dict[int, int]] = {}
        cursor = segment.terms("contents").iterator()
        while (term := cursor.next()) is not None:
            postings = cursor.postings(None, 8)
            own = frequencies.setdefault(term.utf8ToString(), {})
            while (doc := postings.nextDoc()) != 2**31 - 1:
                own[names[doc]] = postings.freq()
        lengths, values = [0] * len(documents), segment.getNormValues("contents")
        while (doc := values.nextDoc()) != 2**31 - 1:
            lengths[names[doc]] = values.longValue() & 0xFF
        searcher = autoclass("org.apache.lucene.search.IndexSearcher")(reader)
        similarity = autoclass("org.apache.lucene.search.similarities.BM25Similarity")
        searcher.setSimilarity(similarity(0.9, 0.4))
        builder = autoclass("io.anserini.search.query.BagOfWordsQueryGenerator")()
        asked = builder.buildQuery("contents", autoclass(analyzer_class)(), query)
        hits = searcher.search(asked, 1000).scoreDocs
        found = [(names[hit.doc], np.float32(hit.score)) for hit in hits]
        reader.close()
    return frequencies, lengths, found


def searched(
    documents: dict[str, str], queries: Sequence[str]
) -> list[tuple[list[str], np.ndarray]]:
    """For each query what Anserini's `SimpleSearcher` returns: ids and scores after its tie
    adjuster.
    """
    from jnius import autoclass

    with tempfile.TemporaryDirectory() as folder:
        writer = autoclass("io.anserini.index.SimpleIndexer")(folder, False, 1)
        for name, text in documents.items():
            if text.strip():
                assert writer.addRawDocument(json.dumps({"id": name, "contents": text}))
        writer.close(True)
        searcher = autoclass("io.anserini.search.SimpleSearcher")(folder)
        searcher.set_bm25(0.9, 0.4)
        results = []
        for text in queries:
            hits = searcher.search(text, max(1, len(documents)))
            scores = np.array([np.float32(hit.score) for hit in hits], np.float32)
            results.append(([hit.docid for hit in hits], scores))
        searcher.close()
    return results


def _query(text: str):
    from jnius import autoclass

    analyser = autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    return autoclass("io.anserini.search.query.BagOfWordsQueryGenerator")().buildQuery(
        "contents", analyser, text
    )


def _cast(name: str, value: object):
    from jnius.jnius import cast

    return cast(name, value)


def fed_back(
    documents: dict[str, str], queries: Sequence[str], model: str, numbers: Sequence[float]
) -> list[tuple[dict[str, float], list[str], np.ndarray]]:
    """What Anserini's own rerankers make of queries: weighted terms, and Lucene's hits and scores
    for them.

    Args:
        documents: none of them empty.
        model: rm3 or rocchio.
        numbers: terms, documents and the query's weight of rm3; terms, documents, alpha and beta of
            rocchio.
    """
    from jnius import autoclass

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.mkdir()
        lines = [json.dumps({"id": name, "contents": text}) for name, text in documents.items()]
        (source / "documents.jsonl").write_text("\n".join(lines), encoding="utf-8")
        index = str(Path(folder) / "index")
        given = ["-collection", "JsonCollection", "-input", str(source), "-index", index]
        given += ["-generator", "DefaultLuceneDocumentGenerator", "-threads", "1"]
        autoclass("io.anserini.index.IndexCollection").main([*given, "-storeDocvectors"])
        searcher = autoclass("io.anserini.search.SimpleSearcher")(index)
        searcher.set_bm25(0.9, 0.4)
        if model == "rm3":
            searcher.set_rm3(*numbers)
        else:
            terms, best, alpha, beta = numbers
            searcher.set_rocchio(None, terms, best, terms, best, alpha, beta, 0.0, False, False)
        reader = autoclass("io.anserini.index.IndexReaderUtils").getReader(index)
        names = [reader.storedFields().document(i).get("id") for i in range(reader.maxDoc())]
        raw = autoclass("org.apache.lucene.search.IndexSearcher")(reader)
        similarity = autoclass("org.apache.lucene.search.similarities.BM25Similarity")
        raw.setSimilarity(similarity(0.9, 0.4))
        to_json = autoclass("com.fasterxml.jackson.databind.ObjectMapper")().writeValueAsString
        results = []
        for text in queries:
            weights = json.loads(to_json(searcher.get_feedback_terms(text)))
            hits = json.loads(to_json(raw.search(_boosted(weights), len(documents))))["scoreDocs"]
            scores = np.array([np.float32(hit["score"]) for hit in hits], np.float32)
            results.append((weights, [names[hit["doc"]] for hit in hits], scores))
        searcher.close()
        reader.close()
    return results


def _boosted(weights: dict[str, float]):
    from jnius import autoclass

    should = autoclass("org.apache.lucene.search.BooleanClause$Occur").SHOULD
    builder = autoclass("org.apache.lucene.search.BooleanQuery$Builder")()
    for term, weight in weights.items():
        asked = autoclass("org.apache.lucene.index.Term")("contents", term)
        query = autoclass("org.apache.lucene.search.TermQuery")(asked)
        builder.add(autoclass("org.apache.lucene.search.BoostQuery")(query, weight), should)
    return builder.build()
