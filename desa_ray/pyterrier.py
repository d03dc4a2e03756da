"""PyTerrier: exact reciprocal rank fusion as a transformer over other transformers.

PyTerrier (`pip install python-terrier`) is not a dependency of this platform; this module needs it.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from importlib import import_module
from typing import Any

import pandas as pd

import desa_ray
from desa_ray.channels import plain_channels, rankings
from desa_ray.errors import DesaError

Transformer: Any = import_module("pyterrier").Transformer


class ExactRRF(Transformer):
    """Fuses the results of transformers by weighted reciprocal ranks, compared exactly.

    `ExactRRF(bm25, dense, kappa=60)` takes queries (`qid`, `query`) and gives `qid`, `query`,
    `docno`, `score` and `rank` (from 0), best first. Every result list is read by score descending,
    ties by docno. Scores are the fused ones as float64; where two documents would get one float,
    the lower gets the next smaller one, so that sorting by score gives the same order.

    Args:
        transformers: two or more retrievers or pipelines.
        weights: one per transformer, exact: numbers, Fractions or strings such as "1/4"; 1 each
            where left out.
        kappa: above -1, exact in the same way.
        num_results: how many documents per query.
    """

    def __init__(
        self,
        *transformers: Callable[[pd.DataFrame], pd.DataFrame],
        weights: Sequence[int | str | float | Fraction] | None = None,
        kappa: int | str | float | Fraction = 60,
        num_results: int = 1000,
    ):
        super().__init__()
        if len(transformers) < 2:
            what = f"{len(transformers)} transformers given"
            raise DesaError(what, where="ExactRRF", hint="give at least two")
        self.transformers, self.weights = transformers, weights
        self.kappa, self.num_results = kappa, num_results

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """The fused results of the queries in `inp`.

        Raises:
            DesaError: as `desa_ray.fuse`; results without qid, docno and score.
        """
        results = [transformer(inp) for transformer in self.transformers]
        for number, found in enumerate(results):
            if plain_channels([found]) is not None:
                what = "its results have no column qid"
                raise DesaError(what, where=f"transformer {number}")
        runs = [rankings(found, f"transformer {n}") for n, found in enumerate(results)]
        texts = dict(zip(inp["qid"], inp["query"], strict=True)) if "query" in inp else {}
        rows = []
        for qid in dict.fromkeys(inp["qid"]):
            fused = desa_ray.fuse(
                [run.get(qid, ()) for run in runs],
                weights=self.weights,
                kappa=self.kappa,
                k=self.num_results,
            )
            score = math.inf
            for rank, (docno, exact) in enumerate(zip(fused.documents, fused.scores, strict=True)):
                score = min(float(exact), math.nextafter(score, -math.inf))
                rows.append((qid, texts.get(qid), docno, score, rank))
        found = pd.DataFrame(rows, columns=["qid", "query", "docno", "score", "rank"])
        return found if texts else found.drop(columns="query")
