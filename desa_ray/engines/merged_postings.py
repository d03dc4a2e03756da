"""Ranges of documents merged into the terms, statistics and content hash of one index.

The content hash is that of a single index over the same documents, so that it depends on the corpus
and its analysis and not on the ranges. What grows with the vocabulary lies in files that are mapped
into memory, and lists are read block by block: memory depends on neither the documents nor their
terms.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from desa_ray.engines.postings import POSTING_ARRAYS, Postings
from desa_ray.engines.ranged_postings import CorpusStatistics, places_of, words
from desa_ray.store.content import OLDEST

STEP_TERMS = 1 << 20  # terms of all ranges that are sorted at once
BLOCK = 1 << 22  # postings that are hashed at once


@dataclass(frozen=True)
class MergedPostings:
    """Ranges as one index.

    Attributes:
        statistics: of all ranges; its arrays are mapped.
        lists: int32 [L, 2], range and place there of each range's list of each term, in the order
            of one index: by term, then by range.
        ranges: the number of its first document, and the postings, of each range.
    """

    statistics: CorpusStatistics
    lists: NDArray[np.int32]
    ranges: Sequence[tuple[int, Postings]]

    def arrays(self) -> dict[str, np.ndarray]:
        """What one index would say of its terms and of the whole corpus, as named arrays."""
        own = self.statistics
        counts = np.array([own.doc_count, own.sum_total_term_freq], np.int64)
        return {
            "terms": own.terms,
            "term_offsets": own.term_offsets,
            "indptr": own.indptr,
            "statistics": counts,
        }

    def content_hash(self) -> str:
        """`Postings.content_hash` of one index over all documents."""
        known, digest = self.arrays(), hashlib.sha256()
        postings = int(known["indptr"][-1])
        sizes = {name: len(array) for name, array in known.items()}
        sizes |= {"docs": postings, "freqs": postings}
        sizes["norms"] = sum(part.n_documents for _, part in self.ranges)
        for name, dtype in POSTING_ARRAYS.items():
            digest.update(f"{name} {np.dtype(dtype).str[1:]} {sizes[name]}\n".encode())
            for block in self._blocks(name, known):
                digest.update(block.astype(block.dtype.newbyteorder("<"), copy=False).data)
        return digest.hexdigest()

    def _blocks(self, name: str, known: dict[str, np.ndarray]) -> Iterator[np.ndarray]:
        """An array of one index, piece by piece."""
        if name in known:
            whole = known[name]
            for start in range(0, len(whole), BLOCK):
                yield np.ascontiguousarray(whole[start : start + BLOCK])
        elif name == "norms":
            for _, part in self.ranges:
                yield part.norms
        else:
            yield from self._gathered(name)

    def _gathered(self, name: str) -> Iterator[np.ndarray]:
        """Documents or frequencies, term after term and within a term range after range."""
        for first in range(0, len(self.lists), BLOCK >> 4):
            lists = np.asarray(self.lists[first : first + (BLOCK >> 4)])
            sizes = self._sizes(lists)
            ends = np.cumsum(sizes)
            begin = 0
            while begin < len(lists):
                before = int(ends[begin - 1]) if begin else 0
                end = max(begin + 1, int(np.searchsorted(ends, before + BLOCK, side="right")))
                yield self._values(name, lists[begin:end], sizes[begin:end])
                begin = end

    def _sizes(self, lists: NDArray[np.int32]) -> NDArray[np.int64]:
        found = np.empty(len(lists), np.int64)
        for number in np.unique(lists[:, 0]):
            own = lists[:, 0] == number
            indptr, places = self.ranges[number][1].indptr, lists[own, 1]
            found[own] = indptr[places + 1] - indptr[places]
        return found

    def _values(
        self, name: str, lists: NDArray[np.int32], sizes: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """The values of some lists, one list after another."""
        found = np.empty(int(sizes.sum()), np.int32)
        targets = np.cumsum(sizes) - sizes
        for number in np.unique(lists[:, 0]):
            own = lists[:, 0] == number
            first, part = self.ranges[number]
            lengths = sizes[own]
            within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            source = np.repeat(part.indptr[lists[own, 1]], lengths) + within
            values = getattr(part, name)[source]
            if name == "docs":
                values = values + np.int32(first)
            found[np.repeat(targets[own], lengths) + within] = values
        return found


def merge_ranges(parts: Sequence[Postings], folder: Path) -> MergedPostings:
    """Merges the postings of one or more consecutive ranges.

    Args:
        folder: an existing empty folder for files of terms, which must outlive the result.
    """
    ends = np.cumsum([part.n_documents for part in parts]).tolist()
    ranges = list(zip([0, *ends[:-1]], parts, strict=True))
    names = ("terms", "lengths", "sizes", "lists")
    files = {name: (folder / name).open("wb") for name in names}
    try:
        for block in _merged_terms(parts):
            for name, values in zip(names, block, strict=True):
                files[name].write(values.tobytes())
    finally:
        for file in files.values():
            file.close()
    statistics = CorpusStatistics(
        _mapped(folder / "terms", np.uint8),
        _running(folder / "lengths", folder / "term_offsets"),
        _running(folder / "sizes", folder / "indptr"),
        sum(part.doc_count for part in parts),
        sum(part.sum_total_term_freq for part in parts),
    )
    return MergedPostings(statistics, _mapped(folder / "lists", np.int32).reshape(-1, 2), ranges)


def _merged_terms(parts: Sequence[Postings]) -> Iterator[tuple[np.ndarray, ...]]:
    """Block by block: the terms' bytes, their lengths, in how many documents they are, and `lists`
    of `MergedPostings`.
    """
    largest = max(parts, key=lambda part: part.n_terms)
    step = max(1, STEP_TERMS // len(parts))
    limits = [largest.term(place) for place in range(step, largest.n_terms, step)]
    begins = [0] * len(parts)
    for limit in [*limits, None]:
        frames: list[pl.DataFrame] = []
        for number, part in enumerate(parts):
            end = part.n_terms
            if limit is not None:
                place = int(places_of(words([limit]), part.terms, part.term_offsets)[0])
                end = place if place >= 0 else -1 - place
            frames.append(_terms(number, part, begins[number], end))
            begins[number] = end
        yield _sorted(pl.concat(frames))


def _terms(number: int, part: Postings, start: int, stop: int) -> pl.DataFrame:
    """Some terms of a range: their words, the range, their places and the sizes of their lists."""
    buffers = pa.py_buffer(part.term_offsets[start : stop + 1]), pa.py_buffer(part.terms)
    terms: Any = pa.LargeStringArray.from_buffers(stop - start, *buffers)
    return pl.DataFrame(
        {
            "term": pl.Series(terms, dtype=pl.String),
            "range": pl.repeat(number, stop - start, dtype=pl.Int32, eager=True),
            "place": np.arange(start, stop, dtype=np.int32),
            "size": np.diff(part.indptr[start : stop + 1]),
        }
    )


def _sorted(frame: pl.DataFrame) -> tuple[np.ndarray, ...]:
    frame = frame.sort("term", "range")
    new = (frame["term"] != frame["term"].shift(1)).fill_null(value=True).to_numpy()
    begins = np.flatnonzero(new)
    terms: Any = cast(Any, frame["term"].filter(pl.Series(new))).to_arrow(compat_level=OLDEST)
    if not begins.size:
        none = np.empty(0, np.int64)
        return np.empty(0, np.uint8), none, none, np.empty((0, 2), np.int32)
    offsets = np.frombuffer(terms.buffers()[1], np.int64)[terms.offset :][: begins.size + 1]
    letters = np.frombuffer(terms.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    sizes = np.add.reduceat(frame["size"].to_numpy(), begins)
    lists = np.column_stack([frame["range"].to_numpy(), frame["place"].to_numpy()])
    return letters, np.diff(offsets), sizes, lists.astype(np.int32)


def _running(sizes: Path, target: Path) -> NDArray[np.int64]:
    """int64 [n + 1], mapped: the sums of the first 0, 1, ... n of the int64 in a file."""
    numbers, total = _mapped(sizes, np.int64), 0
    with target.open("wb") as out:
        out.write(np.zeros(1, np.int64).tobytes())
        for start in range(0, len(numbers), BLOCK):
            sums = total + np.cumsum(numbers[start : start + BLOCK])
            total = int(sums[-1])
            out.write(sums.tobytes())
    return _mapped(target, np.int64)


def _mapped(path: Path, dtype: Any) -> np.ndarray:
    """The numbers of a file, mapped; a file without any cannot be."""
    if not path.stat().st_size:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, "r"))
