"""Printed names of methods, data sets and outcomes, in the order in which tables list them."""

from dataclasses import dataclass

from desa_ray.report.paper import METHODS

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


# methods without the queries that each draw was calibrated with, so that a query may lack a draw
LEAVES_OUT = ("anchorqe_calibrated",)
STAND_IN = " on "  # between a method and the texts it was given in place of its own


def method_name(method: str) -> str:
    """The printed name; a method that ran on other texts than its own says so: `HyDE on
    references`.
    """
    own, mark, texts = method.partition(STAND_IN)
    return METHODS.get(own, own) + mark + texts


def dataset_name(dataset: str) -> str:
    return DATASETS.get(dataset, dataset)
