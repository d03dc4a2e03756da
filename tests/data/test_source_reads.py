"""How often a source is read: once for all cells of a sweep, and again when it changed."""

import os
import shutil
from pathlib import Path

import pytest

from desa_ray.config import DatasetConfig
from desa_ray.data import fingerprint
from desa_ray.data.source import SourceFile
from tests.data.source_files import FILES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def print_of(place: Path) -> str:
    config = DatasetConfig(name="own", kind="beir_folder", path=str(place))
    return fingerprint(config, data_home=place.parent)


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_the_cells_of_a_sweep_read_a_source_once(folder, packed, monkeypatch):
    place = Path(shutil.make_archive(str(folder), "zip", folder)) if packed else folder
    reads: list[str] = []
    blocks = SourceFile.blocks
    monkeypatch.setattr(SourceFile, "blocks", lambda file: reads.append(file.label) or blocks(file))
    assert print_of(place) == print_of(place)
    assert len(reads) == len(FILES)


def test_a_source_that_changed_is_read_again(folder):
    first, corpus = print_of(folder), folder / "corpus.jsonl"
    before = corpus.stat()
    corpus.write_text(corpus.read_text().replace("d1", "d9"))  # as long as before
    os.utime(corpus, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert print_of(folder) != first
