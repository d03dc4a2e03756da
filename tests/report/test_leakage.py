"""Overlap of generated texts with relevant documents, from a run whose texts are planted."""

import json

import polars as pl
import pytest

from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.leakage import leakage_tables
from desa_ray.report.roles import Roles
from desa_ray.report.study import Study
from desa_ray.store.artifacts import Store
from tests.experiment.test_prepare import config
from tests.pipeline.test_lazy import computed

CHANNEL = "method.channels=[{name: sparse, kind: sparse, operator: rewrite}]"


@pytest.mark.slow  # a run of two cells
def test_leaked_queries_are_counted_and_left_out(collection, tmp_path):
    """q1's first draw holds part of its relevant document; an irrelevant one's text does not
    count.
    """
    file = collection / "generations" / "references.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        if (row["query_id"], row["draw"]) == ("q1", 0):
            row["texts"][3] = "So: the cat sat on"
            row["texts"][4] = "Cat sat ON the mat."
        if (row["query_id"], row["draw"]) == ("q2", 1):
            row["texts"][4] = "dogs chase cats"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    mine = ["method=bm25", "method.name=mine", "+method.prompt=references", CHANNEL]
    frames = []
    for own in (["method=bm25"], mine):
        frames.append(computed(config(collection, *own), tmp_path)[1])
    study = Study(pl.concat(frames), roles=Roles(subject="mine", reference="bm25"))
    shares, effects = leakage_tables(Store(str(tmp_path / "store")), study, Sampling(50))
    assert {row.values["method"] for row in shares.rows} == {"mine"}
    exact = {row.values["draw"]: row.values["exact"] for row in shares.rows}
    assert exact == {"0": 50, "1": 0, "2": 0, "any": 50}
    assert {row.values["8"] for row in shares.rows} == {0}
    means = [study.cell(study.datasets[0], name).means for name in ("mine", "bm25")]
    changes = means[0]["ndcg_at_10"] - means[1]["ndcg_at_10"]  # of q1 and q2
    found = {row.about["without"]: row.values for row in effects.rows}
    assert [found[kind]["queries"] for kind in ("", "exact", "13", "8")] == [2, 1, 2, 2]
    assert found["exact"]["removed"] == 50
    assert found[""]["ndcg_at_10"] == pytest.approx(changes.mean())
    assert found["exact"]["ndcg_at_10"] == pytest.approx(changes[1])
