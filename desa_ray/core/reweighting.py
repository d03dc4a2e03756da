"""Term reweighting: an expanded query whose terms have different weights, made after analysis.

A bag of words expresses whole weights by repetition, which is how BM25 is given them here.
"""

from collections import Counter
from collections.abc import Callable, Sequence

Terms = list[str]


def word2passage(query: Terms, references: Sequence[Terms]) -> Terms:
    """Word2Passage-style weights: what several references agree on counts more (Choi et al. 2025;
    our reading).

    As in the authors' code: a term's weight is importance times frequency, summed over the
    references; stopwords are out (the analyser drops them); the query is repeated round(sum of
    these weights / query length) times. Not as there: they ask the model for words, a sentence and
    a passage, and give each level an importance tuned on a grid by data set and query type, times a
    factor for document length. Shared references have one level, and nothing here is tuned, so the
    importance of a term is the number of references that hold it; and the query occurs at
    least once.

    Args:
        query: its analysed terms.
        references: the analysed terms of each reference.
    """
    frequency = Counter(term for reference in references for term in reference)
    holders = Counter(term for reference in references for term in set(reference))
    weights = {term: holders[term] * count for term, count in frequency.items()}
    copies = max(1, round(sum(weights.values()) / len(query))) if query else 0
    return query * copies + [term for term, weight in weights.items() for _ in range(weight)]


# Sparse sources made of analysed terms: the query's, and each reference's.
SPARSE_TERMS: dict[str, Callable[[Terms, Sequence[Terms]], Terms]] = {"word2passage": word2passage}
