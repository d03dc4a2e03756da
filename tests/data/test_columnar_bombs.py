"""Small parquet and arrow files that would unpack to gigabytes are refused before they are."""

import os
import resource
from collections.abc import Callable
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from beir_files import load, refusal, write

from desa_ray.data.run_files import read_run_parquet
from desa_ray.errors import DesaError
from desa_ray.parquet_pages import pages
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


# Files whose footers lie


def varint(number: int) -> bytes:
    """A zigzag integer of Thrift's compact protocol."""
    number, found = number << 1, b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def claims_less(path: Path) -> None:
    """Make the footer say that every chunk unpacks to nothing, without changing its length."""
    data = path.read_bytes()
    metadata = pq.read_metadata(path)
    length = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - length], data[-8 - length : -8]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            size = varint(group.column(place).total_uncompressed_size)
            assert size in footer
            footer = footer.replace(size, b"\x80" * (len(size) - 1) + b"\x00")
    path.write_bytes(body + footer + data[-8:])
    found = pq.read_metadata(path).row_group(0)
    sizes = [found.column(place).total_uncompressed_size for place in range(found.num_columns)]
    assert set(sizes) == {0}


def lying(path: Path) -> None:
    compressed(path)
    claims_less(path)


def hidden_prefixes(path: Path) -> None:
    """The footer says that the texts are plain."""
    prefixes(path)
    data = path.read_bytes()
    listed = b"\x19\x25\x06\x0e"  # the field `encodings`: RLE and DELTA_BYTE_ARRAY
    assert data.count(listed) == 1
    path.write_bytes(data.replace(listed, b"\x19\x25\x06\x00"))
    assert "DELTA_BYTE_ARRAY" not in str(pq.read_metadata(path).row_group(0).to_dict())
    claims_less(path)


def zeros(path: Path) -> None:
    """Millions of equal numbers take a few bytes, whatever the footer says."""
    one = pa.table({"_id": pa.array([0] * 5_000_000, pa.int64())})
    with pq.ParquetWriter(path, one.schema) as writer:
        for _ in range(4):
            writer.write_table(one)


def in_lists(path: Path) -> None:
    """Texts of a dictionary, in one row's list."""
    many = pa.ListArray.from_arrays(pa.array([0, 20_000], pa.int32()), repeated(20_000))
    table = pa.table({"_id": ["0"], "text": many})
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("corpus.parquet", lying, "unpacks to more than"),
        ("corpus.parquet", hidden_prefixes, "unpacks to more than"),
        ("corpus.parquet", zeros, "unpacks to more than"),
        ("corpus.arrow", in_lists, "column 'text' holds 'list<"),
    ],
)
def test_a_footer_that_lies_is_not_believed(name, make, said, tmp_path):
    folder = write(tmp_path / "set", [], [{"_id": "q", "text": "t"}], [("q", "1", 1)])
    (folder / "corpus.jsonl").unlink()
    make(folder / name)
    assert (folder / name).stat().st_size < 5 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = refusal(folder, kind="tables")
    assert name in found
    assert said in found
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB


@pytest.mark.parametrize("make", [lying, hidden_prefixes, zeros])
def test_a_run_whose_footer_lies_is_not_read(make, tmp_path):
    make(tmp_path / "run.parquet")
    with pytest.raises(DesaError, match=r"run\.parquet: (unpacks to more|has columns in the enc)"):
        read_run_parquet(tmp_path / "run.parquet")


def fixed(rows: int = 4096) -> Any:
    """Bytes of one long length: a page has but their indices."""
    return pa.array([b"x" * 100_000], pa.binary(100_000)).take(pa.array([0] * rows))


@pytest.mark.parametrize(
    "column",
    [fixed(2), pa.array([b"x"] * 2, pa.binary(1)), pa.array([Decimal(1)] * 2)],
    ids=["long", "byte", "decimal"],
)
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_bytes_of_a_fixed_length_are_no_texts(column, suffix, tmp_path):
    folder = write(tmp_path / "set", [], [{"_id": "q", "text": "t"}], [("q", "1", 1)])
    (folder / "corpus.jsonl").unlink()
    table = pa.table({"_id": ids(2), "text": column})
    if suffix == "parquet":
        pq.write_table(table, folder / "corpus.parquet")
    else:
        with pa.ipc.new_file(str(folder / "corpus.arrow"), table.schema) as writer:
            writer.write_table(table)
    assert "column 'text' holds" in refusal(folder, kind="tables")


def test_bytes_of_a_fixed_length_count_as_many(tmp_path):
    """In a column that nobody asked for, and in lists."""
    path = tmp_path / "run.parquet"
    lists = pa.ListArray.from_arrays(pa.array([0, 4096], pa.int32()), fixed())
    tables = [{"query_id": ids(4096), "docs": fixed()}, {"query_id": ["q"], "docs": lists}]
    for columns in tables:
        pq.write_table(pa.table(columns), path)
        assert path.stat().st_size < 1 << 20
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(DesaError, match=r"run\.parquet: unpacks to more than"):
            read_run_parquet(path)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # KiB


def test_a_dictionary_at_byte_0_is_none(tmp_path):
    """Some writers give the place of a dictionary that a column has not as 0; Arrow reads that."""
    path = tmp_path / "run.parquet"
    table = pa.table({"query_id": ["a", "b"], "docs": [["c"], ["d"]]})
    pq.write_table(table, path, use_dictionary=False, compression="none")
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - length], data[-8 - length : -8]
    # Fields 9 (`data_page_offset`, 4) and 12; 11 (`dictionary_page_offset`) goes in between
    without, given = b"\x26" + varint(4) + b"\x3c", b"\x26" + varint(4) + b"\x26\x00\x1c"
    assert footer.count(without) == 1
    footer = footer.replace(without, given)
    path.write_bytes(body + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert pq.read_metadata(path).row_group(0).column(0).dictionary_page_offset == 0
    assert pq.read_table(path) == table
    assert read_run_parquet(path) == {"a": ["c"], "b": ["d"]}


def test_lists_of_one_length_and_maps_count_their_texts(tmp_path):
    """Kinds of columns that repeat a text of a dictionary."""
    lists = pa.FixedSizeListArray.from_arrays(repeated(), 1)
    keys = pa.MapArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), repeated(), repeated())
    for place, column in enumerate((lists, keys)):
        path = tmp_path / f"{place}.parquet"
        pq.write_table(pa.table({"query_id": ids(), "docs": column}), path)
        assert path.stat().st_size < 5 << 20
        with pytest.raises(DesaError, match=rf"{place}\.parquet: unpacks to more than"):
            read_run_parquet(path)


def test_headers_of_pages_are_read_as_readers_do(tmp_path):
    """A second value of another type is skipped, and numbers of fields wrap at 16 bits."""
    whole = b"\x15\x00\x15\xc8\x01\x15\x0a\x2c\x15\x14\x15\x00\x15\x06\x15\x06\x00\x00"
    stream = BytesIO(b"PAR1" + whole + b"x" * 5)
    chunk = SimpleNamespace(
        data_page_offset=4,
        has_dictionary_page=False,
        dictionary_page_offset=None,
        total_compressed_size=len(whole) + 5,
        path_in_schema="text",
    )
    assert [*pages(stream, chunk, "f")] == [(100, 10, 0)]
    for further in (b"\x06\x04\x02", b"\x05" + varint(0) + b"\x02"):
        # After field 5: field 2 again as a 64-bit number; a field 0
        stream = BytesIO(b"PAR1" + whole[:-1] + further + b"\x00" + b"x" * 5)
        chunk.total_compressed_size = len(whole) + len(further) + 5
        assert [*pages(stream, chunk, "f")] == [(100, 10, 0)]
    wrapped = b"\x05" + varint(65538) + b"\xd0\x0f"  # field 2 once more, 1,000 bytes
    stream = BytesIO(b"PAR1" + whole[:-1] + wrapped + b"\x00" + b"x" * 5)
    chunk.total_compressed_size = len(whole) + len(wrapped) + 5
    assert [*pages(stream, chunk, "f")] == [(1000, 10, 0)]
    for cut in range(1, len(whole)):
        chunk.total_compressed_size = len(whole)
        with pytest.raises(DesaError, match="no page of column 'text' at byte 4"):
            [*pages(BytesIO(b"PAR1" + whole[:cut]), chunk, "f")]
