"""What methods, data sets and outcomes are called in print, in the order in which tables
list them.
"""

from dataclasses import dataclass

METHODS = {
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
    "bm25": "BM25 alone",
    "dense_original": "Encoder alone",
    "desa_dense": "DESA, dense alone",
    "anchorqe": "AnchorQE",
    "anchorqe_calibrated": "AnchorQE, calibrated",
    "anchorqe_hybrid": "AnchorQE, hybrid",
}
CONSTRUCTIONS = {
    "original": "original query",
    "shared": "shared expansion",
    "dense_only": "single channel",
    "sparse_only": "single channel",
    "desa": "channel-asymmetric",
}
DATASETS = {
    "arguana": "ArguAna",
    "fiqa": "FiQA",
    "nfcorpus": "NFCorpus",
    "scidocs": "SCIDOCS",
    "scifact": "SciFact",
    "trec-covid": "TREC-COVID",
    "webis-touche2020": "Touché-2020",
}


@dataclass(frozen=True)
class Outcome:
    """A column of the records as an outcome: its printed name and format, and whether more is
    better.
    """

    column: str
    title: str
    form: str
    higher: bool

    @property
    def sign(self) -> int:
        """Effects are own - other where more is better, other - own where less is (method.md
        section 10).
        """
        return 1 if self.higher else -1


NDCG = Outcome("ndcg_at_10", "nDCG@10", "{:.4f}", higher=True)
RECALL = Outcome("recall_at_20", "Recall@20", "{:.4f}", higher=True)
DEPTH_DENSE = Outcome("depth_dense", "L_D", "{:.1f}", higher=False)
DEPTH_SPARSE = Outcome("depth_sparse", "L_S", "{:.1f}", higher=False)
DEPTH_TOTAL = Outcome("depth_total", "total depth", "{:.1f}", higher=False)
EFFECTIVENESS = (NDCG, RECALL)
PRIMARY = (NDCG, RECALL, DEPTH_DENSE, DEPTH_SPARSE)


STAND_IN = " on "  # between a method and the texts it was given in place of its own


def method_name(method: str) -> str:
    """The printed name; a method that ran on other texts than its own says so: `HyDE on
    references`.
    """
    own, mark, texts = method.partition(STAND_IN)
    return METHODS.get(own, own) + mark + texts


def dataset_name(dataset: str) -> str:
    return DATASETS.get(dataset, dataset)
