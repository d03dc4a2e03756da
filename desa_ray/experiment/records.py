"""Query records: the one table every later number is rebuilt from, and the summary of a cell.

A record is one (query, draw) of one cell. Draws are averaged within each query first (method.md
section 10). Queries without a positive judgment have null effectiveness and count in depths only.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from desa_ray.core.evaluation import (
    EXPONENTIAL,
    EXPONENTIAL_COLUMN,
    metric_name,
    positive_grades,
    scored,
)
from desa_ray.core.fusion.cutoffs import CUTOFFS
from desa_ray.core.judged import COLUMNS as OF_JUDGMENTS
from desa_ray.core.judged import NDCG_CUTOFF, RECALL_CUTOFF, judged_columns
from desa_ray.core.statistics.aggregate import fallback_pct
from desa_ray.experiment.build import Cell
from desa_ray.experiment.methods import REFERENCES_PROMPT, generator_label, prompts
from desa_ray.experiment.settings import cell_settings
from desa_ray.pipeline.stage import Stage
from desa_ray.stages.calibrated import calibration_rows
from desa_ray.stages.collection import read_rows
from desa_ray.stages.fusion import FUSED, read_fused, read_run
from desa_ray.types import canonical_json, sha256_json

TIE = 1e-12
Grades = Mapping[str, Mapping[str, int]]
LABELS = {
    "dataset": pl.String,
    "method": pl.String,
    "draw": pl.Int32,
    "generator": pl.String,
    "encoder": pl.String,
    "kappa": pl.String,
    "k": pl.Int64,
    "n_refs": pl.Int64,
    "corpus_docs": pl.Int64,
    "generation_key": pl.String,
    "fusion_key": pl.String,
    "qrels_hash": pl.String,
    "config_hash": pl.String,
    "settings": pl.String,  # canonical JSON of `settings.cell_settings`
}


# What a summary has beside measures and values of cutoffs.
METRICS = (
    *("depth_dense", "depth_sparse", "depth_total", "sparse_support"),
    *("dense_exhausted", "sparse_exhausted", "both_shallower", "support_ratio"),
    *("dense_angle_deg", "turnover", "rr_change", "support_retained"),
    *("dense_angle_deg_max", "support_retained_min", "rr_change_absent"),
)
CUT = ("ndcg_at_10", "recall_at_20")  # measures of prefixes


# What a record keeps of Original's, so that both stand side by side: column there -> type.
REFERENCE = {
    "depth_dense": pl.Int64(),
    "depth_sparse": pl.Int64(),
    "sparse_support": pl.Int64(),
    "ndcg_at_10": pl.Float64(),
    "recall_at_20": pl.Float64(),
    "cut_ndcg_at_10": pl.List(pl.Float64()),
    "cut_recall_at_20": pl.List(pl.Float64()),
}


def records_schema(measures: list[str]) -> pl.Schema:
    """Columns of `records.parquet`: labels, the fused record, `reference_...` of Original, one
    Float64 per measure, nDCG@10 with exponential gain, and what unjudged documents leave open.
    """
    reference = {f"reference_{name}": dtype for name, dtype in REFERENCE.items()}
    return pl.Schema(
        {
            **LABELS,
            **FUSED,
            **reference,
            **{metric_name(m): pl.Float64() for m in measures},
            EXPONENTIAL_COLUMN: pl.Float64(),
            **dict.fromkeys(OF_JUDGMENTS, pl.Float64()),
        }
    )


def _generations(stage: Stage) -> list[Stage]:
    """The generation stages of a fusion stage, in the order of the method's channels."""
    return [source for role, source in stage.inputs.items() if role.startswith("generation:")]


def config_hash(cell: Cell) -> str:
    """Hex SHA-256 of everything that decides a cell's records: the keys of its fusions and of
    Original's, which hold those of all that they are made from, down to weights, prefixes, analyser
    and the versions of stages.
    """
    reference = cell.reference.key.digest if cell.reference else None
    return sha256_json([[stage.key.digest for stage in cell.fused], reference])


def result_config(cell: Cell) -> dict[str, Any]:
    """The configuration that decides the results, as it enters keys: no paths, no cluster."""
    fusion = cell.fused[0]
    channels = {role: s for role, s in fusion.inputs.items() if role.startswith("channel:")}
    ranked = {role: dict(stage.params) for role, stage in channels.items()}
    generations = [dict(source.params) for stage in cell.fused for source in _generations(stage)]
    tables = {
        role: fusion.inputs[role].params["content"] for role in ("corpus", "queries", "qrels")
    }
    return {
        "fusion": dict(fusion.params),
        "channels": ranked,
        **_made_of(channels.values()),
        "generations": generations,
        "collection": tables,
    }


def _made_of(rankings: Iterable[Stage]) -> dict[str, Any]:
    """The encoder, what stands before each text that it reads, and the analysis of sparse texts."""
    found: dict[str, Any] = {}
    prefixes: dict[str, str] = {}
    for source in (source for ranking in rankings for source in ranking.inputs.values()):
        if source.name == "text_vectors":
            found["encoder"] = dict(source.params["encoder"])
            prefixes[source.params["template"]] = source.params["prefix"]
        elif source.name == "vectors" and "prefix" in source.params:
            prefixes["documents"] = source.params["prefix"]
        elif source.name == "postings":
            found["analysis"] = dict(source.params)
    return {**found, **({"prefixes": prefixes} if prefixes else {})}


def _encoder_label(cell: Cell) -> str | None:
    """The encoder's name; weights from a folder of the user's own carry their hash, as the name
    proves nothing then.
    """
    config = cell.config.encoder
    rankings = (
        stage for role, stage in cell.fused[0].inputs.items() if role.startswith("channel:")
    )
    vectors = next(
        (ranking.inputs["vectors"] for ranking in rankings if "vectors" in ranking.inputs), None
    )
    if vectors is None:
        return None
    weights = vectors.params["encoder"].get("weights_sha256")
    own = f"+local-{weights[:8]}" if config.path and weights else ""
    return config.name + own


def labels(cell: Cell) -> dict[str, Any]:
    """What identifies a cell to people."""
    config = cell.config
    return {
        "dataset": config.dataset.name,
        "method": config.method.name,
        "generator": generator_label(config.method, config.generator, config.prompt),
        "encoder": _encoder_label(cell),
        "kappa": str(config.fusion.kappa),
        "k": config.fusion.k,
        "n_refs": config.n_refs if REFERENCES_PROMPT in prompts(config.method) else None,
        "corpus_docs": cell.collection.counts["documents"],
    }


def cell_records(cell: Cell) -> pl.DataFrame:
    """All records of a computed cell, by draw, then query order."""
    reference = None
    if cell.reference is not None:
        columns = (pl.col(name).alias(f"reference_{name}") for name in REFERENCE)
        reference = read_fused(cell.reference).select("query_id", *columns)
    common = {**labels(cell), "config_hash": config_hash(cell)}
    common["settings"] = canonical_json(cell_settings(cell))
    inputs = cell.fused[0].inputs  # of every draw: one collection
    queries = read_rows(inputs["queries"])["id"].to_list()
    grades = positive_grades(read_rows(inputs["qrels"]), queries)
    frames = []
    for draw, stage in enumerate(cell.fused):
        own = {
            **common,
            "draw": draw,
            "generation_key": ",".join(source.key.digest for source in _generations(stage)) or None,
            "fusion_key": stage.key.digest,
            "qrels_hash": stage.inputs["qrels"].params["content"],
        }
        frame = read_fused(stage)
        frame = frame.with_columns(exponential_ndcg(stage, frame, grades))
        frame = frame.with_columns(of_judgments(stage, frame, grades))
        left_out = [queries[row] for row in calibration_rows(stage)]
        frame = frame.filter(~pl.col("query_id").is_in(left_out))
        if reference is None:
            frame = frame.with_columns(
                pl.lit(None, dtype).alias(f"reference_{n}") for n, dtype in REFERENCE.items()
            )
        else:
            frame = frame.join(reference, on="query_id", how="left", maintain_order="left")
        frames.append(
            frame.with_columns(pl.lit(own[name], LABELS[name]).alias(name) for name in LABELS)
        )
    schema = records_schema(cell.fused[0].params["measures"])
    return pl.concat(frames).select(schema.names()).cast(schema)


def exponential_ndcg(stage: Stage, fused: pl.DataFrame, grades: Grades) -> pl.Series:
    """nDCG@10 with gain 2^grade - 1 of each fused record, from the top list that it holds.

    It is no measure of the fusion stage, so that stored fusions of earlier versions keep their
    keys. Null for a query without a positive judgment, and where neither the certified top nor the
    stored run reaches rank 10.
    """
    tops = _tops(stage, fused, NDCG_CUTOFF)
    if tops is None:
        return pl.Series(EXPONENTIAL_COLUMN, [None] * fused.height, pl.Float64())
    values = scored(grades, tops, [EXPONENTIAL])
    found = [values.get((query, EXPONENTIAL)) for query in fused["query_id"]]
    return pl.Series(EXPONENTIAL_COLUMN, found, pl.Float64())


def of_judgments(stage: Stage, fused: pl.DataFrame, grades: Grades) -> list[pl.Series]:
    """What unjudged documents leave open of each fused record (`desa_ray.core.judged`), of the same
    lists; null where a list ends before.
    """
    tops = _tops(stage, fused, RECALL_CUTOFF)
    if tops is None:
        absent = [name for name in OF_JUDGMENTS if name not in fused.columns]
        return [pl.Series(name, [None] * fused.height, pl.Float64()) for name in absent]
    return judged_columns(fused["query_id"].to_list(), tops, grades)


def _tops(stage: Stage, fused: pl.DataFrame, wanted: int) -> dict[str, list[str]] | None:
    """Query -> its first documents, `wanted` of them or more where its ranking has them; None where
    neither the certified top nor the stored run reaches that rank.
    """
    if stage.params["k"] >= wanted:
        return dict(fused.select("query_id", "top").iter_rows())
    if stage.params["run_depth"] >= wanted:
        return dict(read_run(stage).select("query_id", "docs").iter_rows())
    return None


def cell_runs(cell: Cell) -> list[pl.DataFrame]:
    """The fused runs, one frame per draw: `query_id`, `docs` (best first, `run_depth` at most)."""
    return [read_run(stage) for stage in cell.fused]


def summarise(records: pl.DataFrame, measures: list[str]) -> dict[str, float | None]:
    """Means over queries of draw-averaged values; None where no query has a value.

    Depths, support and exhaustion are over all queries, measures over those with a positive
    judgment. `both_shallower` is the share of queries whose draw-averaged depths are both below
    Original's, `support_ratio` the ratio of the mean sparse supports. Mechanism diagnostics leave
    fallbacks out (method.md section 9).
    """
    columns = {
        **{metric_name(measure): pl.col(metric_name(measure)) for measure in measures},
        EXPONENTIAL_COLUMN: pl.col(EXPONENTIAL_COLUMN),
        "depth_dense": pl.col("depth_dense"),
        "depth_sparse": pl.col("depth_sparse"),
        "depth_total": pl.col("depth_total"),
        "sparse_support": pl.col("sparse_support"),
        "dense_exhausted": pl.col("dense_exhausted").cast(pl.Float64),
        "sparse_exhausted": pl.col("sparse_exhausted").cast(pl.Float64),
    }
    by_query = records.group_by("query_id", maintain_order=True).agg(
        *(column.mean().alias(name) for name, column in columns.items()),
        *(
            pl.col(f"reference_{name}").first()
            for name in ("depth_dense", "depth_sparse", "sparse_support")
        ),
    )
    shallower = (pl.col("depth_dense") < pl.col("reference_depth_dense")) & (
        pl.col("depth_sparse") < pl.col("reference_depth_sparse")
    )
    means = by_query.select(
        *(pl.col(name).mean() for name in columns),
        both_shallower=shallower.mean(),
        support_ratio=_ratio(
            pl.col("sparse_support").mean(), pl.col("reference_sparse_support").mean()
        ),
    )
    return means.row(0, named=True) | _mechanism(records)


def metric_names(measures: Sequence[str]) -> list[str]:
    """The names of all metrics of a cell with these measures, as its summary has them."""
    own = [metric_name(measure) for measure in measures]
    cut = [f"cut_{name}{end}" for name in CUT for end in ("", "_changed", "_reversed")]
    of_cutoffs = [f"{name}/L{cutoff}" for cutoff in CUTOFFS for name in ("cut_same_top", *cut)]
    return [*dict.fromkeys([*own, EXPONENTIAL_COLUMN]), *METRICS, *of_cutoffs]


def _mechanism(records: pl.DataFrame) -> dict[str, float | None]:
    """Means over queries of draw-averaged diagnostics, as the report's table has them.

    `rr_change` counts a query-draw without a relevant document in both rankings as 0, and
    `rr_change_absent` is the number of those; both are None where nothing was compared.
    """
    compared = pl.col("turnover").is_not_null()
    own = records.filter(~pl.col("fallback")).with_columns(
        rr_change=pl.when(compared).then(pl.col("rr_change").fill_null(0.0)),
        rr_change_absent=pl.when(compared).then(pl.col("rr_change").is_null()),
    )
    names = ("dense_angle_deg", "turnover", "rr_change", "support_retained")
    means = own.group_by("query_id", maintain_order=True).agg(pl.col(names).mean())
    extremes = own.select(
        dense_angle_deg_max=pl.col("dense_angle_deg").max(),
        support_retained_min=pl.col("support_retained").min(),
        rr_change_absent=pl.when(pl.col("rr_change_absent").count() > 0).then(
            pl.col("rr_change_absent").sum()
        ),
    )
    return means.select(pl.col(names).mean()).row(0, named=True) | extremes.row(0, named=True)


def _ratio(value: pl.Expr, reference: pl.Expr) -> pl.Expr:
    return pl.when(reference > 0).then(value / reference)


def summarise_cutoffs(records: pl.DataFrame) -> dict[str, float | None]:
    """Fixed-cutoff diagnostics as `NAME/L<cutoff>`, shares over query-draws (method.md section 7).

    `cut_same_top`: the ordered top under L is the complete one. `cut_ndcg_at_10`,
    `cut_recall_at_20`: mean under L. `..._changed`: the method's label against Original (gain, tie,
    loss) under L is another than that of the complete rankings; `..._reversed`: a gain became a
    loss or a loss a gain. None for cells without a reference.
    """
    found: dict[str, float | None] = {}
    for place, cutoff in enumerate(records["cutoffs"][0].to_list()):
        columns: dict[str, pl.Expr] = {
            "cut_same_top": pl.col("cut_same_top").list.get(place).mean()
        }
        for name in CUT:
            under = pl.col(f"cut_{name}").list.get(place)
            label = outcome(under, pl.col(f"reference_cut_{name}").list.get(place))
            complete = outcome(pl.col(name), pl.col(f"reference_{name}"))
            columns[f"cut_{name}"] = under.mean()
            columns[f"cut_{name}_changed"] = (label != complete).mean()
            columns[f"cut_{name}_reversed"] = (label * complete == -1).mean()
        found |= {
            f"{name}/L{cutoff}": value
            for name, value in records.select(**columns).row(0, named=True).items()
        }
    return found


def outcome(value: pl.Expr, reference: pl.Expr) -> pl.Expr:
    """1 for a gain, -1 for a loss, 0 for a tie, which is a difference of at most 1e-12; null where
    one is null.
    """
    difference = value - reference
    return pl.when(difference.abs() <= TIE).then(0).otherwise(difference.sign()).cast(pl.Int8)


def per_draw(records: pl.DataFrame, measures: list[str]) -> list[dict[str, float | None]]:
    """The summary of each draw on its own."""
    return [
        summarise(frame, measures) for frame in records.partition_by("draw", maintain_order=True)
    ]


def cell_summary(cell: Cell, records: pl.DataFrame) -> dict[str, Any]:
    """A cell's entry in `summary.json`, without the run's own fields (ids, artifact hashes, stage
    counts).
    """
    measures = cell.fused[0].params["measures"]
    kappa = cell.config.fusion.kappa
    shown: Mapping[str, Any] = labels(cell) | {
        "kappa": int(kappa) if kappa.denominator == 1 else str(kappa)
    }
    of_draws, of_queries = fallback_pct(records)
    return {
        **shown,
        "ranking": cell.config.ranking,
        "n_queries": records["query_id"].n_unique(),
        "draws": len(cell.fused),
        "fallbacks": int(records["fallback"].sum()),
        "fallback_pct_of_query_draws": of_draws,
        "fallback_pct_of_queries": of_queries,
        "metrics": summarise(records, measures) | summarise_cutoffs(records),
    }
