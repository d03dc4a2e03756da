"""`desa report trec=true` spells ids as `desa run` does: percent-encoded where one has a blank,
else as they are.
"""

from pathlib import Path
from urllib.parse import unquote

import polars as pl
import pytest

from desa_ray.data.trec import read_run
from desa_ray.errors import DesaError
from desa_ray.report.study import Study
from desa_ray.report.trec_files import export_trec
from desa_ray.store.artifacts import Store
from tests.report.made_up import cell


def _export(records: pl.DataFrame, tmp_path: Path) -> tuple[dict[str, list[str]], str]:
    """The run of Original, and notes."""
    store = Store(tmp_path / "store")
    notes: list[str] = []
    export_trec(Study(records), store, tmp_path / "trec", notes.append)
    return read_run(tmp_path / "trec" / "scifact" / "original.draw0.trec"), "\n".join(notes)


def test_ids_without_blanks_stay_as_they_are(tmp_path):
    records = cell("scifact", "original", queries=["q%1", "q2"])
    top = dict(records.select("query_id", "top").iter_rows())
    run, notes = _export(records, tmp_path)
    assert run == top
    assert "percent" not in notes


def test_ids_with_blanks_are_encoded_and_can_be_decoded(tmp_path):
    records = cell("scifact", "original", queries=["a b", "a%20b", "c\td"])
    top = dict(records.select("query_id", "top").iter_rows())
    run, notes = _export(records, tmp_path)
    assert set(run) == {"a%20b", "a%2520b", "c%09d"}
    assert {
        unquote(query): [unquote(name) for name in names] for query, names in run.items()
    } == top
    assert "ids with blanks are percent-encoded" in notes


@pytest.mark.parametrize("column", ["dataset", "method"])
@pytest.mark.parametrize(
    "name", ["../../out", "/tmp/x", "a/b", "..", "a\x00b", "CON", "x" * 300, ""]
)
def test_names_that_lead_elsewhere_are_refused(column, name, tmp_path):
    """Records of others name data sets and methods; nothing is written."""
    records = cell("scifact", "original").with_columns(pl.lit(name).alias(column))
    with pytest.raises(DesaError, match=f"column {column}: .* cannot name a file"):
        _export(records, tmp_path / "in" / "in")
    assert list(tmp_path.iterdir()) == []


def test_methods_that_would_share_a_file_are_refused(tmp_path):
    records = pl.concat([cell("scifact", "DESA"), cell("scifact", "desa")])
    with pytest.raises(DesaError, match=r"column method: .*the same file where case is ignored"):
        _export(records, tmp_path)
