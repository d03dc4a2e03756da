"""Sources that are no files, and grades that no scale has: refused at once, by name."""

import json
import os
import zipfile
from pathlib import Path

import polars as pl
import pytest

from desa_ray.config import DatasetConfig
from desa_ray.data import fingerprint, generations_folder, load_collection
from desa_ray.data.raw import MAX_GRADE
from desa_ray.data.trec import read_qrels
from desa_ray.errors import DesaError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A collection of one document and one query."""
    place = tmp_path / "tiny"
    (place / "qrels").mkdir(parents=True)
    (place / "corpus.jsonl").write_text(
        json.dumps({"_id": "d1", "title": "", "text": "a cat"}) + "\n"
    )
    (place / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": "cat"}) + "\n")
    (place / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    return place


def _config(path: Path) -> DatasetConfig:
    return DatasetConfig(name="tiny", kind="beir_folder", path=str(path))


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_pipes_devices_and_folders_are_refused_and_not_waited(name, kind, folder, tmp_path):
    """Pipes devices and folders are refused and not waited for."""
    (folder / name).unlink()
    if kind == "pipe":
        os.mkfifo(folder / name)
    elif kind == "device":
        (folder / name).symlink_to("/dev/zero")
    else:
        (folder / name).mkdir()
    with pytest.raises(DesaError, match=f"{Path(name).name}: is not a plain file"):
        fingerprint(_config(folder), data_home=tmp_path)


def test_a_pipe_or_device_in_place_of_a_zip_is_refused(tmp_path):
    os.mkfifo(tmp_path / "set.zip")
    for path in (tmp_path / "set.zip", Path("/dev/zero")):
        with pytest.raises(DesaError, match="neither a folder nor a plain file"):
            fingerprint(_config(path), data_home=tmp_path)


@pytest.mark.parametrize("grade", [MAX_GRADE + 1, 100_000_000, 999_999_999])
def test_a_grade_beyond_any_scale_is_refused_with_its_judgment(grade, folder, tmp_path):
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\nq1\td1\t{grade}\n")
    with pytest.raises(DesaError, match=rf"grades above {MAX_GRADE} \(1\): 'q1/d1'"):
        load_collection(_config(folder), data_home=tmp_path)
    (tmp_path / "qrels.txt").write_text(f"q1 0 d1 {grade}\n")
    with pytest.raises(DesaError, match=rf"qrels.txt:1: grade is above {MAX_GRADE}"):
        read_qrels(tmp_path / "qrels.txt")


def test_the_highest_grade_is_taken(folder, tmp_path):
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\nq1\td1\t{MAX_GRADE}\n")
    assert load_collection(_config(folder), data_home=tmp_path).qrels["grade"].to_list() == [
        MAX_GRADE
    ]


def test_beir_judgments_are_read_like_trec_ones(tmp_path):
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq 1\td1\t2\nq2\td 2\t0\n")
    rows = [("q 1", "d1", 2), ("q2", "d 2", 0)]
    schema = {"query_id": pl.String, "doc_id": pl.String, "grade": pl.Int32}
    assert read_qrels(tmp_path / "test.tsv").equals(pl.DataFrame(rows, schema, orient="row"))
    (tmp_path / "odd.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\nq1\td2\thigh\n")
    with pytest.raises(DesaError, match=r"odd\.tsv:2: not three tab-separated columns") as caught:
        read_qrels(tmp_path / "odd.tsv")
    assert "odd.tsv:3: grade is not a whole number: high" in str(caught.value)
    (tmp_path / "headless.tsv").write_text("q1\td1\t2\n")
    with pytest.raises(DesaError, match=r"headless\.tsv:1: 3 fields, expected 4"):
        read_qrels(tmp_path / "headless.tsv")


def test_a_zip_whose_member_is_missing_its_bytes_is_refused(folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "set.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in folder.rglob("*"):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    whole = (tmp_path / "set.zip").read_bytes()
    (tmp_path / "set.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DesaError, match="cannot be opened as a folder or zip"):
        load_collection(_config(tmp_path / "set.zip"), data_home=tmp_path)


@pytest.mark.parametrize("wrapping", ["", "tiny/"])
def test_recorded_texts_within_a_zip_are_not_passed(wrapping, folder, tmp_path):
    """Recorded texts within a zip are not passed over in silence."""
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.writestr(f"{wrapping}corpus.jsonl", "")
    assert generations_folder(_config(tmp_path / "set.zip"), data_home=tmp_path) is None
    with zipfile.ZipFile(tmp_path / "set.zip", "a") as archive:
        archive.writestr(f"{wrapping}generations/references.jsonl", "{}")
    with pytest.raises(
        DesaError, match=r"set\.zip: recorded texts cannot be read .*generator\.folder="
    ):
        generations_folder(_config(tmp_path / "set.zip"), data_home=tmp_path)
