"""conf/compare/release.yaml: the authors' published values, from their rows (reference/release).

`python -m tests.release_compare` writes the file again; tests/report/test_release_tables.py
compares it with the rows. Macros and percentages are computed here from rows of data sets, by the
formulas of method.md section 10 and with none of the report's code.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from tests.release_data import DOCUMENTS, METHODS, results
from tests.release_mechanism import correlations, cutoffs, mechanism, quartiles
from tests.release_rows import (
    COLUMNS,
    OUTCOMES,
    changes,
    gain,
    macro_row,
    means,
    no_macro,
    reduction,
    rows,
    tests_of,
)

FILE = Path(__file__).parents[1] / "conf" / "compare" / "release.yaml"
HEAD = """\
# What the authors of "Query Expansion Should Be Coordinated: Dense Expands, Sparse Anchors"
# published with their code, shown next to a report's own numbers (`desa report compare=release`).
# nDCG has exponential gain. From Chunran Zhang, "DESA: Dense Expansion and Sparse Anchoring"
# (Apache-2.0), ln-one/hybrid-query-construction at 80309242, ln-one/dense-expands-sparse-anchors at
# c10b7f16 and deb1850a (tests/reference/README.md), by `python -m tests.release_compare`. Keys are
# those of the report's tables, rows and columns; shares and changes are in percent.
"""
MAIN = ("original", "shared", "dense_only", "sparse_only", "desa")
OPERATORS = {
    "original": "original",
    "contextual_dense": "dense_contextual",
    "dense_only": "dense_residual",
    "rewrite_sparse": "sparse_rewrite",
    "sparse_only": "sparse_product",
}
QUDAR = {
    "qudar_complete": "qudar_complete_uniform_rrf",
    "qudar_weighted": "qudar_complete_confidence_rrf",
}


def main_rows() -> dict[str, Any]:
    found: dict[str, Any] = {}
    original = means("original")
    for method in MAIN:
        own = means(method)
        found[method] = {name: fmean(values) for name, values in own.items()}
        if method == "original":
            continue
        for name, value in changes(own, original).items():
            found[method][f"{name}_{'reduction' if 'depth' in name else 'gain'}"] = value
        (shallower,) = rows(
            "access-macro-bootstrap", method=METHODS[method], metric="dual_depth_improvement_rate"
        )
        found[method]["both_shallower"] = 100 * shallower["estimate"]
    return found


def per_dataset() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for method in METHODS:
        for row in results(method):
            own = {name: row[column] for name, column in COLUMNS.items()}
            own["sparse_support"] = row["sparse_support"]
            own["exhausted"] = 100 * row["sparse_exhaustion_rate"]
            if method != "original":
                own["fallback"] = 100 * row["fallback_rate"]
            found.setdefault(row["dataset"], {})[method] = own
    return found


def channel_evidence() -> dict[str, Any]:
    found = {}
    for dataset, own in per_dataset().items():
        ndcg = {method: own[method]["ndcg_at_10"] for method in MAIN}
        support = {method: own[method]["sparse_support"] for method in MAIN}
        found[dataset] = {
            "subject_gain": gain([ndcg["desa"]], [ndcg["original"]]),
            "plus_dense": gain([ndcg["desa"]], [ndcg["sparse_only"]]),
            "plus_sparse": gain([ndcg["desa"]], [ndcg["dense_only"]]),
            "dense_reduction": reduction(
                [own["desa"]["depth_dense"]], [own["original"]["depth_dense"]]
            ),
            "sparse_reduction": reduction(
                [own["desa"]["depth_sparse"]], [own["original"]["depth_sparse"]]
            ),
            "shared_support": support["shared"] / support["original"],
            "subject_support": support["desa"] / support["original"],
        }
    return found


def external() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for method in ("original", "desa", "hyde", "mugi", "query2doc", "mugi_controlled"):
        own = means(method)
        found[method] = {name: fmean(own[name]) for name in ("ndcg_at_10", "recall_at_20")}
        found[method]["depth_total"] = fmean(own["depth_dense"]) + fmean(own["depth_sparse"])
    names = {method: f"{name}_matched" for method, name in QUDAR.items()}
    for method, name in (names | {"qudar_top1000": "qudar_simple_rrf_matched"}).items():
        found[method] = macro_row("later/qudar-baseline-results", name)
    for method, name in QUDAR.items():
        depths = [row["total_depth"] for row in no_macro("later/qudar-depth-results", method=name)]
        found[method]["depth_total"] = fmean(depths)
    audit = {
        "qudar_score": "qudar_uniform_score_matched",
        "qudar_score_confidence": "qudar_confidence_matched",
    }
    for method, name in audit.items():
        found[method] = macro_row("later/qudar-confidence-results", name)
    return found


def outcome_labels() -> dict[str, Any]:
    """How many of the four intervals of favourable differences lie above and below 0."""
    found = {}
    for method in ("original", "shared"):
        own = rows("primary-paired-tests", comparison=f"proposed_vs_{METHODS[method]}")
        found[method] = {
            "better": sum(row["ci95_lower"] > 0 for row in own),
            "worse": sum(row["ci95_upper"] < 0 for row in own),
        }
    return found


CALIBRATED = {
    "dense_original": "original",
    "anchorqe": "anchorqe_fixed_015",
    "anchorqe_calibrated": "anchorqe_sc_matched",
    "desa_dense": "desa_de",
}


def calibrated() -> dict[str, Any]:
    """The dense channel alone on the queries that calibration left, by data set and method."""
    found: dict[str, Any] = {}
    for method, name in CALIBRATED.items():
        for row in rows("later/anchorqe-sc-dense-summary", method=name):
            own = {column: row[column] for column in ("ndcg_at_10", "recall_at_20")}
            dataset = "macro" if row["dataset"] == "Macro" else row["dataset"]
            found.setdefault(dataset, {})[method] = own
    return found


GENERATORS = {
    "Qwen/Qwen2.5-7B-Instruct": "qwen2_5_7b",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistral_7b",
}
PROMPTS = {"primary": "references", "hyde": "hyde_short", "mugi": "mugi_short"}
PROMPTS["query2doc"] = "query2doc_short"


def generation_cost() -> dict[str, Any]:
    """Their generations a data set, generator and prompt; prompts by our names."""
    found: dict[str, Any] = {}
    for row in rows("generation-costs"):
        prompt = PROMPTS[Path(row["prompt_path"]).name.partition("-")[0]]
        own = found.setdefault(row["dataset"], {}).setdefault(GENERATORS[row["model_id"]], {})
        own[prompt] = {
            "records": row["records"],
            "prompt_tokens": row["mean_prompt_tokens"],
            "completion_tokens": row["mean_completion_tokens"],
            "attempts": row["mean_attempts"],
            "fallback": 100 * row["failure_rate"],
        }
    return found


def qudar_effects() -> dict[str, Any]:
    found = {}
    for method, name in QUDAR.items():
        own = tests_of("later/qudar-paired-tests", f"desa_vs_{name}_matched")
        (depth,) = rows("later/qudar-depth-paired-tests", comparison=f"desa_vs_{name}")
        own["depth_total"] = {
            "p": depth["p_raw"],
            "p_holm": depth["p_holm"],
            "reduction": 100 * depth["total_depth_reduction"],
            "reduction_ci": [100 * depth["ci95_lower"], 100 * depth["ci95_upper"]],
        }
        found[method] = own
    return found


def qudar_weights() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for lists, file in (
        ("complete lists", "later/qudar-complete-confidence-vs-uniform-tests"),
        ("Top-1000 scores", "later/qudar-confidence-vs-uniform-tests"),
    ):
        found[lists] = {}
        for row in rows(file):
            found[lists][f"{row['metric']}_effect"] = row["favorable_difference"]
            found[lists][f"{row['metric']}_p_holm"] = row["p_holm"]
    totals = {method: external()[method]["depth_total"] for method in QUDAR}
    found["complete lists"]["depth_uniform"] = totals["qudar_complete"]
    found["complete lists"]["depth_weighted"] = totals["qudar_weighted"]
    for row in rows("later/qudar-confidence-outcome-stability"):
        share = 100 * row["pooled_query_draw_unchanged"]
        found["Top-1000 scores"][f"{row['metric']}_unchanged"] = share
    weights: list[float] = []
    for row in no_macro("later/qudar-confidence-weights", method="qudar_confidence_matched"):
        weights += [row[name] for name in ("w_os", "w_od", "w_es", "w_ed")]
    found["Top-1000 scores"]["weights"] = [min(weights), max(weights)]
    return found


def ablations() -> dict[str, Any]:
    desa, mask = means("desa"), means("binary_mask")
    found: dict[str, Any] = {
        "binary_mask_vs_desa": {  # the base is the mask, as printed
            name: -gain(desa[name], mask[name]) for name in ("ndcg_at_10", "recall_at_20")
        }
        | {name: reduction(mask[name], desa[name]) for name in ("depth_dense", "depth_sparse")}
    }
    for fewer, more in ((1, 3), (3, 5)):
        own, other = means("desa", n_refs=more), means("desa", n_refs=fewer)
        found[f"refs_{fewer}_to_{more}"] = changes(own, other)
    return found


def robustness() -> dict[str, Any]:
    settings: dict[str, dict[str, dict[str, object]]] = {
        "kappa": {str(kappa): {"kappa": kappa} for kappa in (2, 20, 60, 100)},
        "encoder": {"contriever": {"condition": "contriever"}},
        "generator": {"mistral_7b": {"condition": "mistral"}},
        "corpus_docs": {
            str(size): {"dataset": f"trec-covid-{size}", "track": "scale"} for size in DOCUMENTS
        },
    }
    found: dict[str, Any] = {}
    for axis, values in settings.items():
        for value, setting in values.items():
            own, other = results("desa", **setting), results("original", **setting)
            lines = {
                row["dataset"].removesuffix(f"-{value}"): robustness_line([row], [base])
                for row, base in zip(own, other, strict=True)
            }
            if len(lines) > 1:
                lines["macro"] = robustness_line(own, other)
            found.setdefault(axis, {})[value] = lines
    return found


def robustness_line(own: Sequence[Mapping], other: Sequence[Mapping]) -> dict[str, float]:
    names = COLUMNS.items()
    mine = {name: [row[column] for row in own] for name, column in names}
    theirs = {name: [row[column] for row in other] for name, column in names}
    return {
        "reference": fmean(theirs["ndcg_at_10"]),
        "subject": fmean(mine["ndcg_at_10"]),
        **changes(mine, theirs),
        "fallback": 100 * fmean([row["fallback_rate"] for row in own]),
    }


def macro_intervals() -> dict[str, Any]:
    found: dict[str, Any] = {method: {} for method in MAIN}
    for method, own in found.items():
        for row in rows("main-macro-bootstrap", method=METHODS[method]):
            name = OUTCOMES.get(row["metric"], row["metric"])
            own[name] = row["estimate"]
            own[f"{name}_ci"] = [row["ci95_lower"], row["ci95_upper"]]
    return found


def access_changes() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for method in MAIN[1:]:
        for row in no_macro("access-changes-vs-original", method=METHODS[method]):
            found.setdefault(row["dataset"], {})[method] = {
                "dense_reduction": row["dense_total_reduction_pct"],
                "sparse_reduction": row["sparse_total_reduction_pct"],
                "both_shallower": 100 * row["dual_depth_improvement_rate"],
            }
    return found


DEVELOPED = ("scifact", "nfcorpus", "trec-covid")


def held_out() -> dict[str, Any]:
    """Macros of the sets that the authors developed on, and of the four that they held out."""
    found: dict[str, Any] = {"development": {}, "held out": {}}
    for method in MAIN:
        own = results(method)
        for group, rows_of in found.items():
            part = [r for r in own if (r["dataset"] in DEVELOPED) == (group == "development")]
            rows_of[method] = {name: fmean([r[c] for r in part]) for name, c in COLUMNS.items()}
    return found


def build() -> dict[str, Any]:
    quarters, quarters_of = quartiles()
    spearman, spearman_of = correlations()
    controls = "operator-control-paired-tests"
    return {
        "name": "release",
        "setting": {
            "encoder": "bge_small",
            "generator": "qwen2_5_7b",
            "kappa": "60",
            "k": 20,
            "n_refs": 5,
            "draws": 3,
        },
        "queries": {row["dataset"]: row["queries"] for row in results("original")},
        "main": main_rows(),
        "per_dataset": per_dataset(),
        "channel_evidence": channel_evidence(),
        "external": external(),
        "primary_tests": {
            "original": tests_of("primary-paired-tests", "proposed_vs_original"),
            "shared": tests_of("primary-paired-tests", "proposed_vs_bridge_shared"),
        },
        "operator_controls": {
            method: macro_row("operator-control-results", name)
            for method, name in OPERATORS.items()
        },
        "operator_effects": {
            "Dense residual": tests_of(controls, "dense_residual_vs_dense_contextual"),
            "Sparse product": tests_of(controls, "sparse_product_vs_sparse_rewrite"),
        },
        "qudar_effects": qudar_effects(),
        "qudar_weights": qudar_weights(),
        "cutoffs": cutoffs(),
        "mechanism": mechanism(),
        "mechanism_quartiles": quarters,
        "mechanism_quartiles_by_dataset": quarters_of,
        "correlations": spearman,
        "correlations_by_dataset": spearman_of,
        "ablations": ablations(),
        "macro_intervals": macro_intervals(),
        "outcome_labels": outcome_labels(),
        "generation_cost": generation_cost(),
        "calibrated": calibrated(),
        "gains_over_shared": {"shared": changes(means("desa"), means("shared"))},
        "access_changes": access_changes(),
        "held_out": held_out(),
        "robustness": robustness(),
    }


if __name__ == "__main__":
    text = yaml.safe_dump(build(), sort_keys=False, default_flow_style=None, width=1000)
    FILE.write_text(HEAD + text, encoding="utf-8")
