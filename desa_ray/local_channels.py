"""Lists of engines that run in the same process as channels of `desa_ray.certified_search`:
tantivy, Qdrant's client (local mode or a server) and Qdrant Edge (method.md section 6.17).

An engine is imported when its function is called; none is a dependency of this package.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from desa_ray.engine_channels import SNAPSHOT, Hits, Page, PagedChannel
from desa_ray.errors import DesaError

NUMBER, UUID = re.compile("0|[1-9][0-9]*"), re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Lookup = Callable[[Sequence[str]], Mapping[str, float]]
Answer = TypeVar("Answer")
NO_TANTIVY_RANKS = "tantivy counts no documents by score"
NO_QDRANT_RANKS = "Qdrant counts no points by score"


@dataclass
class ScoredChannel(PagedChannel):
    """Pages of an engine that also tells the scores of documents, but not their ranks.

    Attributes:
        lookup: scores of those of some ids that the whole list holds.
    """

    lookup: Lookup = field(kw_only=True)

    def scores(self, ids: Sequence[str]) -> Mapping[str, float]:
        return self.lookup(ids) if ids else {}


def tantivy_search(name: str, index: Any, query: Any, *, key: str = "id") -> ScoredChannel:
    """A query of a `tantivy.Index` by BM25, ties in the order of the index.

    Every page is read from the snapshot that the index shows now, and says how many documents match
    in all.

    Args:
        query: in the syntax of `index.parse_query`, or a `tantivy.Query`.
        key: the text field that holds ids, stored, with tokenizer `raw`.
    """
    from tantivy import Occur, Query

    own = "tantivy"
    asked = index.parse_query(query) if isinstance(query, str) else query
    searcher = _said(own, name, index.searcher)

    def hits(part: Any, limit: int, offset: int) -> tuple[list[tuple[str, float]], int]:
        found = _said(own, name, lambda: searcher.search(part, limit, offset=offset, count=True))
        pairs: list[tuple[str, float]] = []
        for score, address in found.hits:
            document = searcher.doc(address).get_first(key)
            if not isinstance(document, str):
                hint = f"store the ids as text in the field {key!r}, or name another with key="
                raise DesaError(f"a document has no text field {key!r}", where=name, hint=hint)
            pairs.append((document, float(score)))
        return pairs, int(found.count)

    def fetch(cursor: Any, n: int) -> Page:
        start = cursor or 0
        pairs, total = hits(asked, n, start)
        return Page(pairs, start + len(pairs), total)

    def lookup(ids: Sequence[str]) -> Mapping[str, float]:
        wanted = _said(own, name, lambda: Query.term_set_query(index.schema, key, list(ids)))
        unscored = Query.const_score_query(wanted, 0.0)
        both = Query.boolean_query([(Occur.Must, asked), (Occur.Must, unscored)])
        return dict(hits(both, len(ids), 0)[0])

    return ScoredChannel(name, fetch, lookup=lookup, no_ranks=NO_TANTIVY_RANKS)


@dataclass(frozen=True)
class QdrantList:
    """Which list of a Qdrant collection or shard.

    Attributes:
        query: a dense vector, or a sparse vector of the engine's own class.
        using: the vector's name; None for the one without a name.
        key: the payload field that holds ids; None for the ids of the points.
        condition: a filter of the engine's own class.
        exact: every vector is compared; else the index may leave out points.
        distances: scores are distances (Euclid, Manhattan), the smallest first.
    """

    query: Any
    using: str | None = None
    key: str | None = None
    condition: Any = None
    exact: bool = True
    distances: bool = False


def qdrant_search(name: str, client: Any, collection: str, own: QdrantList) -> ScoredChannel:
    """A list of a `qdrant_client.QdrantClient`, in local mode or of a server.

    Local mode ranks all points for every answer, and its scores of Cosine collections move by a
    last digit each time, so there the list is taken whole, once.
    """
    from qdrant_client import models
    from qdrant_client.http.exceptions import ResponseHandlingException

    options = client.init_options
    local = options.get("location") == ":memory:" or options.get("path") is not None
    params = None if local else models.SearchParams(exact=own.exact)  # local mode is exact

    def points(condition: Any, limit: int) -> Any:
        def call() -> Any:
            try:
                return client.query_points(
                    collection,
                    query=own.query,
                    using=own.using,
                    query_filter=condition,
                    search_params=params,
                    limit=limit,
                    with_payload=[own.key] if own.key else False,
                ).points
            except ResponseHandlingException as error:
                raise ConnectionError(str(error)) from None

        return _said("Qdrant", name, call)

    def among(ids: Sequence[str]) -> Any:
        chosen: Any = (
            models.FieldCondition(key=own.key, match=models.MatchAny(any=list(ids)))
            if own.key
            else models.HasIdCondition(has_id=[*_point_ids(ids)])
        )
        return models.Filter(must=[chosen, *([own.condition] if own.condition else [])])

    size = _said("Qdrant", name, lambda: client.count(collection).count) if local else 0
    return _grown(name, own, points, among, size)


def edge_search(name: str, shard: Any, own: QdrantList) -> ScoredChannel:
    """A list of a `qdrant_edge.EdgeShard`."""
    import qdrant_edge as edge

    def points(condition: Any, limit: int) -> Any:
        def call() -> Any:
            request = edge.QueryRequest(
                limit=limit,
                query=edge.Query.Nearest(own.query, using=own.using),
                filter=condition,
                params=edge.SearchParams(exact=own.exact),
                with_payload=[own.key] if own.key else False,
            )
            return shard.query(request)

        return _said("Qdrant Edge", name, call)

    def among(ids: Sequence[str]) -> Any:
        chosen: Any = (
            edge.FieldCondition(own.key, match=edge.MatchAny(list(ids)))
            if own.key
            else edge.HasIdCondition({*_point_ids(ids)})
        )
        return edge.Filter(must=[chosen, *([own.condition] if own.condition else [])])

    return _grown(name, own, points, among)


def _grown(
    name: str,
    own: QdrantList,
    points: Callable[[Any, int], Any],
    among: Callable[[Sequence[str]], Any],
    least: int = 0,
) -> ScoredChannel:
    """A list by score, ties by id, from answers whose limit grows.

    Qdrant orders equal scores as it pleases, and otherwise for another limit, so pages by offset
    repeat some points and leave out others. Here the last score of an answer is held back until an
    answer holds a lower one, or all points. No limit is below `least`.
    """
    sign = -1.0 if own.distances else 1.0

    def pairs(condition: Any, limit: int) -> list[tuple[str, float]]:
        found = points(condition, limit)
        return [(_document(name, point, own.key), sign * point.score) for point in found]

    def fetch(cursor: Any, n: int) -> Page:
        given, last, ended = cursor or (0, [], False)
        if ended:
            return Page([], cursor)
        limit = max(2 * given + n, least) + 1
        while True:
            found = pairs(own.condition, limit)
            whole = len(found) < limit
            closed = [hit for hit in found if whole or hit[1] > found[-1][1]]
            if whole or len(closed) >= given + n:
                ordered = _agreeing(name, closed, given, last)
                return Page(ordered[given:], (len(ordered), ordered[-1:], whole))
            limit *= 2

    def lookup(ids: Sequence[str]) -> Mapping[str, float]:
        return dict(pairs(among(ids), len(ids)))

    return ScoredChannel(
        name, fetch, approximate=not own.exact, lookup=lookup, no_ranks=NO_QDRANT_RANKS
    )


def _agreeing(name: str, hits: Hits, given: int, last: Hits) -> Hits:
    """The hits in order, if the last hit given before has its rank still."""
    ordered = sorted(hits, key=_place)
    if last and ordered[given - 1 : given] != list(last):
        what = f"document {last[0][0]!r} had rank {given}, and has another now"
        hint = f"{SNAPSHOT}; of an approximate index, take one answer as a ListChannel"
        raise DesaError(what, where=name, hint=hint)
    return ordered


def _place(hit: tuple[str, float]) -> tuple[float, str]:
    return -hit[1], hit[0]


def _document(name: str, point: Any, key: str | None) -> str:
    if key is None:
        return str(point.id)
    document = (point.payload or {}).get(key)
    if not isinstance(document, str):
        hint = "name a payload field that holds ids as text with key="
        raise DesaError(f"point {point.id!r} has no text {key!r}", where=name, hint=hint)
    return document


def _point_ids(ids: Sequence[str]) -> list[int | str]:
    """Those of the ids that a point can have: whole numbers and UUIDs."""
    found: list[int | str] = []
    for document in ids:
        if NUMBER.fullmatch(document):
            found.append(int(document))
        elif UUID.fullmatch(document):
            found.append(document)
    return found


def _said(engine: str, name: str, call: Callable[[], Answer]) -> Answer:
    """The engine's answer; its errors in one line."""
    try:
        return call()
    except (ConnectionError, TimeoutError):
        raise
    except Exception as error:
        hint = "check the query, the collection and the names of its fields"
        raise DesaError(f"{engine} says {error}", where=name, hint=hint) from None
