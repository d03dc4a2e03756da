"""Collections that others publish: the BEIR sets, ir_datasets, and their configurations."""

import http.server
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from desa_ray.config import DatasetConfig
from desa_ray.data import beir_sets, fingerprint, generations_folder, load_collection
from desa_ray.errors import DesaError
from tests.data.source_files import config, hashes, make_folder, make_zip
from tests.raw_server import answer, drips, raw_server, says

CONF = Path(__file__).resolve().parents[2] / "conf" / "dataset"
BEIR = ("scifact", "nfcorpus", "trec-covid", "fiqa", "arguana", "webis-touche2020", "scidocs")


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
