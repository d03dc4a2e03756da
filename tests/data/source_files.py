"""A small collection in BEIR layout, as a folder and as a zip."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from desa_ray.config import DatasetConfig
from desa_ray.data import load_collection
from desa_ray.errors import DesaError
from desa_ray.types import Collection

FILES = {
    "corpus.jsonl": (
        '{"_id": "d1", "title": "Fish", "text": "swim"}\n{"_id": "d2", "title": "", "text":'
        ' "Birds"}\n'
    ),
    "queries.jsonl": '{"_id": "q1", "text": "what swims"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
}


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
