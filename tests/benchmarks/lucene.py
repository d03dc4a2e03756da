"""(a) Complete BM25 lists: our scorer against the searcher behind `LuceneSearcher`, a process each.

`LuceneSearcher` is a thin shell around Anserini's `SimpleSearcher`; its Python module imports
torch, which this environment does not have, so the Java class is asked directly. It re-scores ties
in every list, which is most of its time. Whether our scores are Lucene's is checked against what a
plain `IndexSearcher` collects.
"""

import json
import multiprocessing
import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from desa_ray.core.ranking import sparse_order
from desa_ray.engines.bm25 import BM25

from .harness import Measured, cpu_s, ratio
from .made_up import zipf_texts

QUERIES = ("w40x w300x", "w90x w1500x w60x", "w25x", "w200x w700x w31x w4000x", "w55x w9000x")


def complete_lists(documents: int) -> list[Measured]:
    texts = [" ".join(words.split()) for words in zipf_texts(np.random.default_rng(2), documents)]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as child:
        postings, terms, theirs, expected = child.submit(_lucene, texts, QUERIES).result()
    scorer = BM25(postings)
    times, hits = [], []
    for query, (docs, scores) in zip(terms, expected, strict=True):
        ours, values = scorer.scores(query)
        assert ours.tolist() == docs.tolist()
        assert values.tobytes() == scores.tobytes()
        times.append(
            [cpu_s(lambda query=query: sparse_order(*scorer.scores(query))) for _ in range(5)]
        )
        hits.append(len(ours))
    own = statistics.median(statistics.median(own) for own in times)
    words = (
        f"complete BM25 list in order, {documents:,} documents, median"
        f" {statistics.median(hits):,.0f} hits"
    )
    seconds = own, statistics.median(theirs)
    return [
        ratio(
            "a BM25", words, "Anserini's SimpleSearcher.search(k=N)", seconds, 100, identical=True
        )
    ]


def _lucene(texts: list[str], queries: tuple[str, ...]):
    """Postings, analysed queries, seconds a query of the searcher, and the collector's lists by
    document number.
    """
    from desa_ray.engines.lucene import Lucene

    engine = Lucene(heap="3g")
    from jnius import autoclass
    from jnius.jnius import cast

    with tempfile.TemporaryDirectory() as scratch:
        postings = engine.build_postings(iter(texts), Path(scratch))
    with tempfile.TemporaryDirectory() as folder:
        writer = autoclass("io.anserini.index.SimpleIndexer")(folder, False, 1)
        for number, text in enumerate(texts):
            assert writer.addRawDocument(json.dumps({"id": f"{number:09d}", "contents": text}))
        writer.close(True)
        searcher = autoclass("io.anserini.search.SimpleSearcher")(folder)
        searcher.set_bm25(0.9, 0.4)
        searcher.search(queries[0], 1000)  # warm
        seconds = [
            cpu_s(lambda query=query: searcher.search(query, len(texts))) for query in queries
        ]
        searcher.close()

        reader = autoclass("io.anserini.index.IndexReaderUtils").getReader(folder)
        plain = autoclass("org.apache.lucene.search.IndexSearcher")(reader)
        plain.setSimilarity(
            autoclass("org.apache.lucene.search.similarities.BM25Similarity")(0.9, 0.4)
        )
        analyser = autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
        make = autoclass("io.anserini.search.query.BagOfWordsQueryGenerator")()
        to_json = autoclass("com.fasterxml.jackson.databind.ObjectMapper")().writeValueAsString
        lists = []
        for query in queries:
            asked = cast(
                "org.apache.lucene.search.Query", make.buildQuery("contents", analyser, query)
            )
            found = json.loads(to_json(plain.search(asked, len(texts))))["scoreDocs"]
            # One segment, documents in the order they were given: Lucene's numbers are ours.
            docs = np.array([hit["doc"] for hit in found], np.int32)
            order = np.argsort(docs)
            lists.append(
                (
                    docs[order],
                    np.array([np.float32(hit["score"]) for hit in found], np.float32)[order],
                )
            )
        reader.close()
    return postings, engine.analyse(list(queries)), seconds, lists
