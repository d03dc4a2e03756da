"""DESA on Ray: query expansion for hybrid retrieval, with complete rankings, exact fusion and
certification depths.

`fuse` and `fuse_rule` are for rankings of your own; `plan`, `run` and `load_records` do in a
notebook what the `desa` command does on the command line.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, overload

from desa_ray.errors import DesaError

if TYPE_CHECKING:
    from desa_ray.certified import Certified, certified_search
    from desa_ray.notebook import plan, run
    from desa_ray.report.load import load_records
    from desa_ray.rules import RuleFused, fuse_rule

__all__ = [
    "Certified",
    "DesaError",
    "Fused",
    "RuleFused",
    "__version__",
    "certified_search",
    "fuse",
    "fuse_rule",
    "load_records",
    "plan",
    "run",
]

# Loaded when first asked for: polars and what reads records are no part of `import desa_ray`.
LATER = {
    "Certified": "desa_ray.certified",
    "certified_search": "desa_ray.certified",
    "RuleFused": "desa_ray.rules",
    "fuse_rule": "desa_ray.rules",
    "load_records": "desa_ray.report.load",
    "plan": "desa_ray.notebook",
    "run": "desa_ray.notebook",
}

try:
    __version__ = version("desa-ray")
except PackageNotFoundError:  # a source tree that nobody installed
    __version__ = "0+unknown"


@dataclass(frozen=True)
class Fused:
    """A fused ranking, and how deep its channels must be read to prove it.

    Attributes:
        documents: the ordered top k, min(k, number of different documents) ids.
        scores: F of each, exact.
        depths: for every channel, how many items must be read to prove the ordered top k.
        exhausted: for every channel, whether the depth is the whole channel; true for an empty
            channel.
        steps: the sum of the depths.
    """

    documents: tuple[str, ...]
    scores: tuple[Fraction, ...]
    depths: tuple[int, ...]
    exhausted: tuple[bool, ...]
    steps: int


@overload
def fuse(
    channels: Sequence[Sequence[str] | Mapping[str, float]],
    *,
    weights: Sequence[int | str | float | Fraction] | None = None,
    kappa: int | str | float | Fraction = 60,
    k: int = 20,
) -> Fused: ...


@overload
def fuse(
    channels: Sequence[Any],
    *,
    weights: Sequence[int | str | float | Fraction] | None = None,
    kappa: int | str | float | Fraction = 60,
    k: int = 20,
) -> Any: ...


def fuse(
    channels: Sequence[Any],
    *,
    weights: Sequence[int | str | float | Fraction] | None = None,
    kappa: int | str | float | Fraction = 60,
    k: int = 20,
) -> Fused | dict[str, Fused]:
    """Weighted reciprocal rank fusion, F(d) = sum of w_c / (kappa + rank_c(d)), and its
    certification depths.

    Everything is compared exactly; equal scores are ordered by the UTF-8 bytes of the ids. The
    depths are those of the replay that always reads the channel with the largest possible next
    contribution (of equal ones, the first) and stops as soon as no unread item could change the
    ordered top k.

    Args:
        channels: rankings of one query: lists of document ids, best first; dicts from ids to
            scores, or pandas or polars frames with columns doc_id (or docno) and score, which are
            ordered by score descending, with ties broken by id (a frame without scores by its
            column rank). A ranking may be empty. Or runs of many queries: paths of TREC runs, ranx
            Runs, frames that also have a column query_id (or qid), dicts from query ids to
            rankings. Collections without an order (a set, the keys of a dict) are refused.
        weights: one per channel, exact: ints, Fractions or strings such as "1/4" (a float counts as
            its shortest decimal form); by default 1 each. A channel of weight 0 counts as absent:
            its depth is 0, and documents that only it contains are left out.
        kappa: above -1, exact in the same way.
        k: how many documents; 0 gives none.

    Returns:
        A `Fused`; for runs, a dict from query ids (in order of first occurrence) to `Fused`. If a
        run lacks a query, its channel is empty for that query.

    Raises:
        DesaError: no channel or none of positive weight, a number out of range, an id that is
            listed twice in a channel, that is not a string or has no UTF-8 form, a channel without
            an order, a score that is not a finite number, a run together with a ranking of one
            query, a frame without the columns, a TREC run that cannot be read.
    """
    from desa_ray.channels import plain_channels, rankings

    if isinstance(channels, str | bytes | Mapping | Set | Iterator):
        what = f"channels in a {type(channels).__name__} have no order"
        raise DesaError(what, where="channels", hint="give a list of channels")
    channels = _listed(channels, "channels", "give a list of channels")
    if weights is not None:
        weights = _listed(weights, "weights", "give one weight per channel")
    plain = plain_channels(channels)
    if plain is not None:
        return _fused(plain, weights, kappa, k)
    runs = [rankings(run, f"channel {number}") for number, run in enumerate(channels)]
    queries = dict.fromkeys(query for run in runs for query in run)
    fused: dict[str, Fused] = {}
    for query in queries:
        try:
            fused[query] = _fused([run.get(query, ()) for run in runs], weights, kappa, k)
        except DesaError as error:
            if not error.where.startswith("channel "):  # the numbers, not this query's rankings
                raise
            where = f"{error.where}, query {query!r}"
            raise DesaError(error.what, where=where, hint=error.hint) from None
    return fused


def _fused(
    channels: list[Any],
    weights: list[Any] | None,
    kappa: int | str | float | Fraction,
    k: int,
) -> Fused:
    """`fuse` of one query's lists and dicts."""
    from desa_ray.core.fusion.depth import replay
    from desa_ray.core.fusion.rrf import exact_score, rank_matrix
    from desa_ray.core.fusion_constants import checked_kappa, checked_weights
    from desa_ray.core.identifiers import numbered, whole_number

    given = [1] * len(channels) if weights is None else weights
    exact = checked_weights(given, len(channels), zero=True)
    used = [c for c, weight in enumerate(exact) if weight > 0]
    if not used:
        what = "no channel has a positive weight" if channels else "there are no channels"
        raise DesaError(
            what, where="channels", hint="give at least one channel with a positive weight"
        )
    exact_kappa = checked_kappa(kappa)
    k = whole_number(k, "k", 0)
    ids, lists = numbered(channels)
    lists, kept = [lists[c] for c in used], [exact[c] for c in used]
    result = replay(lists, kept, exact_kappa, k)
    ranks_NC = rank_matrix(lists)
    depths, exhausted = [0] * len(channels), [len(channel) == 0 for channel in channels]
    for c, depth, at_end in zip(used, result.depths, result.exhausted, strict=True):
        depths[c], exhausted[c] = depth, at_end
    return Fused(
        documents=tuple(ids[number] for number in result.topk),
        scores=tuple(
            exact_score(ranks_NC[number].tolist(), kept, exact_kappa) for number in result.topk
        ),
        depths=tuple(depths),
        exhausted=tuple(exhausted),
        steps=result.steps,
    )


def _listed(values: object, name: str, hint: str) -> list:
    """Values in their order as a list; raises DesaError for values without an order and for a
    single string.
    """
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping | Set):
        raise DesaError(f"{repr(values)[:80]} is not a list", where=name, hint=hint)
    return list(values)


def __getattr__(name: str):
    if name in LATER:
        return getattr(import_module(LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
