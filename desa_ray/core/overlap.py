"""Overlap of generated text with documents: how much the model may have seen before (method.md
section 10.5).

Texts are compared as sequences of words: runs of letters and digits, case folded.
"""

import re
from collections.abc import Sequence

SIZES = (8, 13)  # words of an n-gram; 13 as Brown et al. 2020 filter their training data
WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The words of a text in their order."""
    return WORD.findall(text.casefold())


def ngrams(text: Sequence[str], size: int) -> set[tuple[str, ...]]:
    """All runs of `size` words; none where the text is shorter."""
    return {tuple(text[start : start + size]) for start in range(len(text) - size + 1)}


class Documents:
    """The relevant documents of one query, for any number of texts."""

    def __init__(self, texts: Sequence[str]):
        own = [words(text) for text in texts]
        self._grams: dict[int, set[tuple[str, ...]]] = {size: set() for size in SIZES}
        for size, grams in self._grams.items():
            for text in own:
                grams |= ngrams(text, size)
        self._whole = [f" {' '.join(text)} " for text in own]

    def shared(self, texts: Sequence[str]) -> dict[str, bool]:
        """Whether a document contains any of the texts word for word (`exact`), or shares 8 or 13
        consecutive words with one (`8`, `13`). A text without words has no overlap.
        """
        own = [words(text) for text in texts]
        phrases = [f" {' '.join(text)} " for text in own if text]
        found = {"exact": any(p in document for p in phrases for document in self._whole)}
        for size, grams in self._grams.items():
            found[str(size)] = any(not grams.isdisjoint(ngrams(text, size)) for text in own)
        return found
