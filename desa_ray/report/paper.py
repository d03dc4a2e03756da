"""The paper's preset: what its methods are called, and which are compared with which.

Only here and in `paper_tables.py` does the report know the paper's method by name.
"""

from collections.abc import Mapping

from desa_ray.report.roles import Roles

METHODS: Mapping[str, str] = {
    "original": "Original",
    "shared": "Shared",
    "dense_only": "Dense only",
    "sparse_only": "Sparse only",
    "desa": "DESA",
    "contextual_dense": "Contextual Dense",
    "rewrite_sparse": "Rewrite Sparse",
    "binary_mask": "Binary mask",
    "references_only": "References only",
    "references_product": "References product",
    "relaxed_count": "Relaxed by count",
    "relaxed_share": "Relaxed by share",
    "residual_weight": "Residual × 1/2",
    "residual_weight_twice": "Residual × 2",
    "masked_sum_quarter": "Masked sum, 1/4",
    "masked_sum": "Masked sum, 1/2",
    "masked_sum_three_quarters": "Masked sum, 3/4",
    "geometric_quarter": "Geometric mean, 1/4",
    "geometric": "Geometric mean, 1/2",
    "geometric_three_quarters": "Geometric mean, 3/4",
    "rank_sum": "Rank sum",
    "qudar_complete": "QuDAR-complete",
    "qudar_weighted": "QuDAR-weighted",
    "qudar_top1000": "QuDAR-Top-1000",
    "qudar_weighted_top1000": "QuDAR-Top-1000-weighted",
    "qudar_score": "QuDAR, scores",
    "qudar_score_confidence": "QuDAR, scores, weighted",
    "hyde": "HyDE",
    "mugi": "MuGI",
    "query2doc": "Query2doc",
    "mugi_controlled": "MuGI-controlled",
    "exp4fuse": "Exp4Fuse",
    "exp4fuse_hybrid": "Exp4Fuse, hybrid",
    "dvcqr": "DVCQR-style",
    "word2passage": "Word2Passage-style",
    "rm3": "RM3",
    "rm3_anchored": "RM3, anchored",
    "rocchio": "Rocchio",
    "rocchio_anchored": "Rocchio, anchored",
    "desa_rm3": "DESA, RM3 for references",
    "desa_plain": "DESA, plain prompt",
    "bm25": "BM25 alone",
    "bm25_rm3": "BM25 + RM3 alone",
    "dense_original": "Encoder alone",
    "desa_dense": "DESA, dense alone",
    "anchorqe": "AnchorQE",
    "anchorqe_calibrated": "AnchorQE, calibrated",
    "anchorqe_hybrid": "AnchorQE, hybrid",
}
CONSTRUCTIONS: Mapping[str, str] = {
    "original": "original query",
    "shared": "shared expansion",
    "dense_only": "single channel",
    "sparse_only": "single channel",
    "desa": "channel-asymmetric",
}
SUBJECT = "desa"
PARTS = {"dense": "dense_only", "sparse": "sparse_only"}
ABLATIONS = (
    "binary_mask",
    "references_only",
    "references_product",
    "relaxed_count",
    "relaxed_share",
)
CONTROLS = ("contextual_dense", "rewrite_sparse")
BESIDE_CALIBRATED = ("dense_original", "anchorqe", "desa_dense")  # the dense channel alone
ONE_CHANNEL = ("bm25", "dense_original")
PAPER = Roles(
    subject=SUBJECT,
    baselines=("original", "shared"),
    reference="original",
    parts=PARTS,
    ablations=ABLATIONS,
    main=tuple(CONSTRUCTIONS),
    inner=(*CONSTRUCTIONS, *CONTROLS, *ABLATIONS, *ONE_CHANNEL),
)
