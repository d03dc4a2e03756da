"""Large collections read in pieces: the tables, hashes, counts and errors of reading them whole."""

import gzip
import json
import random
import shutil
import zipfile
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import desa_ray.lines as lines_module
import desa_ray.stages.collection as collection_module
from desa_ray.config import ClusterConfig, DatasetConfig
from desa_ray.data import pieces
from desa_ray.data.beir_layout import corpus_files
from desa_ray.errors import DesaError
from desa_ray.experiment.lazy_backend import LazyBackend
from desa_ray.experiment.reading import readers, store_collection
from desa_ray.pipeline.backend import Backend
from desa_ray.pipeline.stage import Stage
from desa_ray.stages import ingest, sorted_texts
from desa_ray.store.artifacts import Store

from .test_lazy import typed

WORDS = ["ein", "Müller", "über", "𝄞", "naïve", "ﬁn", "中文", "\u2028", "a", "b", '"', "\\", "\t"]


def rows_of(count: int, seed: int = 1) -> list[dict]:
    """Documents in no order, with ids and texts of one to four bytes per character."""
    rng = random.Random(seed)
    ids = [f"{rng.choice('aZé中𝄞-')}{number}" for number in range(count)]
    rng.shuffle(ids)
    rows = []
    for key in ids:
        text = " ".join(rng.choices(WORDS, k=rng.randrange(12)))
        title = {"title": rng.choice(["", "Title", None])} if rng.random() < 0.8 else {}
        rows.append({"_id": key, "text": text, **title})
    return rows


def write_rest(folder: Path, rows: list[dict], qrels: list[str] | None = None) -> None:
    (folder / "qrels").mkdir(parents=True)
    queries = [{"_id": f"q{number}", "text": f"query {number}"} for number in range(3)]
    lines = "".join(json.dumps(own) + "\n" for own in queries)
    (folder / "queries.jsonl").write_text(lines, encoding="utf-8")
    judged = [f"q{n % 3}\t{row['_id']}\t{n % 2}" for n, row in enumerate(rows[:9])]
    lines = ["query-id\tcorpus-id\tscore", *(judged if qrels is None else qrels)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def jsonl(rows: list[dict]) -> bytes:
    lines = [json.dumps(row, ensure_ascii=n % 2 == 0) for n, row in enumerate(rows)]
    return "\n".join(lines).encode() + b"\n"


@pytest.fixture
def tiny(monkeypatch) -> None:
    make_tiny(monkeypatch)


def make_tiny(monkeypatch) -> None:
    """Everything is large, and pieces, runs, merges and parts are tiny."""
    monkeypatch.setattr(ingest, "LARGE", 0)
    monkeypatch.setattr(ingest, "PIECE", 700)
    monkeypatch.setattr(sorted_texts, "RUN_BYTES", 900)
    monkeypatch.setattr(sorted_texts, "PIECE_BYTES", 300)
    monkeypatch.setattr(sorted_texts, "SAMPLES", 3)
    for module in (ingest, collection_module):
        monkeypatch.setattr(module, "ROWS_A_PART", 11)


def stored(
    config: DatasetConfig, home: Path, whole: bool, backend: Backend | None = None
) -> dict[str, dict] | str:
    """The manifests of record and tables, without what tells times; or the error."""
    collection_module._loaded.cache_clear()
    store = Store(str(home / ("whole" if whole else "pieces")))
    with pytest.MonkeyPatch.context() as patch:
        if whole:
            patch.setattr(ingest, "LARGE", 1 << 60)
        try:
            tables = store_collection(config, store, home, backend=backend)
        except DesaError as error:
            return str(error)
    assert bool(list(store.manifests("ingest"))) is not whole
    names = {"corpus": tables.documents, "queries": tables.queries, "qrels": tables.qrels}
    found = {name: manifest_of(stage) for name, stage in names.items()}
    (record,) = store.manifests("collection")
    found["record"] = {key: record[key] for key in ("key", "content", "counts")}
    found["record"]["tables"] = record["meta"]["tables"]
    return found


def manifest_of(stage: Stage) -> dict:
    manifest = stage.artifact.manifest()
    return {key: manifest[key] for key in ("key", "content", "counts", "layout", "parts")}


def assert_same(config: DatasetConfig, home: Path) -> dict[str, dict] | str:
    """The outcome of both ways, which is one."""
    found = stored(config, home, whole=False)
    assert found == stored(config, home, whole=True)
    return found


def pack(folder: Path, form: str, rows: list[dict]) -> DatasetConfig:
    """Writes a collection in one of the forms that are read in pieces."""
    write_rest(folder, rows)
    kind, path = "beir_folder", folder
    data = jsonl(rows)
    if form == "gzip":
        (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(data))
    elif form == "zstd":
        (folder / "corpus.jsonl.zst").write_bytes(pa.compress(data, "zstd", asbytes=True))
    elif form == "msmarco":
        kind = "msmarco"
        texts = {row["_id"]: " ".join(row["text"].split()) for row in rows}
        tsv = "".join(f"{key}\t{text}\n" for key, text in texts.items())
        (folder / "collection.tsv").write_text(tsv, encoding="utf-8")
        (folder / "queries.test.tsv").write_text("q1\tone\nq2\ttwo\n", encoding="utf-8")
        (folder / "qrels.test.tsv").write_text(f"q1 0 {rows[3]['_id']} 1\n", encoding="utf-8")
    elif form == "tables":
        kind, third = "tables", len(rows) // 3
        (folder / "corpus-0.jsonl").write_bytes(jsonl(rows[:third]))
        (folder / "corpus-1.jsonl.gz").write_bytes(gzip.compress(jsonl(rows[third : 2 * third])))
        pl.DataFrame([row | {"title": None} for row in rows[2 * third :]]).write_parquet(
            folder / "corpus-2.parquet"
        )
    else:
        (folder / "corpus.jsonl").write_bytes(data)
    if form == "zip":
        path = folder.with_suffix(".zip")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in folder.rglob("*.*"):
                archive.write(file, f"inner/{file.relative_to(folder)}")
    return DatasetConfig(kind=kind, name="own", path=str(path))


@pytest.mark.parametrize("form", ["plain", "gzip", "zstd", "zip", "tables", "msmarco"])
def test_pieces_make_the_tables_of_the_whole(tmp_path, tiny, form):
    """Equal keys, contents, counts, layouts and bytes of parts, whatever it is packed in."""
    config = pack(tmp_path / "own", form, rows_of(100))
    found = assert_same(config, tmp_path / "home")
    assert isinstance(found, dict)
    assert len(found["corpus"]["parts"]) > 5
    shards = len(list((tmp_path / "home" / "pieces").glob("ingest/*/runs-*.arrow")))
    assert shards > 3 if form in ("plain", "msmarco") else shards >= 1


def test_workers_of_this_machine_make_the_same_tables(tmp_path, tiny):
    """Child processes, as a local run has them, beside this process alone."""
    config = pack(tmp_path / "own", "plain", rows_of(100))
    serial = stored(config, tmp_path / "serial", whole=False)
    with readers(ClusterConfig(kind="local", cpus=2)) as backend:
        found = stored(config, tmp_path / "local", whole=False, backend=backend)
    assert found == serial


@pytest.mark.long
def test_ray_workers_make_the_same_tables(tmp_path, tiny):
    """Actors of a local Ray cluster compute the tasks of an ingest to the same bytes."""
    config = pack(tmp_path / "own", "plain", rows_of(100))
    serial = stored(config, tmp_path / "serial", whole=False)
    store = Store(str(tmp_path / "ray" / "pieces"))
    with ExitStack() as around:
        backend = LazyBackend(typed("cluster.cpus=2"), store, around)
        found = stored(config, tmp_path / "ray", whole=False, backend=backend)
    assert found == serial


BAD = {
    "malformed": lambda line: line[:-1],
    "a list": lambda line: b"[1]",
    "no text": lambda line: line.replace(b'"text"', b'"test"'),
    "number": lambda line: b'{"_id": 7, "text": "x"}',
    "twice": lambda line: b'{"_id": "twice", "text": "x"}',
    "empty": lambda line: b'{"_id": "", "text": "x"}',
    "control": lambda line: b'{"_id": "a\\u0007", "text": "x"}',
    "long": lambda line: b'{"_id": "' + b"l" * 40_000 + b'", "text": "x"}',
    "half": lambda line: b'{"_id": "\\ud800", "text": "x"}',
    "latin": lambda line: b'{"_id": "\xe9", "text": "x"}',
    "mark": lambda line: b"\xef\xbb\xbf" + line,
    "blank": lambda line: b"  ",
    "return": lambda line: line + b"\r",
}


@pytest.mark.parametrize("seed", range(24))
def test_errors_are_those_of_the_whole(tmp_path, tiny, monkeypatch, seed):
    """Faults of several kinds at random lines: each is told with the same file, line and words."""
    rng = random.Random(seed)
    folder = tmp_path / "own"
    rows = rows_of(60, seed)
    qrels = None if seed % 3 else [f"q0\t{rows[0]['_id']}\t1", "q1\tmissing\t2", "q9\tother\t1"]
    write_rest(folder, rows, qrels)
    lines = jsonl(rows).splitlines(keepends=False)
    for name in rng.sample(sorted(BAD), 1 + seed % 4):
        for place in rng.sample(range(len(lines)), rng.randint(1, 14)):
            lines[place] = BAD[name](lines[place])
    (folder / "corpus.jsonl").write_bytes(b"\n".join(lines) + b"\n" * (seed % 2))
    monkeypatch.setattr(ingest, "PIECE", rng.choice([150, 700, 5_000]))
    config = DatasetConfig(kind="beir_folder", name="own", path=str(folder))
    assert_same(config, tmp_path / "home")


def test_what_ends_reading_is_told_of_its_own_line(tmp_path, tiny, monkeypatch):
    """The first line that is too long, behind bad ones; nothing after it counts."""
    folder = tmp_path / "own"
    write_rest(folder, rows_of(40))
    lines = [b'{"_id": "%d", "text": "x"}' % n for n in range(40)]
    lines[3] = b"{"
    lines[17] = lines[30] = b'{"_id": "long", "text": "%s"}' % (b"y" * 3_000)
    (folder / "corpus.jsonl").write_bytes(b"\n".join(lines))
    monkeypatch.setattr(lines_module, "MAX_JSON_BYTES", 2_000)
    config = DatasetConfig(kind="beir_folder", name="own", path=str(folder))
    found = assert_same(config, tmp_path / "home")
    assert isinstance(found, str)
    assert "corpus.jsonl:18: a line is longer than" in found


def test_damaged_archives_are_told_alike(tmp_path, tiny):
    config = pack(tmp_path / "own", "gzip", rows_of(60))
    file = tmp_path / "own" / "corpus.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-40])
    assert isinstance(assert_same(config, tmp_path / "home"), str)


def test_pieces_are_whole_lines(tmp_path):
    """Every byte is in one piece, and pieces begin where lines do, whatever their size."""
    data = b"one\n\n" + b"x" * 50 + b"\ntwo\r\nthree"
    (tmp_path / "corpus.jsonl").write_bytes(data)
    (tmp_path / "queries.jsonl").write_bytes(b"")
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_bytes(b"")
    corpus = corpus_files(tmp_path, "test")
    for size in range(1, len(data) + 2):
        found = pieces.cut(corpus, size)
        own = [(piece.start, piece.stop or len(data)) for piece in found]
        assert b"".join(data[a:b] for a, b in own) == data
        assert all(data[a - 1 : a] == b"\n" for a, _ in own if a)
        assert all(b > a for a, b in own)


def test_a_killed_ingest_goes_on(tmp_path, tiny):
    """Parts of a task that was killed between its two parts, and lost tables, are made again."""
    config = pack(tmp_path / "own", "plain", rows_of(100))
    home = tmp_path / "home"
    found = stored(config, home, whole=False)
    store = Store(str(home / "pieces"))
    (manifest,) = store.manifests("ingest")
    folder = next((home / "pieces" / "ingest").iterdir())
    assert manifest["content"].startswith(folder.name)
    (folder / "manifest.json").unlink()
    (folder / "told-00002.txt.json").unlink()
    (folder / "runs-00003.arrow.json").unlink()
    for name in ("corpus", "qrels"):
        shutil.rmtree(home / "pieces" / name)
    assert stored(config, home, whole=False) == found
