"""How deep must each list be read? Tables and a figure about the user's own runs (method.md section
6.11).

The truth about a query is the ordered top K of its runs where they prove it against anything that
may follow their last documents; a query whose runs end too early has none, and shares are printed
as [low, high]: with all such queries counted as wrong, and as right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from math import sqrt

import numpy as np
import polars as pl
from numpy.typing import NDArray

from desa_ray.core.evaluation import evaluate
from desa_ray.core.fusion.shards import shard_window
from desa_ray.core.fusion.windows import certified_window, cut_tops, window
from desa_ray.core.identifiers import numbered
from desa_ray.report.figures import Figure
from desa_ray.report.svg import Scale, Svg
from desa_ray.report.table import Column, Row, Table, Value

WINDOWS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
SHARES = (0.95, 0.99)
Z = 1.959963984540054  # of a two-sided 95 % interval
Numbered = tuple[list[str], list[NDArray[np.int32]]]


@dataclass(frozen=True)
class Case:
    """One fusion: kappa, the weights of the runs, and how many documents are wanted."""

    kappa: Fraction
    weights: tuple[Fraction, ...]
    k: int

    def __str__(self) -> str:
        equal = len(set(self.weights)) == 1
        weights = "" if equal else f", weights {':'.join(map(str, self.weights))}"
        return f"top {self.k}, kappa {self.kappa}{weights}"


@dataclass(frozen=True)
class Advice:
    """What cutting every list at a window does, query by query.

    Attributes:
        windows: the L that were tried, ascending.
        needed: int64 [Q], the smallest L that proves the ordered top K; 0 where the runs prove
            nothing.
        ordered, same: bool [Q, L], whether the cut gives the true top K in order, or the same
            documents; false where the truth is unknown.
        tops: per window, query id -> the documents of the cut's top K.
    """

    case: Case
    queries: tuple[str, ...]
    windows: tuple[int, ...]
    needed: NDArray[np.int64]
    ordered: NDArray[np.bool_]
    same: NDArray[np.bool_]
    tops: tuple[dict[str, list[str]], ...]

    @property
    def unknown(self) -> int:
        """Queries whose runs end before they prove anything."""
        return int((self.needed == 0).sum())

    def smallest(self, share: float, rows: NDArray[np.bool_] | None = None) -> int | None:
        """The smallest window from which on at least `share` of the queries (those in `rows`) have
        their exact ordered top K at every larger window; None where the runs do not show one.
        """
        exact = self.ordered if rows is None else self.ordered[rows]
        enough = exact.mean(axis=0) >= share if len(exact) else np.zeros(len(self.windows), bool)
        from_here = np.logical_and.accumulate(enough[::-1])[::-1]
        return next((L for L, holds in zip(self.windows, from_here, strict=True) if holds), None)


def numbered_queries(runs: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, Numbered]:
    """Every query's lists as document numbers, in the order of the runs; a run without the query
    has an empty list.
    """
    found = {}
    for query in sorted(set().union(*runs.values())):
        lists = [run.get(query, []) for run in runs.values()]
        found[query] = numbered(lists, [f"{name}, query {query}" for name in runs])
    return found


def advise(queries: Mapping[str, Numbered], case: Case, *, ends: bool = False) -> Advice:
    """Cut every query's lists at every window, and find the smallest that proves its top K.

    Args:
        ends: whether the runs' lists are whole.
    """
    longest = max((ranked.size for _, lists in queries.values() for ranked in lists), default=0)
    windows = tuple(L for L in WINDOWS if longest > L) + ((longest,) if longest else ())
    shape = len(queries), len(windows)
    needed, ordered, same = (
        np.zeros(shape[0], np.int64),
        np.zeros(shape, bool),
        np.zeros(shape, bool),
    )
    tops: tuple[dict[str, list[str]], ...] = tuple({} for _ in windows)
    for row, (query, (ids, lists)) in enumerate(queries.items()):
        proof = certified_window(lists, case.weights, case.kappa, case.k, ends=ends)
        found = cut_tops(lists, case.weights, case.kappa, case.k, windows)
        for top, documents in zip(found, tops, strict=True):
            documents[query] = [ids[number] for number in top.tolist()]
        if proof is not None:
            needed[row], truth = max(proof[0], 1), proof[1]
            right, members = truth.tolist(), set(truth.tolist())
            for place, top in enumerate(found):
                ordered[row, place] = top.tolist() == right
                same[row, place] = ordered[row, place] or set(top.tolist()) == members
    return Advice(case, tuple(queries), windows, needed, ordered, same, tops)


def windows_table(
    advice: Advice,
    qrels: pl.DataFrame | None,
    measures: Sequence[str],
    shards: Sequence[int] = (),
) -> Table:
    """One row per window: shares of queries, and what the cut costs; advice for shards below."""
    count, unknown = len(advice.queries), advice.unknown
    effects = _costs(advice, qrels, measures) if qrels is not None else {}
    rows = []
    for place, length in enumerate(advice.windows):
        values: dict[str, Value] = {"window": length}
        for name, exact in (("ordered", advice.ordered), ("same", advice.same)):
            right = int(exact[:, place].sum())
            values[name] = _share(right, unknown, count)
            low, high = _wilson(right, count)[0], _wilson(right + unknown, count)[1]
            values["interval" if name == "ordered" else "same_interval"] = (100 * low, 100 * high)
        proved = (advice.needed > 0) & (advice.needed <= length)
        values["proved"] = 100 * float(proved.mean())
        values |= {measure: found[place] for measure, found in effects.items()}
        rows.append(Row(values, {"window": length}))
    k = advice.case.k
    columns = (
        Column("window", "each list cut at L", "{:d}"),
        Column("ordered", f"ordered top {k} exact %", "{:.1f}"),
        Column("interval", "95 % interval", "{:.1f}", help="of the share (Wilson)"),
        Column("same", f"same {k} documents %", "{:.1f}"),
        Column("same_interval", "95 % interval", "{:.1f}", help="of the share (Wilson)"),
        Column("proved", "proved %", "{:.1f}", help="the cut lists alone prove the ordered top"),
        *(Column(m, f"{m}: cut − uncut", "{:+.4f}") for m in effects),
    )
    case = advice.case
    closed = window(case.weights, case.kappa, k)
    seen = f"from there on every document of the top {k} is among some list's first L"
    notes = [
        f"{closed} is the closed-form window: {seen}",
        *_found(advice),
        *shard_lines(advice, shards),
    ]
    if unknown:
        notes.append(
            f"{unknown} of {count} queries end before their top {k} is proved: shares are [all of"
            " them wrong, all of them right]; use longer runs"
        )
    return Table(f"windows_{k}", f"{advice.case}: {count} queries", columns, rows, notes)


def _found(advice: Advice) -> list[str]:
    """The smallest windows, what single queries need, and whether advice transfers."""
    lines = []
    for share in SHARES:
        found = advice.smallest(share)
        at = f"more than {advice.windows[-1]}" if found is None else str(found)
        lines.append(f"at least {100 * share:.0f} % of the queries are exact from L = {at} on")
    if len(advice.needed) > advice.unknown:
        p50, p95, p99 = (_needed(advice, percent) for percent in (50, 95, 99))
        lines.append(f"to prove a query's top takes L = {p50} (median), {p95} (P95), {p99} (P99)")
    first = np.array([sha256(query.encode()).digest()[0] % 2 == 0 for query in advice.queries])
    chosen = advice.smallest(SHARES[0], first)
    if chosen is not None and (~first).any():
        there = advice.ordered[~first][:, advice.windows.index(chosen)].mean()
        lines.append(
            f"chosen on {first.sum()} queries, L = {chosen} is exact for {100 * there:.1f} % of"
            f" the {(~first).sum()} others"
        )
    return lines


def _needed(advice: Advice, percent: int) -> str:
    """A percentile of what queries need; one that the runs do not reach is only a bound."""
    needed = np.where(advice.needed > 0, advice.needed, np.iinfo(np.int64).max)
    found = int(np.percentile(needed, percent, method="higher"))
    return str(found) if found < np.iinfo(np.int64).max else f"more than {advice.windows[-1]}"


def shard_lines(advice: Advice, shards: Sequence[int]) -> list[str]:
    """What each shard of an engine must be asked for, for the windows that the advice names."""
    case = advice.case
    windows = {window(case.weights, case.kappa, case.k)}
    found = [advice.smallest(share) for share in SHARES]
    windows |= {length for length in found if length is not None}
    lines: list[str] = []
    for count in shards:
        asked = ", ".join(f"{shard_window(L, count)} for L = {L}" for L in sorted(windows))
        lines.append(
            f"{count} shards: request {asked} from each (enough in 99 % of cases if documents are"
            " spread at random; L itself is always enough), and merge before ranks are counted"
        )
    return lines


def _costs(advice: Advice, qrels: pl.DataFrame, measures: Sequence[str]) -> dict[str, list[float]]:
    """Per measure, the mean over judged queries at each window less that at the largest one."""
    means: dict[str, list[float]] = {measure: [] for measure in measures}
    for top in advice.tops:
        values = evaluate(qrels, top, measures)
        for measure, own in means.items():
            own.append(float(values.filter(measure=measure)["value"].to_numpy().mean()))
    return {m: (np.array(own) - own[-1]).tolist() for m, own in means.items()}


def queries_frame(advice: Advice) -> pl.DataFrame:
    """One row per query: `needed` (null: unknown), and `exact_L` for every window."""
    exact = {f"exact_{L}": advice.ordered[:, n] for n, L in enumerate(advice.windows)}
    known = pl.Series("needed", advice.needed).replace(0, None)
    case = {"case": [str(advice.case)] * len(advice.queries)}
    return pl.DataFrame({**case, "query_id": advice.queries, "needed": known, **exact})


def windows_figure(advice: Advice) -> Figure:
    """Share of exact and of proved queries over the window."""
    width, height, left, top = 460, 240, 62, 40
    svg = Svg(left + width + 30, top + height + 80, f"Windows: {advice.case}")
    ends = advice.windows[0] / 1.15, advice.windows[-1] * 1.15
    x = Scale(*ends, left, left + width, log=True)
    y = Scale(0, 100, top + height, top)
    svg.axes(x, y, "each list cut at L", "% of queries", x_ticks=advice.windows)
    proved = [(advice.needed > 0) & (advice.needed <= L) for L in advice.windows]
    curves = {
        f"ordered top {advice.case.k} exact": 100 * advice.ordered.mean(axis=0),
        f"same {advice.case.k} documents": 100 * advice.same.mean(axis=0),
        "proved": 100 * np.mean(proved, axis=1),
    }
    for number, (name, shares) in enumerate(curves.items(), 1):
        points = [(x(L), y(float(s))) for L, s in zip(advice.windows, shares, strict=True)]
        svg.path(points, f"curve s{number}")
        for (at, height_), length, share in zip(points, advice.windows, shares, strict=True):
            svg.circle(at, height_, 4.5, f"dot s{number}", f"{name} at L = {length}: {share:.1f} %")
        svg.circle(left + (number - 1) * 160, top + height + 58, 5, f"dot s{number}")
        svg.text(left + (number - 1) * 160 + 10, top + height + 62, name)
    caption = (
        "A cut can be exact without being proved, if what follows it happens to change nothing."
        " Queries whose runs end too early count as not exact."
    )
    return Figure("windows", f"How deep to read: {advice.case}", caption, svg)


def _share(right: int, unknown: int, count: int) -> Value:
    low, high = 100 * right / count, 100 * (right + unknown) / count
    return (low, high) if unknown else low


def _wilson(right: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    p, z2 = right / count, Z * Z
    middle, half = p + z2 / (2 * count), Z * sqrt(p * (1 - p) / count + z2 / (4 * count * count))
    return (middle - half) / (1 + z2 / count), (middle + half) / (1 + z2 / count)
