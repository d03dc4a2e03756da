"""Small parquet and arrow files that would unpack to gigabytes are refused before they are."""

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from beir_files import load, refusal, write

from desa_ray.data.run_files import read_run_parquet
from desa_ray.errors import DesaError
from desa_ray.report.load import load_records
from tests.fuzz.made_records import records

ROWS = 300
TEXT = "x" * (1 << 20)


def repeated(rows: int = ROWS) -> Any:
    """A text of a mebibyte that every row repeats, kept once."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([TEXT]))


def ids(rows: int = ROWS) -> list[str]:
    return [str(number) for number in range(rows)]


def dictionary(path: Path) -> None:
    pq.write_table(pa.table({"_id": ids(), "text": repeated()}), path, compression="zstd")


def compressed(path: Path) -> None:
    table = pa.table({"_id": ids(200), "text": [TEXT] * 200})
    pq.write_table(table, path, compression="zstd", use_dictionary=False)


def prefixes(path: Path) -> None:
    table = pa.table({"_id": ids(), "text": repeated().dictionary_decode()})
    kinds = {"text": "DELTA_BYTE_ARRAY"}
    pq.write_table(table, path, compression="zstd", use_dictionary=False, column_encoding=kinds)


def arrow_dictionary(path: Path) -> None:
    table = pa.table({"_id": ids(), "text": repeated()})
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


def arrow_compressed(path: Path) -> None:
    table = pa.table({"_id": ids(200), "text": [TEXT] * 200})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(str(path), table.schema, options=options) as writer:
        writer.write_table(table)


def arrow_runs(path: Path) -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([ROWS], pa.int32()), pa.array([TEXT]))
    table = pa.table({"_id": ids(), "text": runs})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("corpus.parquet", dictionary),
        ("corpus.parquet", compressed),
        ("corpus.parquet", prefixes),
        ("corpus.arrow", arrow_dictionary),
        ("corpus.arrow", arrow_compressed),
        ("corpus.arrow", arrow_runs),
    ],
)
def test_a_corpus_that_repeats_a_text_is_refused(name, make: Callable[[Path], None], tmp_path):
    folder = write(tmp_path / "set", [], [{"_id": "q", "text": "t"}], [("q", "1", 1)])
    (folder / "corpus.jsonl").unlink()
    make(folder / name)
    assert (folder / name).stat().st_size < 5 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = refusal(folder, kind="tables")
    assert name in said
    assert "unpacks to more than" in said
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB


def test_a_compressed_arrow_file_within_limits_is_read(tmp_path):
    folder = write(tmp_path / "set", [], [{"_id": "q", "text": "t"}], [("q", "1", 1)])
    (folder / "corpus.jsonl").unlink()
    table = pa.table({"_id": ["0", "1"], "text": ["fish", "swim"]})
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(str(folder / "corpus.arrow"), table.schema, options=options) as out:
        out.write_table(table)
    assert load(folder, kind="tables").documents["text"].to_list() == ["fish", "swim"]


def test_records_that_repeat_a_text_are_refused(tmp_path):
    table = records().head(1).to_arrow()
    many = pa.concat_tables([table] * 400)
    place = many.schema.get_field_index("settings") if "settings" in many.schema.names else 0
    wide = pa.array([TEXT] * len(many)).dictionary_encode()
    many = many.set_column(place, many.schema.names[place], wide)
    pq.write_table(many, tmp_path / "records.parquet")
    assert (tmp_path / "records.parquet").stat().st_size < 5 << 20
    with pytest.raises(DesaError, match=r"records\.parquet: unpacks to more than"):
        load_records(tmp_path / "records.parquet")


def test_runs_that_repeat_an_id_are_refused(tmp_path):
    docs = pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), repeated())
    path = tmp_path / "run.parquet"
    pq.write_table(pa.table({"query_id": ids(), "docs": docs}), path)
    assert path.stat().st_size < 5 << 20
    with pytest.raises(DesaError, match=r"run\.parquet: unpacks to more than"):
        read_run_parquet(path)


@pytest.mark.timeout(20)
def test_pipes_and_devices_in_place_of_parquet_files_are_not_waited_for(tmp_path):
    for name in ("run.parquet", "records.parquet"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "zero.parquet").symlink_to("/dev/zero")
    for name in ("run.parquet", "zero.parquet"):
        with pytest.raises(DesaError, match=f"{name}: is not a plain file"):
            read_run_parquet(tmp_path / name)
    with pytest.raises(DesaError, match=r"records\.parquet: is not a plain file"):
        load_records(tmp_path)
    with pytest.raises(DesaError, match="neither a file or folder"):
        load_records(tmp_path / "records.parquet")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "loop", "long"])
def test_what_stands_in_place_of_a_summary_is_damage(kind, tmp_path, monkeypatch):
    """In a folder from elsewhere anything can stand beside the records."""
    records().write_parquet(tmp_path / "records.parquet")
    place = tmp_path / "summary.json"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind in ("device", "loop"):
        place.symlink_to("/dev/zero" if kind == "device" else place)
    elif kind == "folder":
        place.mkdir()
    else:
        monkeypatch.setattr("desa_ray.report.records_check.MOST_SUMMARY", 10)
        place.write_text('{"cells": []}')
    with pytest.raises(DesaError, match=r"summary\.json: is damaged"):
        load_records(tmp_path)


def test_runs_and_records_that_polars_writes_are_read(tmp_path):
    frame = pl.DataFrame({"query_id": ["q", "r"], "docs": [["a", "b"], []]})
    frame.write_parquet(tmp_path / "run.parquet")
    assert read_run_parquet(tmp_path / "run.parquet") == {"q": ["a", "b"], "r": []}
    records().write_parquet(tmp_path / "records.parquet")
    assert load_records(tmp_path / "records.parquet").height == records().height
