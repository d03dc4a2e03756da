"""`desa verify`: what can be checked with what is there is checked, the rest is named with a
reason.
"""

import csv
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra

from desa_ray.errors import DesaError
from desa_ray.jobs import verify
from tests.reference import REFERENCE
from tests.release_expected import FOLDER, NAMES, written

QUIET = ["cluster=serial", "tracking.enabled=false"]


@pytest.mark.parametrize("dataset", NAMES)
def test_expectations_follow_from_the_published_rows(dataset):
    """`python -m tests.release_expected` writes them; all seven sets are there."""
    text = (FOLDER / f"{dataset}.yaml").read_text(encoding="utf-8")
    assert text == written(dataset)
    found = yaml.safe_load(text)["expected"]
    kinds = {o for row in found for o in row["overrides"]}
    assert {"method=bm25", "method=original", "encoder=bge_small", "fusion.kappa=2"} <= kinds
    assert len(NAMES) == 7


@pytest.fixture
def check(collection: Path, tmp_path: Path, monkeypatch, capsys) -> Callable:
    """Runs `desa verify` in this process on the tiny collection; its exit code and what it
    printed.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    (tmp_path / "my" / "expected").mkdir(parents=True)

    def run(*conditions: tuple[str, str, float], **more: str) -> tuple[int, str]:
        rows: list[dict] = [
            {
                "overrides": ["dataset=beir_folder", *overrides.split()],
                "metric": metric,
                "value": value,
                "tolerance": 0.001,
                "source": "by hand",
            }
            for overrides, metric, value in conditions
        ]
        rows[-1] |= more
        file = tmp_path / "my" / "expected" / "own.yaml"
        file.write_text(f"# @package _global_\n{yaml.safe_dump({'expected': rows})}")
        GlobalHydra.instance().clear()
        own = [f"dataset.path={collection}", "dataset.name=tiny"]
        code = verify.main(["--config-dir", "my", "expected=own", *own, *QUIET])
        captured = capsys.readouterr()
        return code, " ".join((captured.out + captured.err).split())

    return run


NOT_HERE = "encoder.path=nowhere"


@pytest.mark.long
def test_what_can_be_checked_is_checked_and_the_rest_named(check):
    """BM25 needs no encoder: each query has one document with its word, but `cat` is not `cats`.

    Lucene's analyser stems, so `cat` finds two documents and `sun` one.
    """
    missing = (f"method=original {NOT_HERE}", "recall_at_20", 1.0)
    support = (f"method=bm25 {NOT_HERE}", "sparse_support", 1.5)
    code, text = check(support, missing)
    assert code == 0, text
    assert "1 expectation not checked:" in text
    assert "nowhere" in text
    assert "1 of 2 expectations checked, 0 do not agree" in text
    code, text = check(support, (support[0], "ndcg_at_10", 0.25), missing)
    assert code == 1
    assert "2 of 3 expectations checked, 1 do not agree" in text
    code, text = check(support, (support[0], "ndcg_at_10", 0.25), differs="another reading")
    assert code == 0, text
    assert "1 number for comparison only: another reading" in text
    assert "1 of 1 expectation checked, 0 do not agree" in text
    with pytest.raises(DesaError, match="none of 1 expectation can be checked"):
        check(missing)


@pytest.mark.parametrize("dataset", NAMES)
def test_what_is_missing_is_a_line_for_each_condition(dataset, tmp_path, monkeypatch, capsys):
    """Here neither the collections nor the paper's encoders are: every condition names one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    GlobalHydra.instance().clear()
    with pytest.raises(DesaError, match="expectations can be checked, for the reasons above"):
        verify.main([f"expected={dataset}", *QUIET])
    lines = [line for line in capsys.readouterr().err.splitlines() if "not checked" in line]
    rows = yaml.safe_load((FOLDER / f"{dataset}.yaml").read_text(encoding="utf-8"))["expected"]
    conditions = {" ".join(row["overrides"]): 0 for row in rows}
    for row in rows:
        conditions[" ".join(row["overrides"])] += 1
    assert len(lines) == len(conditions)
    for overrides, number in conditions.items():
        (line,) = [own for own in lines if f"{overrides}: " in own]
        assert f": {number} expectation" in line
        reason = line.partition("not checked: ")[2]
        encoded = "encoder=" in overrides
        assert reason.startswith((f"dataset {dataset}: ", *(("encoder ",) if encoded else ())))


@pytest.mark.slow
def test_bm25_on_scifact_has_the_published_support(scifact_folder, desa, tmp_path):
    """Query by query, and no encoder is needed for it."""
    path = f"dataset.path={scifact_folder}"
    desa("run", "dataset=scifact", path, "method=bm25", *QUIET)
    with (REFERENCE / "release" / "scifact-sparse-support.csv").open() as file:
        published = {row["query_id"]: int(row["sparse_support"]) for row in csv.DictReader(file)}
    (records,) = tmp_path.glob("outputs/**/records.parquet")
    found = pl.read_parquet(records).select("query_id", "sparse_support")
    assert dict(found.iter_rows()) == published
    assert len(published) == 300
