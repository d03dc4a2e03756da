"""Collections from folders and archives, also hostile ones."""

import gzip
import re
import stat
import zipfile
from pathlib import Path

import pytest

from desa_ray import unpacking
from desa_ray.data import fingerprint
from desa_ray.errors import DesaError
from tests.data.source_files import FILES, config, hashes, load, make_folder, make_zip, refusal


def test_a_folder_its_zip_a_wrapped_zip_and_gzipped_files(
    tmp_path: Path,
) -> None:
    """A folder its zip a wrapped zip and gzipped files are one collection."""
    folder = make_folder(tmp_path / "folder")
    packed = make_folder(tmp_path / "packed")
    for name in ("corpus.jsonl", "qrels/test.tsv"):
        (packed / f"{name}.gz").write_bytes(gzip.compress((packed / name).read_bytes()))
        (packed / name).unlink()
    wrapped = make_zip(tmp_path / "wrapped.zip", wrapping="mine/")
    with zipfile.ZipFile(wrapped, "a") as archive:
        archive.writestr("__MACOSX/mine/._corpus.jsonl", "resource fork")
        archive.writestr("mine/README.md", "not part of the layout")
    places = [folder, packed, wrapped, make_zip(tmp_path / "plain.zip")]
    assert len({hashes(load(place)) for place in places}) == 1
    assert len({fingerprint(config(place), data_home=tmp_path) for place in places}) == 1


def test_nothing_of_a_zip_is_ever_written(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "only" / "mine.zip")
    load(path)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "name", ["../evil.jsonl", "a/../../evil", "/etc/evil", "..\\evil", "C:/evil"]
)
def test_a_zip_with_names_that_lead_out_is_refused(tmp_path: Path, name: str) -> None:
    text = refusal(make_zip(tmp_path / "mine.zip", members=FILES | {name: "x"}))
    assert "mine.zip: refused, 1 names that point outside the archive: " in text


def test_a_zip_with_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "mine.zip", members={name: FILES[name] for name in list(FILES)[1:]})
    link = zipfile.ZipInfo("corpus.jsonl")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    assert "refused, 1 symbolic links: 'corpus.jsonl'" in refusal(path)


def test_a_zip_with_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    data = bytearray(make_zip(tmp_path / "mine.zip").read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1  # the flag in the central directory
    (tmp_path / "mine.zip").write_bytes(data)
    assert "refused, 1 encrypted members" in refusal(tmp_path / "mine.zip")


def test_a_decompression_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = make_zip(
        tmp_path / "mine.zip", members=FILES | {"corpus.jsonl": b" " * (unpacking.SMALL + 1)}
    )
    assert "refused, 1 members that look like decompression bombs: 'corpus.jsonl'" in refusal(path)


def test_a_gzip_bomb_stops_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "SMALL", 1 << 20)
    folder = make_folder(tmp_path / "folder")
    (folder / "corpus.jsonl").unlink()
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(b"\n" * (4 << 20)))
    assert "corpus.jsonl.gz: unpacks to more than 1 MiB" in refusal(folder)
    with pytest.raises(DesaError, match="unpacks to more than 1 MiB"):
        fingerprint(config(folder), data_home=tmp_path)


def test_a_zip_that_lies_about_a_members_size_is_refused(tmp_path: Path) -> None:
    path = make_zip(
        tmp_path / "mine.zip", members=FILES | {"corpus.jsonl": FILES["corpus.jsonl"] * 1000}
    )
    data = bytearray(path.read_bytes())
    central = data.index(b"PK\x01\x02")
    data[central + 24 : central + 28] = len(FILES["corpus.jsonl"]).to_bytes(4, "little")
    path.write_bytes(data)
    assert "mine.zip/corpus.jsonl: cannot be read: " in refusal(path)


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_archive_is_named(tmp_path: Path, damage: str) -> None:
    path = make_zip(tmp_path / "mine.zip")
    data = bytearray(path.read_bytes())
    if damage == "truncated":
        del data[len(data) // 2 :]
    else:
        data[60] ^= 0xFF
    path.write_bytes(data)
    assert re.search(r"mine\.zip.*: cannot be (read|opened)", refusal(path))


def test_a_truncated_gzip_file_is_named(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "folder")
    (folder / "queries.jsonl").unlink()
    (folder / "queries.jsonl.gz").write_bytes(gzip.compress(FILES["queries.jsonl"].encode())[:-6])
    assert "queries.jsonl.gz: cannot be read: " in refusal(folder)


def test_a_file_that_is_there_plain_and_gzipped_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "folder")
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(b""))
    assert "contains corpus.jsonl twice" in refusal(folder)


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("desa_ray.lines.MAX_JSON_BYTES", 1 << 20)
    folder = make_folder(tmp_path / "folder")
    (folder / "corpus.jsonl").write_bytes(b"x" * (3 << 20))
    assert "corpus.jsonl:1: a line is longer than 1 MiB" in refusal(folder)
