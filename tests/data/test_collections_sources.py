"""Where collections come from: archives (also hostile ones), the public sets, ir_datasets, the
configurations.
"""

import gzip
import http.server
import re
import shutil
import stat
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from desa_ray import unpacking
from desa_ray.config import DatasetConfig
from desa_ray.data import beir_sets, fingerprint, generations_folder, load_collection
from desa_ray.errors import DesaError
from desa_ray.types import Collection
from tests.raw_server import answer, drips, raw_server, says

FILES = {
    "corpus.jsonl": (
        '{"_id": "d1", "title": "Fish", "text": "swim"}\n{"_id": "d2", "title": "", "text":'
        ' "Birds"}\n'
    ),
    "queries.jsonl": '{"_id": "q1", "text": "what swims"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
}
CONF = Path(__file__).resolve().parents[2] / "conf" / "dataset"
BEIR = ("scifact", "nfcorpus", "trec-covid", "fiqa", "arguana", "webis-touche2020", "scidocs")


def make_folder(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def make_zip(
    path: Path, *, wrapping: str = "", members: Mapping[str, str | bytes] | None = None
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (FILES if members is None else members).items():
            archive.writestr(wrapping + name, data)
    return path


def config(path: Path | None, **options: Any) -> DatasetConfig:
    place = None if path is None else str(path)
    values: dict[str, Any] = {"name": "mine", "kind": "beir_folder", "path": place}
    return DatasetConfig(**(values | options))


def load(path: Path, **options: Any) -> Collection:
    return load_collection(config(path, **options), data_home=path.parent)


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(DesaError) as caught:
        load(path, **options)
    return str(caught.value)


def hashes(collection: Collection) -> tuple[str, str, str]:
    return collection.corpus_hash, collection.queries_hash, collection.qrels_hash


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


# The public sets


def beir(path: Path | None = None, **options: Any) -> DatasetConfig:
    return config(
        path,
        **(
            {"name": "scifact", "kind": "beir", "url": "https://nowhere.invalid/scifact.zip"}
            | options
        ),
    )


def test_a_public_set_is_looked_for_in_path_then_folder_then_zip(tmp_path: Path) -> None:
    elsewhere = make_folder(tmp_path / "elsewhere")
    (elsewhere / "corpus.jsonl").write_text('{"_id": "d1", "text": "path"}\n')
    make_zip(tmp_path / "scifact.zip", wrapping="scifact/")
    assert load_collection(beir(), data_home=tmp_path).documents.height == 2
    (make_folder(tmp_path / "scifact") / "corpus.jsonl").write_text(
        '{"_id": "d1", "text": "folder"}\n'
    )
    assert load_collection(beir(), data_home=tmp_path).documents["text"].to_list() == ["folder"]
    assert load_collection(beir(elsewhere), data_home=tmp_path).documents["text"].to_list() == [
        "path"
    ]


def test_offline_the_error_names_the_places_and_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for call in (load_collection, fingerprint):
        with pytest.raises(DesaError) as caught:
            call(beir(), data_home=tmp_path)
        text = str(caught.value)
        assert f"neither the folder {tmp_path / 'scifact'} nor {tmp_path / 'scifact.zip'}" in text
        assert "HF_HUB_OFFLINE" in text
        assert "corpus.jsonl, queries.jsonl and qrels/test.tsv" in text
        assert "dataset.path=" in text
    assert list(tmp_path.iterdir()) == []


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """File name -> address of a file of tmp_path/public, served on this machine."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    (tmp_path / "public").mkdir()
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "public"))
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield lambda name: f"http://127.0.0.1:{server.server_port}/{name}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_public_set_is_downloaded_once(tmp_path: Path, served: Callable[[str], str]) -> None:
    make_zip(tmp_path / "public" / "scifact.zip", wrapping="scifact/")
    home = tmp_path / "new" / "home"
    first = load_collection(beir(url=served("scifact.zip")), data_home=home)
    assert [file.name for file in home.iterdir()] == ["scifact.zip"]
    (tmp_path / "public" / "scifact.zip").unlink()
    assert hashes(load_collection(beir(url=served("scifact.zip")), data_home=home)) == hashes(first)


@pytest.mark.parametrize("what", ["absent", "truncated", "a page"])
def test_a_failed_download_leaves_nothing_behind(
    tmp_path: Path, served: Callable[[str], str], what: str
) -> None:
    if what != "absent":
        data = make_zip(tmp_path / "whole.zip").read_bytes()
        public = tmp_path / "public" / "scifact.zip"
        public.write_bytes(data[: len(data) // 2] if what == "truncated" else b"<html>moved</html>")
    home = tmp_path / "home"
    with pytest.raises(
        DesaError,
        match=r"found neither the folder .*scifact nor .*scifact.zip, and (downloading|the file)",
    ):
        load_collection(beir(url=served("scifact.zip")), data_home=home)
    assert list(home.iterdir()) == []


def test_without_an_answer_the_error_says_so(tmp_path: Path, served: Callable[[str], str]) -> None:
    with pytest.raises(
        DesaError, match=r"downloading http://127\.0\.0\.1:1/x\.zip failed: .*refused"
    ):
        load_collection(beir(url="http://127.0.0.1:1/x.zip"), data_home=tmp_path)


def test_a_download_that_drips_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(beir_sets, "TIMEOUT_S", 1.0)
    start = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nPK"
    with raw_server(drips(start, b"x")) as server:
        with pytest.raises(DesaError, match=r"downloading .* failed: no answer within 1 s"):
            load_collection(beir(url=f"{server.url}/x.zip"), data_home=tmp_path)
        assert server.gone.wait(15)
    assert list(tmp_path.iterdir()) == []


def test_a_download_follows_redirects_and_tells_what_it_meets(
    tmp_path: Path, served: Callable[[str], str]
) -> None:
    make_zip(tmp_path / "public" / "scifact.zip", wrapping="scifact/")
    moved = answer(b"", "302 Found", f"Location: {served('scifact.zip')}")
    with raw_server(says(moved)) as server:
        load_collection(beir(url=f"{server.url}/x.zip"), data_home=tmp_path / "home")
    for said, word in (
        (answer(b"", "404 Not Found"), "404 Not Found"),
        (b"no HTTP\r\n", "not HTTP"),
    ):
        with (
            raw_server(says(said)) as server,
            pytest.raises(DesaError, match=f"downloading .* failed: .*{word}"),
        ):
            load_collection(beir(url=f"{server.url}/x.zip"), data_home=tmp_path / "other")


def test_recorded_generations_are_those_beside_the_files(tmp_path: Path) -> None:
    scifact = make_folder(tmp_path / "scifact")
    (scifact / "generations").mkdir()
    assert generations_folder(beir(scifact), data_home=tmp_path) == scifact / "generations"
    assert generations_folder(config(make_folder(tmp_path / "folder")), data_home=tmp_path) is None
    assert generations_folder(config(make_zip(tmp_path / "mine.zip")), data_home=tmp_path) is None
    assert generations_folder(config(None, kind="ir_datasets"), data_home=tmp_path) is None


# ir_datasets


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A tiny data set of files on this machine, registered with ir_datasets' own registry."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "irds"))
    ir_datasets = pytest.importorskip("ir_datasets")
    (tmp_path / "docs.tsv").write_text("d2\tBirds fly\nd1\tFish swim\n")
    (tmp_path / "queries.tsv").write_text("q1\twhat swims\n")
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\nq1 0 d2 0\n")
    made = ir_datasets.create_dataset(
        docs_tsv=str(tmp_path / "docs.tsv"),
        queries_tsv=str(tmp_path / "queries.tsv"),
        qrels_trec=str(tmp_path / "qrels.txt"),
    )
    monkeypatch.setitem(ir_datasets.registry._registered, "desa-test/tiny", made)
    return "desa-test/tiny"


def irds(name: str | None) -> DatasetConfig:
    return config(None, kind="ir_datasets", ir_datasets_id=name)


def test_an_ir_datasets_id_is_read(tmp_path: Path, registered: str) -> None:
    found = load_collection(irds(registered), data_home=tmp_path)
    assert list(found.documents.iter_rows()) == [("d1", "Fish swim"), ("d2", "Birds fly")]
    assert list(found.queries.iter_rows()) == [("q1", "what swims")]
    assert list(found.qrels.iter_rows()) == [("q1", "d1", 1), ("q1", "d2", 0)]
    first = fingerprint(irds(registered), data_home=tmp_path)
    assert fingerprint(irds(registered), data_home=tmp_path) == first
    (tmp_path / "queries.tsv").write_text("q1\twhat swims?\n")
    assert fingerprint(irds(registered), data_home=tmp_path) != first


def test_an_unknown_ir_datasets_id_is_refused(tmp_path: Path, registered: str) -> None:
    for name, text in {
        "desa-test/none": "ir_datasets knows no 'desa-test/none'",
        None: "no id given",
    }.items():
        with pytest.raises(DesaError, match=f"dataset.ir_datasets_id: {text}"):
            load_collection(irds(name), data_home=tmp_path)


def test_without_the_extra_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(DesaError, match=r"not installed \(pip install 'desa-ray\[ir-datasets\]'\)"):
        load_collection(irds("beir/nfcorpus/test"), data_home=tmp_path)


# Configurations


@pytest.mark.parametrize("name", [*BEIR, "beir_folder", "ir_datasets"])
def test_every_configuration_stands_alone(name: str) -> None:
    values = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    found = DatasetConfig(**values)
    if name in BEIR:
        assert found.name == name
        assert found.url is not None
        assert found.url.endswith(f"/{name}.zip")


def test_a_public_sets_configuration_reads_a_folder_given(tmp_path: Path) -> None:
    """A public sets configuration reads a folder given as path."""
    values = yaml.safe_load((CONF / "scifact.yaml").read_text())
    folder = make_folder(tmp_path / "anywhere")
    found = load_collection(
        DatasetConfig(**(values | {"path": str(folder)})), data_home=tmp_path / "home"
    )
    assert (found.name, found.documents.height) == ("scifact", 2)
    shutil.rmtree(folder)
    with pytest.raises(DesaError, match="no such folder or zip"):
        load_collection(
            DatasetConfig(**(values | {"path": str(folder)})), data_home=tmp_path / "home"
        )
