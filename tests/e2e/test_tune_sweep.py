"""`desa tune --sweep`: the values of a variant are those of the sweep's own records."""

import json
from pathlib import Path

import polars as pl
import pytest

from desa_ray.errors import DesaError
from desa_ray.jobs.tune import main
from desa_ray.report.load import read_records
from tests.desa_fixtures import dataset, run_desa

pytestmark = pytest.mark.long

VARIANTS = {"rrf k60 1:1": "rrf", "isr 1:1": "isr", "convex 1/2:1/2": "convex"}
# The slice has 240 documents, fewer than the 1,000 that are read of a list.
MEASURES = {"nDCG@10": "ndcg_at_10", "R@20": "recall_at_20"}


def tuned(sweep: Path, home: Path, measure: str, out: Path, *more: str) -> pl.DataFrame:
    """One row per query: the values of every variant, under its name."""
    rules = ["--rules", ",".join(VARIANTS.values()), "--resamples", "199"]
    store = ["--store", str(home / "store")]
    given = ["--sweep", str(sweep), *store, *rules, "--measure", measure, "--out", str(out)]
    assert main([*given, *more]) == 0
    names = json.loads((out / "tune.json").read_text())["names"]
    renamed = {f"variant_{n}": name for n, name in enumerate(names)}
    return pl.read_parquet(out / "values.parquet").rename(renamed)


def test_values_are_those_of_the_records(demo_slice, warm_home, tmp_path):
    """For rules of ranks and of scores, as means over three draws."""
    swept = ["method=shared,desa", "fusion=rrf,isr,convex", "draws=3", "cluster=serial"]
    done = run_desa(tmp_path, warm_home, "run", "-m", *swept, *dataset(demo_slice))
    assert done.returncode == 0, done.stderr
    sweep = min((tmp_path / "outputs").rglob("summary.json"), key=lambda path: len(path.parts))
    records = read_records(sweep.parent)
    for method in ("shared", "desa"):
        for measure, column in MEASURES.items():
            out = tmp_path / f"{method}-{column}"
            found = tuned(sweep.parent, warm_home, measure, out, "--method", method)
            for variant, rule in VARIANTS.items():
                used = pl.col("settings").str.contains(f'"fusion.rule": ?"{rule}"')
                if rule == "rrf":  # the default is not written
                    used = ~pl.col("settings").str.contains("fusion.rule")
                own = records.filter(pl.col("method") == method, used)
                wanted = own.group_by("query_id").agg(pl.col(column).mean()).sort("query_id")
                assert wanted["query_id"].to_list() == found["query_id"].to_list()
                assert found[variant].to_list() == pytest.approx(wanted[column].to_list(), abs=1e-9)


def test_what_a_sweep_lacks_is_refused(demo_slice, warm_home, tmp_path, capsys):
    """Scores that were not kept, and methods that were not run."""
    done = run_desa(
        tmp_path, warm_home, "run", "method=desa", "cluster=serial", *dataset(demo_slice)
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (path.parent for path in (tmp_path / "outputs").rglob("summary.json"))
    store = ["--store", str(warm_home / "store")]
    for more, what in (
        (["--rules", "convex"], "the sweep stored no scores"),
        (["--method", "desaa"], "no records of method 'desaa'"),
        (["--dataset", "scifact"], "no records of data set 'scifact'"),
    ):
        with pytest.raises(DesaError, match=what):
            main(["--sweep", str(folder), *store, *more])
