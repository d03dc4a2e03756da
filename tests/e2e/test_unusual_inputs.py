"""Inputs that are unusual but whole: pipes, permuted collections, texts and methods of great size,
judgments of another collection.
"""

import gzip
import hashlib
import json
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from desa_ray.data.trec import read_run
from desa_ray.jobs.compare import main as compare
from desa_ray.jobs.fuse import main as fuse

RUN = b"q1 Q0 a 1 2 t\nq1 Q0 b 2 1 t\n"


@contextmanager
def pipe(path: Path, data: bytes) -> Iterator[str]:
    """A named pipe that brings the data once."""
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(data,), daemon=True)
    writer.start()
    yield str(path)
    writer.join(20)
    assert not writer.is_alive(), "nobody read the pipe"


def test_fuse_reads_pipes(tmp_path, capsys):
    with pipe(tmp_path / "a", RUN) as one, pipe(tmp_path / "b", gzip.compress(RUN)) as two:
        assert fuse([one, two, "--out", str(tmp_path / "out")]) == 0
    assert read_run(tmp_path / "out" / "fused.trec") == {"q1": ["a", "b"]}


def test_compare_reads_pipes(tmp_path, capsys):
    (tmp_path / "b.trec").write_bytes(RUN)
    out = tmp_path / "out"
    with pipe(tmp_path / "a", RUN) as run, pipe(tmp_path / "qrels", b"q1 0 a 1\n") as qrels:
        options = ["--qrels", qrels, "--measures", "RR", "--resamples", "5", "--out", str(out)]
        assert compare([run, str(tmp_path / "b.trec"), *options]) == 0
    assert pl.read_csv(out / "runs.csv")["RR"].to_list() == [1.0, 1.0]


@pytest.mark.parametrize("name", ["corpus.jsonl", "qrels/test.tsv", "generations/references.jsonl"])
def test_a_pipe_in_a_data_set_is_refused_by_name(name, collection, refuse):
    """Its files are read more than once."""
    (collection / name).unlink()
    os.mkfifo(collection / name)
    refuse([name, "is not a plain file"], "plan", *dataset(collection))


def dataset(folder: Path) -> list[str]:
    return [
        *("dataset=beir_folder", f"dataset.path={folder}", "dataset.name=tiny"),
        *("cluster=serial", "tracking.enabled=false", "draws=1"),
    ]


@pytest.mark.parametrize("missing", ["error", "drop"])
def test_judgments_of_another_collection_are_refused(missing, collection, refuse):
    """The message shows how ids look on both sides."""
    header = "query-id\tcorpus-id\tscore\n"
    (collection / "qrels" / "test.tsv").write_text(f"{header}q1\tMED-3\t1\nq2\tMED-9\t1\n")
    options = [] if missing == "error" else ["dataset.missing_relevant=drop"]
    refuse(
        ["use the qrels of this corpus", "'MED-3'", "'d0'"], "run", *dataset(collection), *options
    )


def test_queries_of_another_collection_are_refused(collection, refuse):
    header = "query-id\tcorpus-id\tscore\n"
    (collection / "qrels" / "test.tsv").write_text(f"{header}PLAIN-1\td0\t1\nPLAIN-2\td1\t1\n")
    refuse(["are these the qrels of this collection?", "'PLAIN-1'"], "run", *dataset(collection))


# Whole runs


def records_of(desa, folder: Path, tmp_path: Path, name: str, *options: str) -> Path:
    """The records of a run with a home of its own."""
    place = tmp_path / f"out-{name}"
    arguments = [*dataset(folder), f"hydra.run.dir={place}", *options]
    desa("run", *arguments, home=tmp_path / f"home-{name}")
    return place / "records.parquet"


def shuffled(path: Path, seed: int) -> None:
    lines = path.read_text().splitlines(keepends=True)
    head = 1 if path.suffix == ".tsv" else 0
    rest = lines[head:]
    random.Random(seed).shuffle(rest)
    path.write_text("".join(lines[:head] + rest))


@pytest.mark.slow
def test_permuted_files_give_the_same_records(collection, desa, tmp_path):
    """Corpus, judgments and recording in another order: the bytes of records.parquet are equal."""
    found = set()
    for number in range(3):
        digest = hashlib.sha256(records_of(desa, collection, tmp_path, str(number)).read_bytes())
        found.add(digest.hexdigest())
        for name in ("corpus.jsonl", "qrels/test.tsv", "generations/references.jsonl"):
            shuffled(collection / name, number + 5)
    assert len(found) == 1


@pytest.mark.slow
def test_a_query_of_ten_megabytes(collection, desa, tmp_path):
    """It repeats one word: its document stays first."""
    rows = [{"_id": "q1", "text": "cat " * 2_600_000}, {"_id": "q2", "text": "sun"}]
    (collection / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = pl.read_parquet(records_of(desa, collection, tmp_path, "long"))
    assert dict(zip(found["query_id"], found["ndcg_at_10"], strict=True)) == {"q1": 1.0, "q2": 1.0}


@pytest.mark.slow
def test_an_expansion_of_a_million_terms(collection, desa, tmp_path):
    file = collection / "generations" / "references.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        row["texts"][0] = " ".join(f"w{number}" for number in range(1_000_000))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows if row["draw"] == 0))
    found = pl.read_parquet(records_of(desa, collection, tmp_path, "terms"))
    assert found["fallback"].to_list() == [False, False]
    assert all(value > 0 for value in found["ndcg_at_10"])


@pytest.mark.slow
def test_a_thousand_channels(collection, desa, tmp_path):
    """Half are dense, half sparse, all alike: each is read as deep as the others of its kind, and
    the order is that of two channels.
    """
    kinds = [("dense", "residual"), ("sparse", "product")]
    lines = [
        f"  - {{name: c{number}, kind: {kind}, operator: {operator}, weight: 1/1000}}\n"
        for number in range(500)
        for kind, operator in kinds
    ]
    lines = [line.replace("name: c", f"name: n{place}c") for place, line in enumerate(lines)]
    (tmp_path / "mine" / "method").mkdir(parents=True)
    text = "name: many\nprompt: references\nchannels:\n" + "".join(lines)
    (tmp_path / "mine" / "method" / "many.yaml").write_text(text)
    options = ["--config-dir", str(tmp_path / "mine"), "method=many"]
    many = pl.read_parquet(records_of(desa, collection, tmp_path, "many", *options))
    two = pl.read_parquet(records_of(desa, collection, tmp_path, "two", "method=desa"))
    assert many["top"].to_list() == two["top"].to_list()
    for kind, _ in kinds:
        assert (many[f"depth_{kind}"] % 500).to_list() == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "auto"])
def test_the_address_of_a_dead_cluster_in_the_environment(
    address, collection, desa, tmp_path, monkeypatch
):
    """A local cluster is started all the same; nothing is looked for there."""
    monkeypatch.setenv("RAY_ADDRESS", address)
    options = ["cluster=local", "cluster.cpus=1"]
    assert pl.read_parquet(records_of(desa, collection, tmp_path, "ray", *options)).height == 2


JUMPS = """
import random, time
real, draw = time.time, random.Random(3)
time.time = lambda: real() + draw.choice((-3e7, 0.0, 0.0, 3e7))
"""


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["serial", "local"])
def test_a_clock_that_jumps_by_a_year(cluster, collection, desa, tmp_path, monkeypatch):
    """In the driver and its children, at every other look: the same records."""
    options = [f"cluster={cluster}", "tracking.enabled=true"]
    if cluster == "local":
        options.append("cluster.cpus=1")
    right = records_of(desa, collection, tmp_path, "right").read_bytes()
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "sitecustomize.py").write_text(JUMPS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "patch"))
    assert records_of(desa, collection, tmp_path, "jumps", *options).read_bytes() == right
    again = desa("run", *dataset(collection), *options, home=tmp_path / "home-jumps")
    assert "0 stages to compute" in again.stdout + again.stderr


@pytest.mark.parametrize(
    "place", ["records", "generator.folder", "encoder.path", "--config-dir", "dataset.path"]
)
def test_a_path_that_is_too_long_is_one_line(place, collection, refuse):
    name = "x" * 3000
    given = [place, name] if place.startswith("--") else [f"{place}={name}"]
    verb, common = ("report", []) if place == "records" else ("plan", dataset(collection))
    refuse(["xxxx"], verb, *common, *given)
