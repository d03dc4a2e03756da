"""Lists of engines as channels of `desa_ray.certified_search`: rankings in memory, SQLite's full
text search, pages of any client, and servers with search_after (method.md section 6.17).
"""

import json
import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from desa_ray.certified_proofs import SNAPSHOT
from desa_ray.errors import DesaError
from desa_ray.http_client import Bounds, session
from desa_ray.http_failures import Unanswered

Hits = Sequence[tuple[str, float]]
Fetch = Callable[[Any, int], "Page"]
Answer = TypeVar("Answer")
BODY_LIMIT = 32 << 20


@dataclass
class ListChannel:
    """A ranking in memory."""

    name: str
    ids: Sequence[str]
    approximate: bool = False
    at: int = 0

    def next(self, n: int) -> Sequence[str]:
        found = self.ids[self.at : self.at + n]
        self.at += len(found)
        return found

    def ranks(self, ids: Sequence[str]) -> Mapping[str, int]:
        wanted = set(ids)
        return {d: rank for rank, d in enumerate(self.ids, 1) if d in wanted}


@dataclass
class SqliteChannel:
    """A full text query on an FTS5 table, ordered by BM25, with ties broken by id.

    Attributes:
        connection: open; one read transaction sees one snapshot.
        table, column: the FTS5 table, and the column that holds ids.
        query: in FTS5's syntax.
    """

    name: str
    connection: sqlite3.Connection
    table: str
    column: str
    query: str
    approximate: bool = False
    at: int = 0
    _ranked: str = field(default="", repr=False)
    _scored: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        quoted = [f'"{part.replace(chr(34), chr(34) * 2)}"' for part in (self.table, self.column)]
        table, column = quoted
        document = f"CAST({column} AS TEXT)"
        self._ranked = (
            f"SELECT {document} AS id, row_number() OVER (ORDER BY bm25({table}), {document})"  # noqa: S608
            f" AS place FROM {table} WHERE {table} MATCH ?"
        )
        self._scored = (
            f"SELECT {document}, -bm25({table}) FROM {table} WHERE {table} MATCH ?"  # noqa: S608
            f" AND {document} IN (SELECT value FROM json_each(?))"
        )

    def _rows(self, rest: str, *values: object) -> list[tuple[str, int]]:
        return self._read(f"SELECT id, place FROM ({self._ranked}) {rest}", *values)  # noqa: S608

    def _read(self, statement: str, *values: object) -> list[Any]:
        try:
            rows = self.connection.execute(statement, (self.query, *values)).fetchall()
        except sqlite3.Error as error:
            hint = "check table, column and query"
            raise DesaError(f"SQLite error: {error}", where=self.name, hint=hint) from None
        if any(document is None for document, _ in rows):
            what = f"a row has no id in column {self.column!r}"
            raise DesaError(what, where=self.name, hint="give every row an id")
        return rows

    def next(self, n: int) -> Sequence[str]:
        rows = self._rows("WHERE place > ? ORDER BY place LIMIT ?", self.at, n)
        self.at += len(rows)
        return [document for document, _ in rows]

    def ranks(self, ids: Sequence[str]) -> Mapping[str, int]:
        wanted = "WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self._rows(wanted, json.dumps(list(ids))))

    def scores(self, ids: Sequence[str]) -> Mapping[str, float]:
        """BM25, of which SQLite itself gives the negative."""
        return dict(self._read(self._scored, json.dumps(list(ids))))


@dataclass(frozen=True)
class Page:
    """One page of an answer.

    Attributes:
        hits: ids and scores, best first.
        cursor: where the next page starts; passed to the next request.
        total: hits of the whole list; None where the engine does not count them exactly.
    """

    hits: Hits
    cursor: Any
    total: int | None = None


@dataclass
class PagedChannel:
    """Pages of any client: `fetch(cursor, n)` gives the n hits after a cursor, the first with None.

    Pages are checked: increasing scores, a repeated id, a total that changes, and a list that ends
    before its total are refused, as nothing can be proved about such a list. After a `TimeoutError`
    or `ConnectionError`, the request is repeated with the same cursor.
    """

    name: str
    fetch: Fetch
    approximate: bool = False
    attempts: int = 3
    cursor: Any = None
    seen: int = 0
    total: int | None = None
    no_ranks: str = "pages tell no ranks"
    last: float = math.inf
    held: list[str] = field(default_factory=list)
    over: bool = False

    def next(self, n: int) -> Sequence[str]:
        while len(self.held) < n and not self.over:
            self._page(n - len(self.held))
        found, self.held = self.held[:n], self.held[n:]
        return found

    def _page(self, n: int) -> None:
        page = self._asked(n)
        if page.total is not None and not (_is_number(page.total, int) and page.total >= 0):
            what = f"a total of {page.total!r} is not a count"
            raise DesaError(what, where=self.name, hint="give a whole number, or None")
        if self.seen and page.total != self.total:
            what = f"the total changes from {self.total} to {page.total} hits"
            raise DesaError(what, where=self.name, hint=SNAPSHOT)
        self.total = page.total
        for document, score in page.hits:
            named = isinstance(document, str) and document
            if not named or not _is_number(score, int | float) or math.isnan(score):
                what = f"{repr(document)[:80]} with score {repr(score)[:80]} is not a hit"
                raise DesaError(what, where=self.name, hint="give pairs of an id and a number")
            if score > self.last:
                what = f"document {document!r} has score {score}, after one with {self.last}"
                raise DesaError(what, where=self.name, hint=SNAPSHOT)
            self.last = score
            self.held.append(document)
        self.seen, self.cursor = self.seen + len(page.hits), page.cursor
        if self.total is not None and self.seen > self.total:
            what = f"more hits than its total of {self.total}"
            raise DesaError(what, where=self.name, hint=SNAPSHOT)
        if page.hits and (self.total is None or self.seen < self.total):
            return
        if self.total is not None and self.seen < self.total:
            what = f"the list ends after {self.seen} of {self.total} hits"
            raise DesaError(what, where=self.name, hint=SNAPSHOT)
        self.over = True

    def _asked(self, n: int) -> Page:
        for attempt in range(1, self.attempts + 1):
            try:
                return self.fetch(self.cursor, n)
            except (TimeoutError, ConnectionError) as error:
                if attempt == self.attempts:
                    what = f"no answer in {attempt} attempts: {error}"
                    raise DesaError(what, where=self.name, hint="check the engine") from None
        raise AssertionError("no attempts")


def _is_number(value: object, kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def search_after(
    name: str,
    url: str,
    query: Mapping[str, Any],
    *,
    tie: str,
    timeout_s: float = 30.0,
    approximate: bool = False,
    **body: Any,
) -> PagedChannel:
    """A query of Elasticsearch or OpenSearch, page by page with search_after.

    Args:
        url: of the search, such as `http://host:9200/index/_search`; with a point in time in `body`
            `http://host:9200/_search`.
        query: its `query`.
        tie: a field with a distinct value per document, which orders equal scores, such as a
            keyword id.
        body: further members of the request, such as `pit={"id": ..., "keep_alive": "1m"}`.
    """

    def fetch(cursor: Any, n: int) -> Page:
        asked: dict[str, Any] = {
            "size": n,
            "query": dict(query),
            "sort": [{"_score": "desc"}, {tie: "asc"}],
            "track_scores": True,
            "track_total_hits": True,
            "_source": False,
            **body,
        }
        if cursor is not None:
            asked["search_after"] = cursor
        found = _posted(name, url, asked, timeout_s)
        try:
            hits = found["hits"]["hits"]
            if found.get("timed_out"):
                raise TimeoutError("timed_out")
            if failed := found.get("_shards", {}).get("failed"):
                raise ConnectionError(f"{failed} shards failed, so hits are missing")
            total = found["hits"]["total"]
            exact = total["value"] if total.get("relation", "eq") == "eq" else None
            pairs = [(hit["_id"], float(hit["_score"])) for hit in hits]
            return Page(pairs, hits[-1]["sort"] if hits else cursor, exact)
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
            what = f"the answer is not a search response: {type(error).__name__} {error}"
            raise DesaError(what, where=name, hint="check the url and the index") from None

    return PagedChannel(name, fetch, approximate)


def _posted(name: str, url: str, body: Mapping[str, Any], timeout_s: float) -> Any:
    """The parsed answer to a POST; server errors and silence as ConnectionError."""
    try:
        with session(url, Bounds(timeout_s, body_bytes=BODY_LIMIT)) as server:
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            answer = server.post(url, json.dumps(body).encode(), headers=headers)
    except Unanswered as failure:
        raise ConnectionError(failure.what) from None
    if answer.status_code >= 500 or answer.status_code == 429:
        raise ConnectionError(f"the server answered {answer.status_code}")
    if answer.status_code >= 300:
        said = " ".join(answer.text.split())[:200]
        what = f"the server answered {answer.status_code}: {said}"
        raise DesaError(what, where=name, hint="check the url and the query")
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError):
        raise DesaError("the answer is not JSON", where=name, hint="check the url") from None
