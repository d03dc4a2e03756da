"""Query records of a made-up study in the schema of real ones: every method, axis and diagnostic,
from one seed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

LENGTHS = [10, 20, 50, 100, 200, 500, 1000]
SIZES = {"scifact": (30, 5183), "fiqa": (40, 57638)}
PROMPTLESS = ("original", "bm25", "dense_original")
ALL = (
    *(
        "original",
        "shared",
        "dense_only",
        "sparse_only",
        "desa",
        "contextual_dense",
        "rewrite_sparse",
    ),
    *("binary_mask", "references_only", "references_product", "qudar_complete", "qudar_weighted"),
    *("hyde", "mugi", "query2doc"),
)


def cell(
    dataset: str,
    method: str,
    *,
    queries: Sequence[str] | None = None,
    draws: int = 3,
    seed: int = 0,
    mean: float = 0.0,
    without: Sequence[str] = (),
    **labels: Any,
) -> pl.DataFrame:
    """The records of one cell; `labels` replace the usual ones, `mean` shifts nDCG and shortens
    depths.
    """
    count, documents = SIZES.get(dataset, (20, 1000))
    ids = [f"q{number}" for number in range(count)] if queries is None else list(queries)
    prompted = method not in PROMPTLESS
    base = np.random.default_rng([seed, len(dataset)])
    own = np.random.default_rng([seed, *method.encode(), *str(sorted(labels.items())).encode()])
    ability, lengths = base.random(count), base.integers(100, 900, count)
    rows = []
    for draw in range(draws if prompted else 1):
        for number, query in enumerate(ids):
            ndcg = float(
                np.clip(ability[number] + mean + own.choice([0, 0, 0.1, -0.08]) * prompted, 0, 1)
            )
            recall = float(np.round(np.clip(ndcg + 0.1, 0, 1), 1))
            depth = int(lengths[number] * (1 - 3 * mean) * own.uniform(0.6, 1.1))
            near = float(np.clip(ndcg + own.choice([0, 0, 0.05]), 0, 1))
            fallback = prompted and number == 0 and draw == 1
            rows.append(
                {
                    "query_id": query,
                    "draw": draw,
                    "depth_dense": depth,
                    "depth_sparse": depth - 3,
                    "depth_total": 2 * depth - 3,
                    "sparse_support": int(lengths[number] * (2 if method == "shared" else 1)),
                    "dense_exhausted": False,
                    "sparse_exhausted": number % 10 == 0,
                    "dense_angle_deg": own.uniform(2, 30) if prompted and not fallback else None,
                    "fallback": fallback,
                    "fusion_key": f"{draw:064x}",
                    "top": [f"d{own.integers(documents)}" for _ in range(20)],
                    "ndcg_at_10": None if number == 1 else ndcg,
                    "recall_at_20": None if number == 1 else recall,
                    "turnover": float(own.integers(0, 20) / 20),
                    "rr_change": None if number % 7 == 0 else float(own.normal(0.01, 0.1)),
                    "support_retained": 1.0,
                    "cutoffs": LENGTHS,
                    "cut_ndcg_at_10": None if number == 1 else [near] * 4 + [ndcg] * 3,
                    "cut_recall_at_20": None if number == 1 else [near] * 3 + [recall] * 4,
                    "cut_same_top": [False, False, bool(own.integers(2)), True, True, True, True],
                    "weights": [0.24, 0.26, 0.25, 0.25] if method == "qudar_weighted" else None,
                }
            )
    named = {
        "dataset": dataset,
        "method": method,
        "generator": "recorded" if prompted else None,
        "encoder": "minilm_l6" if method != "bm25" else None,
        "kappa": "60",
        "k": 20,
        "n_refs": 5 if prompted and method not in ("hyde", "mugi", "query2doc") else None,
        "corpus_docs": documents,
        "qrels_hash": f"qrels {dataset}",
        **labels,
    }
    named["config_hash"] = str(sorted((k, v) for k, v in named.items()))
    types = {
        "generator": pl.String,
        "encoder": pl.String,
        "n_refs": pl.Int64,
        "dense_angle_deg": pl.Float64,
    }
    frame = pl.DataFrame(
        rows, schema_overrides={"dense_angle_deg": pl.Float64, "weights": pl.List(pl.Float64)}
    )
    frame = frame.with_columns(
        pl.lit(value, types.get(name)).alias(name) for name, value in named.items()
    )
    return frame.drop(without)


MEANS = {"original": -0.03, "dense_only": 0.0, "sparse_only": 0.02, "desa": 0.04, "shared": 0.03}


def study_records(
    datasets: Sequence[str] = ("scifact", "fiqa"), methods: Sequence[str] = ALL, **more: Any
):
    """Main cells of some methods."""
    cells = [cell(d, m, mean=MEANS.get(m, 0.0), **more) for d in datasets for m in methods]
    return pl.concat(cells, how="diagonal_relaxed")


def everything() -> pl.DataFrame:
    """All methods on two data sets, and every axis of robustness."""
    frames = [study_records()]
    for kappa in ("2", "20", "100"):
        frames += [
            study_records(
                methods=("original", "shared", "dense_only", "sparse_only", "desa"), kappa=kappa
            )
        ]
    frames += [study_records(methods=("original", "desa"), encoder="minilm_l3")]
    frames += [study_records(methods=("desa",), n_refs=n) for n in (1, 3)]
    sample = [f"q{number}" for number in range(10)]
    frames += [study_records(methods=("desa",), generator="smollm2", queries=sample)]
    for documents in (1000, 2000):
        frames += [
            study_records(
                ("scifact",),
                ("original", "desa"),
                corpus_docs=documents,
                qrels_hash=f"q{documents}",
            )
        ]
    return pl.concat(frames, how="diagonal_relaxed")
