"""A small collection in BEIR layout, and how a folder loads or is refused."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from desa_ray.config import DatasetConfig
from desa_ray.data import load_collection
from desa_ray.errors import DesaError
from desa_ray.types import Collection

DOCUMENTS = [
    {"_id": "d1", "title": "Fish", "text": "swim"},
    {"_id": "d2", "title": "", "text": "Birds fly"},
]
QUERIES = [{"_id": "q1", "text": "what swims"}]
QRELS = [("q1", "d1", 1)]
HEADER = "query-id\tcorpus-id\tscore"


def jsonl(rows: Sequence[dict[str, Any] | str]) -> str:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


def tsv(rows: Sequence[tuple[str, str, int] | str]) -> str:
    lines = [row if isinstance(row, str) else "\t".join(map(str, row)) for row in rows]
    return "".join(f"{line}\n" for line in [HEADER, *lines])


def write(
    folder: Path,
    documents: Sequence[dict[str, Any] | str] = DOCUMENTS,
    queries: Sequence[dict[str, Any] | str] = QUERIES,
    qrels: Sequence[tuple[str, str, int] | str] = QRELS,
) -> Path:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    (folder / "corpus.jsonl").write_text(jsonl(documents), encoding="utf-8")
    (folder / "queries.jsonl").write_text(jsonl(queries), encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text(tsv(qrels), encoding="utf-8")
    return folder


def config(folder: Path, **options: Any) -> DatasetConfig:
    values: dict[str, Any] = {"name": "mine", "kind": "beir_folder", "path": str(folder)}
    return DatasetConfig(**(values | options))


def load(folder: Path, **options: Any) -> Collection:
    return load_collection(config(folder, **options), data_home=folder)


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(DesaError) as caught:
        load(folder, **options)
    return str(caught.value)


def documents(*ids: str) -> list[dict[str, Any]]:
    return [{"_id": name, "title": "", "text": "text"} for name in ids]
