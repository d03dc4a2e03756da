"""A collection as a source hands it over: plain rows in file order, not yet validated, numbered or sorted."""

from dataclasses import dataclass, field

MAX_GRADE = 10_000  # trec_eval makes a table of all grades up to the highest


@dataclass
class RawCollection:
    """Rows of one source, before validation.

    Attributes:
        documents: (id, title, text); the title is "" where the source has none.
        queries: (id, text).
        qrels: (query id, document id, grade).
        counts: what the source itself noticed while reading (e.g. judgments it dropped); goes to the manifest.
    """

    documents: list[tuple[str, str, str]]
    queries: list[tuple[str, str]]
    qrels: list[tuple[str, str, int]]
    counts: dict[str, int] = field(default_factory=dict)
