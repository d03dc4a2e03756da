"""AnchorQE's calibrated alpha on a slice: found anew from vectors and plain float64 products."""

import numpy as np
import pytest

from desa_ray.stages.calibrated import read_calibration
from desa_ray.stages.stored_vectors import read_vectors, vector_shards
from desa_ray.stages.text_vectors import text_vectors
from tests.desa_fixtures import dataset
from tests.pipeline.test_lazy import computed, typed


def test_alpha_comes_from_eight_queries_that_are_left_out(demo_slice, warm_home):
    config = typed("method=anchorqe_calibrated", *dataset(demo_slice), "draws=1")
    cell, records, _ = computed(config, warm_home)
    (fusion,) = cell.fused
    ranking = fusion.inputs["channel:dense"]
    alpha, rows = read_calibration(ranking.inputs["calibration"])
    assert len(rows) == 8
    vectors = ranking.inputs["vectors"]
    shards = [read_vectors(vectors, shard) for shard in vector_shards(vectors)]
    documents = np.concatenate(shards).astype(np.float64)
    queries = text_vectors(ranking.inputs["query"])[rows, 0].astype(np.float64)
    means = text_vectors(ranking.inputs["rewrite"])[rows].astype(np.float64).mean(axis=1)
    tops, tens = [], []
    for side in (queries, means):
        best = np.sort(side @ documents.T, axis=1)[:, ::-1]
        tops.append(np.maximum(best[:, 0], 0).mean())
        tens.append(np.maximum(best[:, :10].mean(axis=1), 0).mean())
    expected = tops[1] / sum(tops) * (tens[1] / sum(tens))
    assert alpha == pytest.approx(expected, abs=1e-7)
    assert 0.1 < alpha < 0.5
    everybody = ranking.inputs["queries"].rows
    assert records.height == everybody - 8
    assert records["depth_sparse"].null_count() == records.height
    assert records["fallback"].sum() <= 1
