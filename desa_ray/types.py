"""Plain types shared by every package: what a collection is, and how logical rows are hashed.

Documents are numbered 0..N-1 in the order of the UTF-8 bytes of their ids (method.md section 1);
from the moment a `Collection` exists a document *is* its number, and "ties by identifier" is an
integer comparison.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from json.encoder import encode_basestring

import polars as pl


def canonical_json(value: object) -> str:
    """JSON with sorted keys, no blanks, UTF-8 text; refuses NaN and anything that is not plain
    data.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_json(value: object) -> str:
    """Hex SHA-256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def rows_hash(rows: Iterable[object]) -> str:
    """Hex SHA-256 over logical rows in order, each as canonical JSON behind its byte length."""
    digest = RowsDigest()
    digest.update(map(canonical_json, rows))
    return digest.hexdigest()


class RowsDigest:
    """`rows_hash` of rows that come in pieces."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, rows: Iterable[str]) -> None:
        """Append rows, as canonical JSON."""
        for row in rows:
            data = row.encode()
            self._hash.update(len(data).to_bytes(8, "big"))
            self._hash.update(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def text_json(key: str, text: str) -> str:
    """`canonical_json` of an id and a text, faster."""
    return f"[{encode_basestring(key)},{encode_basestring(text)}]"


@dataclass(frozen=True)
class Collection:
    """A validated corpus with its queries and relevance judgments.

    Attributes:
        name: the data set's name, as records hold it.
        documents: columns `id` (String), `text` (String: title and text as both channels see it),
            one row per document number, in UTF-8 order of the ids.
        queries: columns `id`, `text` (String), in UTF-8 order of the ids.
        qrels: columns `query_id`, `doc_id` (String), `grade` (Int32), sorted by the UTF-8 order of
            both ids; only judgments of documents that the corpus holds.
        counts: what validation noticed (`missing_relevant_dropped`, `empty_documents`,
            `empty_queries`, `queries_without_positive`, ...); goes to the manifest and the log.
    """

    name: str
    documents: pl.DataFrame
    queries: pl.DataFrame
    qrels: pl.DataFrame
    counts: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def corpus_hash(self) -> str:
        return rows_hash(self.documents.select("id", "text").iter_rows())

    @cached_property
    def queries_hash(self) -> str:
        return rows_hash(self.queries.select("id", "text").iter_rows())

    @cached_property
    def qrels_hash(self) -> str:
        return rows_hash(self.qrels.select("query_id", "doc_id", "grade").iter_rows())
