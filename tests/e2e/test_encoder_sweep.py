"""A sweep over four encoders of different quality, `+experiment=encoder`, and the report that
orders them with intervals.
"""

import json

import polars as pl
import pytest

from tests.desa_fixtures import dataset

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
ENCODERS = ("wordllama", "minilm_l3", "minilm_l6_int8", "minilm_l6")


def test_four_encoders_stand_in_one_report(demo_slice, desa, tmp_path):
    done = desa(
        "run", "-m", "+experiment=encoder", *dataset(demo_slice), "generator=recorded",
        f"encoder={','.join(ENCODERS)}", "draws=1", "cluster=serial", "tracking.enabled=false",
        timeout=800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    records = pl.concat(
        [pl.read_parquet(file) for file in sorted(tmp_path.rglob("records.parquet"))],
        how="diagonal_relaxed",
    )
    assert records.group_by("encoder", "method").len()["len"].to_list() == [20] * 8
    means = dict(
        records.filter(pl.col("method") == "original")
        .group_by("encoder")
        .agg(pl.col("ndcg_at_10").mean())
        .iter_rows()
    )
    # Which is better is a matter of SciFact (docs/models.md): twenty queries of a slice do not say.
    assert len(set(means.values())) > 2
    assert abs(means["minilm_l6_int8"] - means["minilm_l6"]) < 0.05  # the same weights, rounded
    done = desa("report", "tracking.enabled=false", "report.figures=[]", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (summary,) = tmp_path.glob("outputs/reports/*/*/report.json")
    assert "order_encoder" in json.loads(summary.read_text())["tables"]
    table = pl.read_csv(summary.parent / "tables" / "order_encoder.csv")
    own = table.filter(pl.col("method") == "Original")
    assert own["value"].to_list() == sorted(means, key=lambda name: (-means[name], name))
    assert own["ndcg"].to_list() == pytest.approx(sorted(means.values(), reverse=True))
    assert (own["ci_low"] <= own["ndcg"]).all()
    assert (own["ndcg"] <= own["ci_high"]).all()
    assert own["ahead_ci_low"].null_count() == 1
