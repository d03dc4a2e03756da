"""Checks whether a table can be query records: columns, their types, and values that a run could
have written.

Any parquet file can be handed to a report; what is not a record of this platform is refused by
column, and so is a file that is not the one its run wrote, if the run's own summary is next to it.
"""

import json
import os
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import polars as pl

from desa_ray.core.cutoff_scores import CUT_EXPONENTIAL
from desa_ray.core.evaluation import EXPONENTIAL_COLUMN
from desa_ray.core.identifiers import rational
from desa_ray.core.judged import COLUMNS as OF_JUDGMENTS
from desa_ray.errors import DesaError, Problems, listed
from desa_ray.files import sha256_file
from desa_ray.lines import shown
from desa_ray.unpacking import plain_bytes

TEXT = ("dataset", "method", "qrels_hash", "config_hash", "fusion_key", "query_id")
TEXT_OR_NONE = ("generator", "encoder", "kappa")
FURTHER_TEXT = ("settings",)
WHOLE = ("k", "corpus_docs", "draw")
WHOLE_OR_NONE = ("n_refs", "depth_dense", "depth_sparse", "depth_total", "sparse_support")
TRUTH_OR_NONE = ("dense_exhausted", "sparse_exhausted")
SHARES = ("ndcg_at_10", "recall_at_20")
REQUIRED = (
    *TEXT,
    *TEXT_OR_NONE,
    *WHOLE,
    *WHOLE_OR_NONE,
    *TRUTH_OR_NONE,
    *SHARES,
    "dense_angle_deg",
    "fallback",
    "top",
)
# Checked where they are there. Lists named `cut_...` hold a value per cutoff.
CUT_SHARES = ("cut_ndcg_at_10", "cut_recall_at_20")
CUTS = (
    *("cut_same_top", *CUT_SHARES, CUT_EXPONENTIAL),
    *(f"reference_{name}" for name in CUT_SHARES),
)
FURTHER_WHOLE = ("steps", *(f"reference_{name}" for name in WHOLE_OR_NONE[1:]))
FURTHER_SHARES = (EXPONENTIAL_COLUMN, *OF_JUDGMENTS, *(f"reference_{name}" for name in SHARES))
FURTHER_NUMBERS = ("turnover", "rr_change", "support_retained")
# What a number can be at all; whole numbers are sizes, which are far below MOST.
RANGES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys((*SHARES, *FURTHER_SHARES, "turnover", "support_retained"), (0, 1)),
    "rr_change": (-1, 1),
    "dense_angle_deg": (0, 180),
}
MOST = 10**12
MOST_SUMMARY = 64 << 20  # bytes of a summary.json
MOST_RATIONAL = 10**18  # as settings are limited (config.py)
LONG = 80  # characters of a text in a message
NOT_NULL = (*TEXT, *WHOLE, "fallback", "top")

_KINDS: Mapping[str, tuple[str, Callable[[pl.DataType], bool]]] = {
    **{
        name: ("text", lambda kind: kind == pl.String)
        for name in (*TEXT, *TEXT_OR_NONE, *FURTHER_TEXT)
    },
    **{
        # Narrower or unsigned ones would overflow when they are subtracted.
        name: ("whole numbers (Int32 or Int64)", lambda kind: kind in (pl.Int32, pl.Int64))
        for name in (*WHOLE, *WHOLE_OR_NONE, *FURTHER_WHOLE)
    },
    **{
        name: ("booleans", lambda kind: kind == pl.Boolean) for name in (*TRUTH_OR_NONE, "fallback")
    },
    **{
        name: ("numbers", lambda kind: kind.is_float())
        for name in (*SHARES, "dense_angle_deg", *FURTHER_SHARES, *FURTHER_NUMBERS)
    },
    "top": ("lists of text", lambda kind: kind == pl.List(pl.String)),
    "weights": ("lists of numbers", lambda kind: kind in (pl.List(pl.String), pl.List(pl.Float64))),
    "cutoffs": ("lists of whole numbers", lambda kind: kind == pl.List(pl.Int64)),
    "cut_same_top": ("lists of booleans", lambda kind: kind == pl.List(pl.Boolean)),
    **{name: ("lists of numbers", lambda kind: kind == pl.List(pl.Float64)) for name in CUTS[1:]},
}
HINT = "name records.parquet files that `desa run` wrote"


def check_columns(records: pl.DataFrame, where: str) -> None:
    """Raises DesaError where a column that every record has is missing."""
    if missing := [name for name in REQUIRED if name not in records.columns]:
        what = f"these are not query records: missing columns: {listed(missing, 30)}"
        raise DesaError(what, where=where, hint=HINT)


def with_types(records: pl.DataFrame) -> pl.DataFrame:
    """Records whose columns without any value, and so without a type, have that of their kind."""
    kinds: dict[str, type[pl.DataType]] = {
        **dict.fromkeys(TEXT_OR_NONE, pl.String),
        **dict.fromkeys(WHOLE_OR_NONE, pl.Int64),
        **dict.fromkeys(TRUTH_OR_NONE, pl.Boolean),
        **dict.fromkeys((*SHARES, "dense_angle_deg"), pl.Float64),
    }
    absent = [name for name, kind in records.schema.items() if kind == pl.Null and name in kinds]
    return records.with_columns(pl.col(name).cast(kinds[name]) for name in absent)


def check_records(records: pl.DataFrame, where: str) -> None:
    """Raises `Problems` with everything that keeps the table from being query records."""
    check_columns(records, where)
    found: list[DesaError] = []
    for name, (wanted, fits) in _KINDS.items():
        if name not in records.columns:
            continue
        kind = records.schema[name]
        # A column of which no cell has a value comes without a type.
        if not fits(kind) and not (kind == pl.Null and name not in NOT_NULL):
            found.append(
                DesaError(f"column {name} holds {kind}, not {wanted}", where=where, hint=HINT)
            )
    if found:
        raise Problems(found)
    for name in NOT_NULL:
        count = records[name].null_count()
        if count:
            what = f"column {name} lacks {count} of {records.height} values"
            found.append(DesaError(what, where=where, hint=HINT))
    again = "run the cell again; what is stored is reused"
    for name, outside in (_outside(records) | _lists(records)).items():
        if outside.height:
            value = _told(outside[name][0])
            what = f"column {name} holds {value}, which no run writes ({_rows(outside)})"
            found.append(DesaError(what, where=where, hint=again))
    if (uneven := _unevenly_judged(records)).height:
        what = (
            f"{' and '.join(SHARES)} are null in some rows of a query and not in others"
            f" ({_rows(uneven)})"
        )
        found.append(DesaError(what, where=where, hint=again))
    if found:
        raise Problems(found)


def _told(value: object) -> str:
    """A cell's value for a message, bounded; text that does not show by itself in quotes."""
    plain = value.to_list() if isinstance(value, pl.Series) else value
    if isinstance(plain, str):
        return plain if plain.split() == [plain] and len(plain) < LONG else shown(plain, LONG)
    return listed([plain])


def _rows(records: pl.DataFrame) -> str:
    return (
        f"{records.height} rows, queries"
        f" {listed(records['query_id'].unique(maintain_order=True), 5)}"
    )


def _outside(records: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Column -> rows whose value lies outside of what it measures."""
    bad: dict[str, pl.DataFrame] = {}
    if records.schema["kappa"] != pl.Null:
        number = _is_number("kappa", lambda value: -1 < value < MOST_RATIONAL)
        bad["kappa"] = records.filter(~number)
    for name, kind in records.schema.items():
        column = pl.col(name)
        if name in RANGES and kind != pl.Null:
            bad[name] = records.filter(~column.is_between(*RANGES[name]) | column.is_nan())
        elif name in (*WHOLE, *WHOLE_OR_NONE, *FURTHER_WHOLE) and kind != pl.Null:
            least = 1 if name in ("k", "corpus_docs", "n_refs") else 0
            bad[name] = records.filter(~column.is_between(least, MOST))
        elif kind.is_float():
            bad[name] = records.filter(~column.is_finite())
    return bad


def _lists(records: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Column -> rows whose list is not one of its kind: another length, or a value out of range."""
    bad = {}
    if records.schema.get("weights") == pl.List(pl.String):
        share = _is_number("", lambda value: 0 <= value < MOST_RATIONAL)
        whole = pl.col("weights").list.eval(share).list.all()
        bad["weights"] = records.filter(~whole)
    elif records.schema.get("weights") == pl.List(pl.Float64):
        weight = pl.element()
        whole = pl.col("weights").list.eval(weight.is_finite() & (weight >= 0)).list.all()
        bad["weights"] = records.filter(~whole)
    if records.schema.get("cutoffs", pl.Null) == pl.Null:
        return bad
    cutoffs = pl.col("cutoffs")
    first = cutoffs.first().over("config_hash", "dataset", "method")
    bad["cutoffs"] = records.filter(cutoffs.is_null() | (cutoffs != first))
    for name in CUTS:
        if records.schema.get(name, pl.Null) == pl.Null:
            continue
        odd = pl.col(name).list.len() != cutoffs.list.len()
        if name != "cut_same_top":
            share = pl.element()
            inside = share.is_between(0, 1).fill_null(value=True)
            odd |= ~pl.col(name).list.eval(inside).list.all()
        bad[name] = records.filter(odd)
    return bad


def _is_number(name: str, fits: Callable[[Fraction], bool]) -> pl.Expr:
    """Whether text is an exact number that fits: a column's, or a list's elements'."""

    def number(text: str) -> bool:
        try:
            return fits(rational(text, name))
        except DesaError:
            return False

    column = pl.col(name) if name else pl.element()
    return column.map_elements(number, return_dtype=pl.Boolean, skip_nulls=True).fill_null(
        value=True
    )


def _unevenly_judged(records: pl.DataFrame) -> pl.DataFrame:
    """Rows at odds with this: a query is judged or it is not, whatever the measure, method and
    draw.
    """
    judged = pl.col(SHARES[0]).is_not_null()
    first = judged.first().over("dataset", "qrels_hash", "query_id")
    return records.filter((judged != pl.col(SHARES[1]).is_not_null()) | (judged != first))


def check_unchanged(file: Path) -> None:
    """Compare a cell's records with the SHA-256 in the `summary.json` next to them, where there is
    one.

    Raises:
        DesaError: the file is not the one that the run wrote, or the summary is damaged.
    """
    summary = file.with_name("summary.json")
    if not os.path.lexists(summary):
        return
    try:
        cells = json.loads(plain_bytes(summary, MOST_SUMMARY))["cells"]
        wanted = {cell["artifacts"][file.name] for cell in cells if file.name in cell["artifacts"]}
    except (DesaError, ValueError, LookupError, TypeError, RecursionError):
        hint = "run the cell again, or remove it to report without this check"
        raise DesaError(
            "is damaged: not JSON as a run writes it", where=str(summary), hint=hint
        ) from None
    if not wanted:
        return
    found = sha256_file(file)
    if found not in wanted:
        what = f"has changed since its run: SHA-256 {found}, summary.json says {listed(wanted)}"
        raise DesaError(what, where=str(file), hint="run the cell again; what is stored is reused")
