"""From raw rows to a `Collection`, or all reasons why they are refused (method.md section 1),
reported together.

Refused are ids that cannot be told apart, stored or ordered, and judgments that refer to nothing.
Unusual content that retrieval copes with (empty texts, unjudged queries) are kept and counted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from desa_ray.data.raw import MAX_GRADE, RawCollection
from desa_ray.errors import DesaError
from desa_ray.lines import Findings, has_control, has_lone_surrogate, shown
from desa_ray.types import Collection

UNICODE = "write valid Unicode: half of a surrogate pair is not a character"
MAX_ID_BYTES = 32_766  # Lucene's longest term


def validated(
    raw: RawCollection, *, name: str, missing_relevant: str, findings: Findings
) -> Collection:
    """The collection of these rows: joined texts, UTF-8 order, judgments that the corpus can meet.

    Args:
        raw: rows as read; its documents are taken out of it, as they may be most of the memory.
        name: the data set's name.
        missing_relevant: what becomes of positive judgments of documents that the corpus lacks:
            `error`; `drop` leaves them out; `keep` keeps them, so that ideal gains and recall count
            them and a query that has no other one still counts.
        findings: what reading found wrong already; complaints of this function join it.

    Raises:
        Problems: everything in `findings`.
    """
    documents = _joined(raw)
    known_documents = _check_texts(f"{name} corpus", "document", documents, findings)
    frames, counts = beside(raw, known_documents, name, missing_relevant, findings)
    noticed = {"empty_documents": sum(not text.strip() for _, text in documents)}
    return Collection(name, _text_frame(documents), *frames, {**raw.counts, **counts, **noticed})


def beside(
    raw: RawCollection,
    known_documents: set[str],
    name: str,
    missing_relevant: str,
    findings: Findings,
) -> tuple[tuple[pl.DataFrame, pl.DataFrame], dict[str, int]]:
    """What a collection has beside its documents: the frames of queries and judgments, and counts.

    Args:
        known_documents: the ids of the corpus; those that are judged and the least one are enough.

    Raises:
        Problems: everything in `findings`.
    """
    known_queries = _check_texts(f"{name} queries", "query", raw.queries, findings)
    qrels, counts = _check_qrels(
        raw,
        name=name,
        missing_relevant=missing_relevant,
        documents=known_documents,
        queries=known_queries,
        findings=findings,
    )
    findings.raise_if_any()

    answered = {query for (query, _), grade in qrels.items() if grade > 0}
    counts |= {
        "empty_queries": sum(not text.strip() for _, text in raw.queries),
        "queries_without_positive": len(known_queries - answered),
    }
    judgments = sorted((query, document, grade) for (query, document), grade in qrels.items())
    frame = pl.DataFrame(
        judgments, {"query_id": pl.String, "doc_id": pl.String, "grade": pl.Int32}, orient="row"
    )
    return (_text_frame(raw.queries), frame), counts


def _joined(raw: RawCollection) -> list[tuple[str, str]]:
    """(id, text) of every document, the title before the text; each row leaves `raw` as it is
    joined.
    """
    rows = raw.documents
    documents: list[tuple[str, str]] = []
    rows.reverse()
    while rows:
        key, title, text = rows.pop()
        documents.append((key, f"{title} {text}" if title else text))
    return documents


def _text_frame(rows: list[tuple[str, str]]) -> pl.DataFrame:
    ordered = sorted(rows)  # by code points, which is the order of their UTF-8 bytes
    columns = {"id": [key for key, _ in ordered], "text": [text for _, text in ordered]}
    return pl.DataFrame(columns, {"id": pl.String, "text": pl.String})


def _check_texts(
    where: str, kind: str, rows: list[tuple[str, str]], findings: Findings
) -> set[str]:
    """Checks ids and texts of documents or queries; the set of ids."""
    times = Counter(key for key, _ in rows)
    faults = TextFaults(
        len(rows),
        sorted(key for key, n in times.items() if n > 1),
        times[""],
        [key for key in times if has_lone_surrogate(key)],
        [key for key in times if has_control(key)],
        [key for key in times if too_long(key)],
        [key for key, text in rows if has_lone_surrogate(text)],
    )
    faults.report(where, kind, findings)
    return set(times)


@dataclass(frozen=True)
class TextFaults:
    """What may be wrong with ids and texts: the number of rows, ids that are listed twice, how many
    are empty, those with a lone surrogate, with control characters, too long ones, and the ids of
    texts with a lone surrogate.
    """

    rows: int
    twice: Sequence[str]
    empty: int
    halves: Sequence[str]
    controls: Sequence[str]
    long: Sequence[str]
    broken: Sequence[str]

    def report(self, where: str, kind: str, findings: Findings) -> None:
        """Adds a finding for each kind of fault that there is."""
        if not self.rows:
            findings.add(DesaError("empty: no rows", where=where, hint=f"give at least one {kind}"))
        findings.items(where, f"duplicate {kind} ids", self.twice, hint="keep one row per id")
        if self.empty:
            what = f"empty {kind} ids ({self.empty})"
            findings.add(DesaError(what, where=where, hint=f"give every {kind} an id"))
        what = f"{kind} ids with a lone surrogate"
        findings.items(where, what, self.halves, hint=UNICODE)
        what, hint = f"{kind} ids with control characters", "write ids without them"
        findings.items(where, what, sorted(self.controls), hint=hint)
        what = f"{kind} ids over {MAX_ID_BYTES} bytes"
        findings.items(where, what, self.long, hint="use shorter ids")
        what = f"{kind} texts with a lone surrogate, of ids"
        findings.items(where, what, self.broken, hint=UNICODE)


def too_long(key: str) -> bool:
    """Whether an id is longer than Lucene's longest term."""
    return len(key) > MAX_ID_BYTES // 4 and len(key.encode(errors="surrogatepass")) > MAX_ID_BYTES


def _check_qrels(
    raw: RawCollection,
    *,
    name: str,
    missing_relevant: str,
    documents: set[str],
    queries: set[str],
    findings: Findings,
) -> tuple[dict[tuple[str, str], int], dict[str, int]]:
    """(query, document) -> grade, at least 0, for judgments of documents that the corpus holds, and
    positive ones of others where they are kept; and counts.
    """
    where = f"{name} qrels"
    qrels: dict[tuple[str, str], int] = {}
    contradictory: dict[tuple[str, str], None] = {}
    for query, document, grade in raw.qrels:
        effective = max(grade, 0)  # grades <= 0 count as 0
        if qrels.setdefault((query, document), effective) != effective:
            contradictory[query, document] = None
    findings.items(
        where, "judgments with contradictory grades", _pairs(contradictory), hint="keep one of them"
    )
    huge = [pair for pair, grade in qrels.items() if grade > MAX_GRADE]
    findings.items(
        where,
        f"grades above {MAX_GRADE}",
        _pairs(huge),
        hint="grade on a small scale, such as 0 to 3",
    )
    unknown = sorted({query for query, _ in qrels} - queries)
    hint = "are these the qrels of this collection? add the queries, or remove their judgments"
    findings.items(where, "judged queries that are not in the queries file", unknown, hint=hint)

    absent = {pair: grade for pair, grade in qrels.items() if pair[1] not in documents}
    missing = [pair for pair, grade in absent.items() if grade > 0]
    kept = {pair: grade for pair, grade in qrels.items() if pair not in absent}
    nothing = not any(grade > 0 for grade in kept.values())
    absent_kept = missing if missing_relevant == "keep" else []
    hint = _hint(raw, qrels, documents, nothing)
    if missing_relevant == "error":
        findings.items(
            where,
            "relevant documents that the corpus lacks (query/document)",
            _pairs(missing),
            hint=hint,
        )
    if nothing and not (missing and missing_relevant == "error"):
        what = "no positive judgment, so nothing could be evaluated"
        findings.add(
            DesaError(
                what,
                where=where,
                hint=hint if missing else "give relevant documents a grade of 1 or more",
            )
        )
    noticed = {"missing_relevant_kept": len(absent_kept)} if absent_kept else {}
    return kept | {pair: absent[pair] for pair in absent_kept}, noticed | {
        "missing_relevant_dropped": len(missing) - len(absent_kept),
        "missing_nonrelevant_dropped": len(absent) - len(missing),
        "duplicate_judgments": len(raw.qrels) - len(qrels),
        "negative_grades": sum(grade < 0 for _, _, grade in raw.qrels),
    }


def _hint(
    raw: RawCollection, qrels: Mapping[tuple[str, str], int], documents: set[str], nothing: bool
) -> str:
    """What to do about relevant documents that the corpus lacks; dropping them helps only where
    others are left.
    """
    judged = {document for _, document in qrels}
    if raw.broken:
        return "fix the corpus first: they may be in its broken lines"
    if judged and documents and judged.isdisjoint(documents):
        judgment, document = shown(min(judged)), shown(min(documents))
        examples = f"the judgments have ids like {judgment}, the corpus has {document}"
        return f"use the qrels of this corpus: {examples}"
    if nothing:
        return "complete the corpus"
    return (
        "complete the corpus, or set dataset.missing_relevant=drop to leave these judgments out,"
        " or keep to count them as never found"
    )


def _pairs(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{query}/{document}" for query, document in sorted(pairs)]
