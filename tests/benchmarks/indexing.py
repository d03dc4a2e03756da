"""(l) Indexing with the export of postings, against Anserini's own multi-threaded IndexCollection.

Both index the same made-up texts in one JVM, in turns after a round that warms it up; CPU seconds
are those of the whole process, with the JVM's compiler and collector. IndexCollection reads JSON
files and keeps neither positions, vectors nor contents.
"""

import json
import multiprocessing
import os
import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from .harness import Measured, cpu_s, ratio
from .made_up import zipf_texts


def indexed(documents: int, rounds: int) -> list[Measured]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as child:
        pairs, terms, theirs = child.submit(_rounds, documents, rounds).result()
    assert terms == theirs, (terms, theirs)
    seconds = statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)
    ratios = sorted(b / a for a, b in pairs)
    return [
        ratio(
            "l indexing",
            f"{documents:,} documents indexed, postings exported",
            f"Anserini's IndexCollection, {os.cpu_count()} threads, its index alone",
            seconds,
            0.7,
            documents_per_cpu_s=documents / seconds[0],
            baseline_documents_per_cpu_s=documents / seconds[1],
            least=ratios[0],
            most=ratios[-1],
            rounds=rounds,
        )
    ]


def _rounds(documents: int, rounds: int) -> tuple[list[tuple[float, float]], list[int], list[int]]:
    """CPU seconds of both in each round, and what each index holds: documents and terms."""
    from desa_ray.engines.lucene import Lucene

    engine = Lucene(heap="3g")
    from jnius import autoclass

    texts = list(zipf_texts(np.random.default_rng(3), documents))
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"
        source.mkdir()
        files = 2 * (os.cpu_count() or 1)
        for file in range(files):
            with (source / f"{file:02d}.json").open("w") as out:
                for number in range(file, documents, files):
                    row = {"id": f"{number:010d}", "contents": texts[number]}
                    out.write(json.dumps(row) + "\n")
        main = autoclass("io.anserini.index.IndexCollection").main
        pairs, kept = [], []
        for turn in range(rounds + 1):
            index = Path(scratch) / f"index-{turn}"
            arguments = ["-collection", "JsonCollection", "-input", str(source)]
            arguments += ["-index", str(index), "-generator", "DefaultLuceneDocumentGenerator"]
            arguments += ["-threads", str(os.cpu_count())]
            kept.clear()
            ours = cpu_s(lambda: kept.append(engine.build_postings(iter(texts), Path(scratch))))
            pairs.append((ours, cpu_s(lambda given=arguments: main(given))))
        reader = autoclass("io.anserini.index.IndexReaderUtils").getReader(str(index))
        held = [reader.numDocs(), int(reader.getSumTotalTermFreq("contents"))]
        reader.close()
    return pairs[1:], [kept[0].n_documents, kept[0].sum_total_term_freq], held
