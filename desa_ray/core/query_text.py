"""Text templates: what encoder and BM25 are given, made from a query and its references (method.md
sections 2 to 4).

The names are those that `DENSE_OPERATORS` and `SPARSE_OPERATORS` ask for.
"""

from collections.abc import Callable, Sequence

QUERY2DOC_COPIES = 5
MUGI_BETA = 4

# A dense source is a list of texts, one vector each: one for the query itself, else one a
# reference.
DENSE_TEXTS: dict[str, Callable[[str, Sequence[str]], list[str]]] = {
    "query": lambda query, references: [query],
    "query_reference": lambda query, references: [
        f"{query} [SEP] {reference}" for reference in references
    ],
    "reference": lambda query, references: list(references),
    "rewrite": lambda query, references: list(references),
}
# Dense sources encoded as documents are, without the encoder's query prefix
AS_DOCUMENT = frozenset({"reference"})


def mugi_repeats(query: str, references: Sequence[str]) -> int:
    """Copies of the query that MuGI puts before its references: floor(sum |r| / (|q| beta)), in
    code points.

    An empty query gives 0; so do references that are short compared with the query.
    """
    return sum(map(len, references)) // (len(query) * MUGI_BETA) if query else 0


def _joined(copies: int, query: str, references: Sequence[str]) -> str:
    return " ".join([query] * copies + list(references))


def _mugi(query: str, references: Sequence[str], min_repeats: int = 0) -> str:
    return _joined(max(mugi_repeats(query, references), min_repeats), query, references)


def _query(query: str, references: Sequence[str]) -> str:
    return query


def _repeated(copies: int) -> Callable[[str, Sequence[str]], str]:
    return lambda query, references: _joined(copies, query, references)


# A sparse source is one bag-of-words query; `desa_ray.core.reweighting` has those made of terms
# instead of text.
SPARSE_TEXTS: dict[str, Callable[..., str]] = {
    "query": _query,
    "expanded": _repeated(1),
    "references": _repeated(0),
    "query2doc": _repeated(QUERY2DOC_COPIES),
    "mugi": _mugi,
}
# Operator options that are the template's
TEXT_OPTIONS: dict[str, tuple[str, ...]] = {"mugi": ("min_repeats",)}
