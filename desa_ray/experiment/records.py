"""Query records: the one table from which every later number is computed, and the summary of a
cell.

A record is one (query, draw) of one cell. Draws are averaged within each query first (method.md
section 10). Queries without a positive judgment have null effectiveness and count in depths only.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from desa_ray.core.cutoff_scores import CUT_EXPONENTIAL
from desa_ray.core.evaluation import (
    EXPONENTIAL,
    EXPONENTIAL_COLUMN,
    metric_name,
    positive_grades,
    scored,
)
from desa_ray.core.judged import COLUMNS as OF_JUDGMENTS
from desa_ray.core.judged import NDCG_CUTOFF, RECALL_CUTOFF, judged_columns
from desa_ray.experiment.build import Cell
from desa_ray.experiment.fusing import fused_methods, kappa_of
from desa_ray.experiment.methods import REFERENCES_PROMPT, generator_label, prompts
from desa_ray.experiment.settings import cell_settings
from desa_ray.pipeline.stage import Stage
from desa_ray.stages.access_depths import ACCESS, with_access_depths
from desa_ray.stages.calibrated import calibration_rows
from desa_ray.stages.collection import read_rows
from desa_ray.stages.fused_records import FUSED
from desa_ray.stages.fusion import read_fused, read_run
from desa_ray.types import canonical_json, sha256_json

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
    Float64 per measure, nDCG@10 with exponential gain (also under the cutoffs, where it is known),
    and what unjudged documents leave open.
    """
    reference = {f"reference_{name}": dtype for name, dtype in REFERENCE.items()}
    return pl.Schema(
        {
            **LABELS,
            **FUSED,
            **reference,
            **{metric_name(m): pl.Float64() for m in measures},
            EXPONENTIAL_COLUMN: pl.Float64(),
            CUT_EXPONENTIAL: pl.List(pl.Float64()),
            **dict.fromkeys(OF_JUDGMENTS, pl.Float64()),
            **ACCESS,
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
    """The encoder, what is put before each text that it reads, and the analysis of sparse texts."""
    found: dict[str, Any] = {}
    prefixes: dict[str, str] = {}
    for source in (source for ranking in rankings for source in ranking.inputs.values()):
        if source.name == "text_vectors":
            found["encoder"] = dict(source.params["encoder"])
            prefixes[source.params["template"]] = source.params["prefix"]
        elif source.name == "vectors" and "prefix" in source.params:
            prefixes["documents"] = source.params["prefix"]
        elif source.name == "postings":
            found["analysis"] = {**source.params, **_texts_added(source)}
        elif source.name == "impact_postings":
            impacts = source.inputs["impacts"]
            found["impacts"] = {**impacts.params, **_texts_added(impacts)}
        elif source.name == "query_weights":
            own = source.inputs.get("vectors")
            found["query_weights"] = {**source.params["weights"], **(own.params if own else {})}
    return {**found, **({"prefixes": prefixes} if prefixes else {})}


def _texts_added(indexed: Stage) -> dict[str, Any]:
    """What decides the texts that were appended to documents; nothing where none were."""
    corpus = indexed.inputs["corpus"]
    return dict(corpus.params) if corpus.name == "document_texts" else {}


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
    kappa = kappa_of(config.fusion, fused_methods(config))
    return {
        "dataset": config.dataset.name,
        "method": config.method.name,
        "generator": generator_label(config.method, config.generator, config.prompt),
        "encoder": _encoder_label(cell),
        "kappa": None if kappa is None else str(kappa),
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
        if CUT_EXPONENTIAL not in frame.columns:
            frame = frame.with_columns(of_binary_grades(grades).alias(CUT_EXPONENTIAL))
        frame = frame.with_columns(of_judgments(stage, frame, grades))
        frame = with_access_depths(frame, cell.access[draw] if cell.access else None)
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

    It is not a measure of the fusion stage, so that stored fusions of earlier versions keep their
    keys. Null for a query without a positive judgment, and where neither the certified top nor the
    stored run reaches rank 10.
    """
    tops = _tops(stage, fused, NDCG_CUTOFF)
    if tops is None:
        return pl.Series(EXPONENTIAL_COLUMN, [None] * fused.height, pl.Float64())
    values = scored(grades, tops, [EXPONENTIAL])
    found = [values.get((query, EXPONENTIAL)) for query in fused["query_id"]]
    return pl.Series(EXPONENTIAL_COLUMN, found, pl.Float64())


def of_binary_grades(grades: Grades) -> pl.Expr:
    """nDCG@10 with exponential gain under the cutoffs, of fusions that did not compute it: where
    all grades of a query are 0 or 1 the two gains are the same; else null.
    """
    binary = [query for query, own in grades.items() if max(own.values()) <= 1]
    return pl.when(pl.col("query_id").is_in(binary)).then("cut_ndcg_at_10")


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
