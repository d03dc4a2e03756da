"""How large a stage is: what it counts, what its time grows with, and what its bytes grow with.

One rule serves plans and manifests alike: it takes the rows of the stage's inputs, which a plan works out and a
manifest remembers, so that a stage to come can be measured by one that was.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Params = Mapping[str, Any]
Rows = Mapping[str, int]  # role of an input -> its rows


@dataclass(frozen=True)
class Size:
    """`items` as people count them, `work` as time grows, `volume` as bytes grow."""

    items: int
    work: float
    volume: float


@dataclass(frozen=True)
class Kind:
    """What plans know about a kind of stage.

    Attributes:
        unit: what its items are.
        size: from parameters, rows of the inputs and, for texts, how many distinct ones there are.
        alike: two stages whose values here differ tell nothing about each other.
        near: what makes two stages of a kind closer, most important first.
    """

    unit: str
    size: Callable[[Params, Rows, int | None], Size]
    alike: Callable[[Params, Rows], Any]
    near: Callable[[Params], tuple[Any, ...]]


def _even(items: int) -> Size:
    return Size(items, items, items)


def _generation(params: Params, rows: Rows, distinct: int | None) -> Size:
    return Size(rows["queries"], rows["queries"] * params["count"], rows["queries"] * params["count"])


def _text_vectors(params: Params, rows: Rows, distinct: int | None) -> Size:
    return _even(rows["queries"] if distinct is None else distinct)


def _terms(params: Params, rows: Rows, distinct: int | None) -> Size:
    texts = rows["queries"] * (1 + params["texts"])
    return Size(rows["queries"], texts, texts)


def _ranking(params: Params, rows: Rows, distinct: int | None) -> Size:
    pairs = rows["queries"] * rows["vectors" if params["kind"] == "dense" else "postings"]
    return Size(rows["queries"], pairs, pairs)


def _prefix(params: Params, rows: Rows, distinct: int | None) -> Size:
    whole = _ranking(params, rows, distinct)
    return Size(whole.items, whole.work, min(whole.volume, whole.items * params["depth"]))


def _fusion(params: Params, rows: Rows, distinct: int | None) -> Size:
    queries, documents = rows["queries"], rows["corpus"]
    head = min(documents, params["run_depth"])
    return Size(queries, queries * documents * len(params["channels"]), queries * head)


def _engine(params: Params) -> Any:
    """What a generator is, below its model: engines differ in speed by orders of magnitude."""
    generator = params["generator"]
    return generator if isinstance(generator, str) else generator["kind"]


KINDS: Mapping[str, Kind] = {
    "generation": Kind(
        "queries", _generation, lambda p, r: _engine(p), lambda p: (p.get("generator"), p.get("prompt"))
    ),
    "vectors": Kind(
        "documents",
        lambda p, r, n: _even(r["corpus"]),
        lambda p, r: (p["encoder"]["backend"], sorted(r)),
        lambda p: (p.get("encoder"),),
    ),
    "snapshot_vectors": Kind("documents", lambda p, r, n: _even(r["corpus"]), lambda p, r: None, lambda p: ()),
    "text_vectors": Kind(
        "texts", _text_vectors, lambda p, r: p["encoder"]["backend"], lambda p: (p.get("encoder"), p.get("template"))
    ),
    "postings": Kind("documents", lambda p, r, n: _even(r["corpus"]), lambda p, r: None, lambda p: ()),
    "terms": Kind("queries", _terms, lambda p, r: None, lambda p: (p.get("template"),)),
    "ranking": Kind("queries", _ranking, lambda p, r: p["kind"], lambda p: (p.get("scoring"), p.get("operator"))),
    "prefix": Kind("queries", _prefix, lambda p, r: p["kind"], lambda p: (p.get("depth"), p.get("operator"))),
    "fusion": Kind(
        "queries",
        _fusion,
        lambda p, r: (p["fusion"], p.get("ranking")),
        lambda p: (len(p.get("channels", ())), p.get("weighting")),
    ),
}


def size_of(stage: str, params: Params, rows: Rows, distinct: int | None) -> Size | None:
    """The size of a stage; None for a kind without a rule, or parameters that another version of the code wrote."""
    try:
        return KINDS[stage].size(params, rows, distinct)
    except (KeyError, TypeError):
        return None


def alike(stage: str, params: Params, rows: Rows) -> Any:
    """Equal for two stages of which one tells something about the other."""
    try:
        return KINDS[stage].alike(params, rows)
    except (KeyError, TypeError):
        return object()  # equal to nothing else


def nearness(stage: str, params: Params) -> tuple[Any, ...]:
    """What two such stages should agree in, most important first."""
    return KINDS[stage].near(params)
