"""Postings from analysed terms, without an index: terms of many documents counted, inverted and
kept as Lucene would keep them (method.md section 4).

Asking Lucene's index for its lists takes a call per term and per document from Python. A batch of
documents is analysed in one call instead, as one text with marks in between, and counted here.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from desa_ray.engines.postings import Postings

BETWEEN = ", "  # of the elements of a Java list, when it is written as a text
CUT = re.compile(r"[ \n](?=[A-Za-z0-9])")  # where a long text may be cut: marks of accents stay
FREE_LENGTHS = 24  # the lengths below are a byte of their own in Lucene's form


class _Ids(dict[str, int]):
    """Term -> number; terms get numbers as they are looked up."""

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number


class TermCounts:
    """The postings of documents that come in batches, in the order of their numbers."""

    def __init__(self) -> None:
        self._ids = _Ids()
        self._terms: list[np.ndarray] = []
        self._docs: list[np.ndarray] = []
        self._freqs: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = []
        self._documents = 0

    def add(self, terms: str, mark: str, documents: int) -> bool:
        """Counts a batch; false, and counts nothing, where it has another number of marks.

        Args:
            terms: all terms in order, `BETWEEN` two of them, with one `mark` between documents.
            documents: how many documents these are.
        """
        words = terms.split(BETWEEN) if terms else []
        ids = np.fromiter(map(self._ids.__getitem__, words), np.int64, len(words))
        marks = ids == self._ids[mark]
        if np.count_nonzero(marks) != documents - 1:
            return False
        own = ~marks
        numbers = np.cumsum(marks)[own]
        pairs, freqs = np.unique(numbers << 32 | ids[own], return_counts=True)
        self._terms.append((pairs & 0xFFFFFFFF).astype(np.int32))
        self._docs.append((pairs >> 32).astype(np.int32) + np.int32(self._documents))
        self._freqs.append(freqs.astype(np.int32))
        self._lengths.append(np.bincount(numbers, minlength=documents))
        self._documents += documents
        return True

    def add_document(self, terms: Sequence[str], freqs: np.ndarray) -> None:
        """Counts one document: its distinct terms, and how often it has each."""
        ids = np.fromiter(map(self._ids.__getitem__, terms), np.int32, len(terms))
        self._terms.append(ids)
        self._docs.append(np.full(len(terms), self._documents, np.int32))
        self._freqs.append(freqs.astype(np.int32))
        self._lengths.append(np.array([freqs.sum()], np.int64))
        self._documents += 1

    def postings(self) -> Postings:
        """The postings of all documents so far; what was counted goes into them."""
        found = _joined(self._terms)
        # Marks have numbers, too, and no occurrences unless a document has such a term
        held = np.bincount(found, minlength=len(self._ids)) > 0
        # By code points, which is the order of their UTF-8 bytes
        names = sorted(name for name, number in self._ids.items() if held[number])
        rank = np.zeros(len(self._ids), np.int32)
        rank[[self._ids[name] for name in names]] = np.arange(len(names), dtype=np.int32)
        terms = rank[found]
        order = _stable_order(terms)  # documents ascend already
        lengths = _joined(self._lengths, np.int64)
        encoded = [name.encode() for name in names]
        return Postings(
            terms=np.frombuffer(b"".join(encoded), np.uint8),
            term_offsets=_starts([len(name) for name in encoded]),
            indptr=_starts(np.bincount(terms, minlength=len(names))),
            docs=_joined(self._docs)[order],
            freqs=_joined(self._freqs)[order],
            norms=byte_lengths(lengths),
            doc_count=int((lengths > 0).sum()),
            sum_total_term_freq=int(lengths.sum()),
        )


def _stable_order(terms: np.ndarray) -> np.ndarray:
    """As numpy's stable argsort, which is a radix sort for numbers of 16 bits only."""
    order = np.argsort((terms & 0xFFFF).astype(np.uint16), kind="stable")
    return order[np.argsort((terms >> 16).astype(np.uint16)[order], kind="stable")]


def byte_lengths(lengths: np.ndarray) -> np.ndarray:
    """uint8: lengths below 2^31 as Lucene keeps them (`SmallFloat.intToByte4`): exact up to 39,
    then with four significant bits.
    """
    above = lengths.astype(np.int64) - FREE_LENGTHS
    bits = np.frexp(np.maximum(above, 1).astype(np.float64))[1]
    shift = np.maximum(bits - 4, 0)
    mantissa = np.maximum(above, 0) >> shift
    packed = np.where(bits < 4, mantissa, (mantissa & 7) | ((shift + 1) << 3))
    return np.where(above < 0, lengths, FREE_LENGTHS + packed).astype(np.uint8)


def _joined(arrays: list[np.ndarray], dtype: type = np.int32) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype), *arrays]).astype(dtype, copy=False)


def _starts(sizes: np.ndarray | list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def pieces(text: str, size: int) -> Iterator[str]:
    """A text in pieces, which have its tokens: each `size` characters and those up to the next cut,
    the last one up to twice as many.
    """
    start = 0
    while len(text) - start > 2 * size:
        found = CUT.search(text, start + size)
        if found is None:
            break
        yield text[start : found.start()]
        start = found.end()
    yield text[start:]


def is_uncut(text: str, longest: int) -> bool:
    """Whether more than `longest` characters of a text stand between two places to cut it."""
    if len(text) <= longest:
        return False
    cuts = [0, *(found.start() for found in CUT.finditer(text)), len(text)]
    return bool((np.diff(cuts) > longest).any())


def joined_documents(texts: Iterable[str], size: int, longest: int) -> Iterator[list[str]]:
    """Documents of about `size` characters together, at least one; one that `is_uncut` alone."""
    batch: list[str] = []
    total = 0
    for text in texts:
        alone = is_uncut(text, longest)
        if alone and batch:
            yield batch
            batch, total = [], 0
        batch.append(text)
        total += len(text)
        if alone or total >= size:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
