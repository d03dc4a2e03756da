"""Lucene, for the two things only Lucene can do: analyse text as Pyserini's BM25 does, and count a
corpus.

Terms of English texts are counted as Lucene analyses them. Elsewhere an index is a means:
it is built in a scratch folder by Anserini's own indexer, read out once as `Postings`, and removed.
Lucene sees document *numbers* as ids, never a user's id, and its own
document ids (which merging may permute) are mapped back to numbers on the way out. Scores then come
from `desa_ray.engines.bm25`, outside any JVM.
"""

import importlib.metadata
import tempfile
import threading
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from desa_ray.engines.analysis import ENGLISH, indexer_arguments, new_analyzer
from desa_ray.engines.jvm import anserini_jar, heap_bytes, start_jvm
from desa_ray.engines.postings import Postings
from desa_ray.engines.term_counts import BETWEEN, TermCounts, is_uncut, joined_documents, pieces
from desa_ray.errors import DesaError

FIELD = "contents"
BATCH_CHARACTERS = 1 << 20  # of the documents that are analysed in one call
NO_MORE = 2**31 - 1  # DocIdSetIterator.NO_MORE_DOCS
WITH_FREQS = 8  # PostingsEnum.FREQS
# What Java's String.trim removes, more than Python's strip and less
JAVA_BLANKS = "".join(map(chr, range(0x21)))


class Lucene:
    """The process's JVM with Anserini 2.2.0 in it. To be used from the thread that made it, pyjnius
    knows no other.
    """

    def __init__(self, java_home: str | None = None, heap: str = "2g"):
        """Start the JVM, or join the one `start_jvm` started with the same settings; DesaError
        where it cannot.
        """
        self._java = start_jvm(java_home, heap)
        from jnius import autoclass

        self._class = autoclass
        self._thread = threading.get_ident()
        self._analyzers: dict[str, Any] = {}
        self._analyse = autoclass("io.anserini.analysis.AnalyzerUtils").analyze
        self._flush_characters = heap_bytes(heap) // 16
        # Analysed in one call; a character may be a term, of about 60 bytes
        self._most_characters = heap_bytes(heap) // 256

    def versions(self) -> dict[str, str]:
        """Versions of what decides terms and scores: java, lucene, anserini, pyserini."""
        return {
            "java": self._java,
            "lucene": self._class("org.apache.lucene.util.Version").LATEST.toString(),
            "anserini": anserini_jar().name.split("-")[1],
            "pyserini": importlib.metadata.version("pyserini"),
        }

    def analyse(self, texts: Sequence[str], analyzer: str = ENGLISH) -> list[list[str]]:
        """Index and query terms of each text, in order and with repeats (method.md section 4).

        These are the terms of which Pyserini's BagOfWordsQueryGenerator builds its query, and those
        under which a document's text is indexed; by the default analyzer lower case, without
        possessives and stopwords, Porter-stemmed. A text without such terms gives an empty list.

        Args:
            analyzer: a name that `desa_ray.engines.analysis` makes.
        """
        assert threading.get_ident() == self._thread, (
            "pyjnius gives wrong results from a second thread"
        )
        if analyzer not in self._analyzers:
            self._analyzers[analyzer] = new_analyzer(analyzer, self._class)
        chosen = self._analyzers[analyzer]
        return [list(self._analyse(chosen, text).toArray()) for text in texts]

    def build_postings(
        self,
        texts: Iterable[str],
        scratch: Path,
        *,
        analyzer: str = ENGLISH,
        flush_characters: int | None = None,
    ) -> Postings:
        """Index the texts of documents 0, 1, 2, ... and return their postings.

        English texts are analysed and counted (`desa_ray.engines.term_counts`); Lucene's index,
        which gives the same postings, is built for other analyzers, whose terms may depend on
        neighbours or share a position, for a text too long for the heap that cannot be cut, and
        where `flush_characters` is given.

        Args:
            texts: document texts by number; read once, so a generator serves. Texts that Java calls
                blank never reach Lucene, texts without a term reach it without effect: both keep
                their number.
            scratch: an existing folder with space for the index (about half the text); left as it
                was.
            analyzer: a name that `desa_ray.engines.analysis` makes.
            flush_characters: text between two flushes of Lucene's buffer, by default a sixteenth of
                the heap. It bounds memory and never changes the result.

        Raises:
            DesaError: Lucene refuses a document or loses one (disk or heap full).
        """
        assert threading.get_ident() == self._thread, (
            "pyjnius gives wrong results from a second thread"
        )
        from jnius.jnius import JavaException

        with tempfile.TemporaryDirectory(prefix="lucene-", dir=scratch) as folder:
            try:
                if analyzer.startswith(ENGLISH) and flush_characters is None:
                    return self._counted(texts, folder, analyzer)
                flush_characters = flush_characters or self._flush_characters
                return self._indexed(texts, folder, analyzer, flush_characters)
            except JavaException as error:
                reason = str(error).splitlines()[0].removeprefix("JVM exception occurred: ")
                hint = "raise sparse.heap, or free disk space"
                raise DesaError(f"Lucene failed: {reason}", where=folder, hint=hint) from error

    def _counted(self, texts: Iterable[str], folder: str, analyzer: str) -> Postings:
        if analyzer not in self._analyzers:
            self._analyzers[analyzer] = new_analyzer(analyzer, self._class)
        chosen, counts = self._analyzers[analyzer], TermCounts()
        longest = self._most_characters // 2
        for batch in joined_documents(texts, min(BATCH_CHARACTERS, self._most_characters), longest):
            if is_uncut(batch[0], longest):  # alone; Lucene's index takes it bit by bit
                with tempfile.TemporaryDirectory(dir=folder) as own:
                    found = self._indexed(batch, own, analyzer, self._flush_characters)
                terms = [found.term(number).decode() for number in range(found.n_terms)]
                counts.add_document(terms, found.freqs)
            elif not any(self._counts_batch(chosen, counts, batch, mark) for mark in range(99)):
                raise AssertionError("no mark keeps these documents apart")
        return counts.postings()

    def _counts_batch(self, analyzer, counts: TermCounts, batch: list[str], number: int) -> bool:
        """Whether a batch was counted with this mark between its documents."""
        mark = f"zq{number}qz"  # one token of every English analyzer, and no word
        text = f"\n{mark}\n".join(batch)  # no token reaches over the end of a line
        size = min(BATCH_CHARACTERS, self._most_characters) // 2
        found = [self._analyse(analyzer, piece).toString()[1:-1] for piece in pieces(text, size)]
        return counts.add(BETWEEN.join(filter(None, found)), mark, len(batch))

    def _indexed(
        self, texts: Iterable[str], folder: str, analyzer: str, flush_characters: int
    ) -> Postings:
        n_documents, n_indexed = self._index(texts, folder, analyzer, flush_characters)
        return self._read(folder, n_documents, n_indexed)

    def _index(
        self, texts: Iterable[str], folder: str, analyzer: str, flush_characters: int
    ) -> tuple[int, int]:
        """Fill `folder` with an index of one segment; returns how many texts were read and how many
        Lucene got.
        """
        indexer = self._class("io.anserini.index.SimpleIndexer")
        document = self._class("io.anserini.collection.JsonCollection$Document").fromFields
        arguments = ["-collection", "JsonCollection", "-input", "", "-index", folder]
        arguments += ["-threads", "1", *indexer_arguments(analyzer)]
        writer = indexer(arguments)
        n_documents = n_indexed = buffered = 0
        for text in texts:
            if text.strip(JAVA_BLANKS):
                # Reopening flushes; the indexer's own limit of 2 GB may exceed the heap.
                if buffered >= flush_characters:
                    writer.close(False)
                    writer, buffered = indexer([*arguments, "-append"]), 0
                if not writer.addJsonDocument(document(f"{n_documents:010d}", text)):
                    hint = "Lucene's own message is above; if the disk is full, free space"
                    raise DesaError(
                        f"Lucene refused document number {n_documents}", where=folder, hint=hint
                    )
                n_indexed += 1
                buffered += len(text)
            n_documents += 1
        # Merges into one segment, and keeps quiet about I/O errors: `_read` counts
        writer.close(True)
        return n_documents, n_indexed

    def _read(self, folder: str, n_documents: int, n_indexed: int) -> Postings:
        reader = self._class("io.anserini.index.IndexReaderUtils").getReader(folder)
        try:
            found = (reader.numDocs(), reader.maxDoc(), reader.leaves().size())
            if found != (n_indexed, n_indexed, min(n_indexed, 1)):
                what = (
                    f"{found[0]} of {n_indexed} documents ({found[1]} slots, {found[2]} segments)"
                    " reached the index"
                )
                raise DesaError(what, where=folder, hint="free disk space")
            if not n_indexed:
                return _no_postings(n_documents)
            return self._export(reader.leaves().get(0).reader(), n_documents)
        finally:
            reader.close()

    def _export(self, segment, n_documents: int) -> Postings:
        """Read one segment out. Each list is one or a few bulk calls, blocks of about
        128 entries.
        """
        numbers = _numbers(segment)
        norms = np.zeros(n_documents, np.uint8)
        values = segment.getNormValues(FIELD)
        while (doc := values.nextDoc()) != NO_MORE:
            norms[numbers[doc]] = values.longValue() & 0xFF
        field = segment.terms(FIELD)
        if field is None:
            return _no_postings(n_documents)

        docs = np.empty(field.getSumDocFreq(), np.int32)
        freqs = np.empty(len(docs), np.int32)
        terms, offsets, indptr = bytearray(), [0], [0]
        block = self._class("org.apache.lucene.search.DocAndFloatFeatureBuffer")()
        cursor, postings, at = field.iterator(), None, 0
        while (term := cursor.next()) is not None:
            terms += term.utf8ToString().encode()
            offsets.append(len(terms))
            end = at + cursor.docFreq()
            postings = cursor.postings(postings, WITH_FREQS)
            first = postings.nextDoc()
            if end == at + 1:  # most terms occur in one document only
                docs[at], freqs[at] = first, postings.freq()
                at = end
            while at < end:
                postings.nextPostings(NO_MORE, block)
                size = block.size
                docs[at : at + size], freqs[at : at + size] = (
                    block.docs[:size],
                    block.features[:size],
                )
                at += size
            indptr.append(end)
        docs, freqs = _renumbered(docs, freqs, indptr, numbers)
        return Postings(
            terms=np.frombuffer(bytes(terms), np.uint8),
            term_offsets=np.array(offsets, np.int64),
            indptr=np.array(indptr, np.int64),
            docs=docs,
            freqs=freqs,
            norms=norms,
            doc_count=field.getDocCount(),
            sum_total_term_freq=field.getSumTotalTermFreq(),
        )


def _numbers(segment) -> np.ndarray:
    """int32 [maxDoc]: the document number of each of Lucene's document ids, read from the ids that
    `_index` gave.
    """
    numbers = np.empty(segment.maxDoc(), np.int32)
    ids = segment.getBinaryDocValues("id")
    while (doc := ids.nextDoc()) != NO_MORE:
        numbers[doc] = int(ids.binaryValue().utf8ToString())
    return numbers


def _renumbered(docs, freqs, indptr, numbers) -> tuple[np.ndarray, np.ndarray]:
    """`docs` as document numbers, ascending within each term, `freqs` along with them."""
    docs = numbers[docs]
    if (np.diff(numbers) < 0).any():
        # A merge of several flushes need not keep the order of arrival
        for start, end in pairwise(indptr):
            order = start + np.argsort(docs[start:end])
            docs[start:end], freqs[start:end] = docs[order], freqs[order]
    return docs, freqs


def _no_postings(n_documents: int) -> Postings:
    """Postings of documents of which none has a term."""
    none, start = np.empty(0, np.int32), np.zeros(1, np.int64)
    return Postings(
        np.empty(0, np.uint8), start, start, none, none, np.zeros(n_documents, np.uint8), 0, 0
    )
