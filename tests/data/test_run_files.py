"""Runs as parquet: read as a TREC run is, small, and the same bytes for the same rankings."""

import numpy as np
import polars as pl
import pytest

from desa_ray.data.run_files import write_run_parquet
from desa_ray.data.trec import read_run
from desa_ray.data.trec_writing import write_run
from desa_ray.errors import DesaError
from desa_ray.tracking.delivery import _linked

RUN = {"q 1": ["d2", "d 1", "100%"], "q2": []}
ROWS = {"query_id": list(RUN), "docs": list(RUN.values())}


def test_a_run_comes_back_with_its_ids_and_empty_rankings(tmp_path):
    frame = pl.DataFrame(ROWS)
    write_run_parquet(tmp_path / "run.parquet", frame)
    assert read_run(tmp_path / "run.parquet") == RUN
    write_run_parquet(tmp_path / "again.parquet", frame.rechunk())
    again = (tmp_path / "again.parquet").read_bytes()
    assert again == (tmp_path / "run.parquet").read_bytes()


def test_a_run_is_a_tenth_of_its_trec_file(tmp_path):
    """1,000 of 5,183 documents a query, as SciFact has; with its 300 queries it is a twentieth."""
    rng = np.random.default_rng(1)
    ids = [[str(10_000_000 + n) for n in rng.permutation(5183)[:1000]] for _ in range(40)]
    frame = pl.DataFrame({"query_id": [str(q) for q in range(40)], "docs": ids})
    write_run_parquet(tmp_path / "run.parquet", frame)
    write_run(tmp_path / "run.trec", frame, tag="desa-desa-draw0")
    sizes = [(tmp_path / name).stat().st_size for name in ("run.parquet", "run.trec")]
    assert sizes[0] * 10 < sizes[1]
    assert read_run(tmp_path / "run.parquet") == read_run(tmp_path / "run.trec")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"query_id": ["q"], "top": [["d"]]}, "columns query_id, top are not those of a run"),
        ({"query_id": [1], "docs": [["d"]]}, "are not those of a run"),
        ({"query_id": ["q", "q"], "docs": [["d"], ["e"]]}, "query 'q' is listed twice"),
        ({"query_id": ["q"], "docs": [["d", "d"]]}, "query 'q' lists a document twice"),
        ({"query_id": ["q"], "docs": [["d", None]]}, "an id is missing"),
        ({"query_id": ["q"], "docs": [["d", ""]]}, "an id is empty"),
        ({"query_id": ["q\x1b"], "docs": [["d"]]}, r"control character: 'q\\x1b'"),
        ({"query_id": ["q"], "docs": [["d\0e"]]}, r"control character: 'd\\x00e'"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path, rows, message):
    path = tmp_path / "a.parquet"
    pl.DataFrame(rows).write_parquet(path)
    with pytest.raises(DesaError, match=message) as refused:
        read_run(path)
    assert refused.value.where == str(path)


def test_damaged_and_absent_files_are_one_line(tmp_path):
    path = tmp_path / "a.parquet"
    with pytest.raises(DesaError, match="No such file"):
        read_run(path)
    path.write_bytes(b"PAR1 and nothing else PAR1")
    with pytest.raises(DesaError, match="cannot be read as parquet"):
        read_run(path)


def test_a_log_on_this_disk_links_to_runs(tmp_path):
    """Runs are linked, other files copied; a run written again leaves the log's as it is."""
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    place = LocalArtifactRepository((tmp_path / "log").as_uri())
    run, records = tmp_path / "run.draw1.parquet", tmp_path / "records.parquet"
    run.write_bytes(b"first")
    records.write_bytes(b"records")
    assert _linked(place, run)
    assert not _linked(place, records)
    logged = tmp_path / "log" / run.name
    assert logged.samefile(run)
    (tmp_path / "new").write_bytes(b"second")
    (tmp_path / "new").replace(run)
    assert logged.read_bytes() == b"first"
    assert _linked(place, run)
    assert logged.read_bytes() == b"second"
    assert sorted(path.name for path in logged.parent.iterdir()) == [run.name]
