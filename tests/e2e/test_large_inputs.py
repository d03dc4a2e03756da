"""Large inputs by the command line: what they take of memory, whatever their size."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest

pytestmark = pytest.mark.slow
MB = 1 << 20
WORDS = [f"w{number}" for number in range(5000)]


def text(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(WORDS, k=words))


def written(folder: Path, documents: Iterable[str], queries: int, relevant: str) -> Path:
    """A collection whose every query has the same relevant document."""
    (folder / "qrels").mkdir(parents=True)
    draw = random.Random(1)
    with (folder / "corpus.jsonl").open("w") as corpus:
        for number, own in enumerate(documents):
            corpus.write(json.dumps({"_id": f"d{number}", "text": own}) + "\n")
    with (folder / "queries.jsonl").open("w") as lines:
        for number in range(queries):
            lines.write(json.dumps({"_id": f"q{number}", "text": f"cats {text(draw, 3)}"}) + "\n")
    rows = [f"q{number}\t{relevant}\t1\n" for number in range(queries)]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return folder


def peak(verb: str, collection: Path, folder: Path, *overrides: str) -> int:
    """Bytes that the largest of a command's processes took."""
    command = [sys.executable, "-m", "desa_ray.jobs", verb, "dataset=beir_folder"]
    command += [f"dataset.path={collection}", "dataset.name=large", "cluster=serial"]
    command += ["tracking.enabled=false", f"hydra.run.dir={folder / 'out'}", *overrides]
    environment = {**os.environ, "DESA_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (folder / "log").read_text()
    return used.ru_maxrss << 10


def test_a_document_of_50_mb_is_run(tmp_path):
    draw = random.Random(2)
    documents = ["cats " + text(draw, 9_000_000), *(text(draw, 30) for _ in range(40))]
    collection = written(tmp_path / "in", documents, 5, "d0")
    used = peak("run", collection, tmp_path, "method=original", "encoder=minilm_l3")
    assert used < 1500 * MB
    found = pl.read_parquet(tmp_path / "out" / "records.parquet")
    assert found["ndcg_at_10"].min() > 0  # nobody else has cats


def test_twenty_thousand_queries_are_run(tmp_path):
    """Each gets a line per document in run.trec: memory grows with neither."""
    draw = random.Random(3)
    documents = ["cats", *(f"cats {text(draw, 30)}" for _ in range(299))]
    collection = written(tmp_path / "in", documents, 20_000, "d0")
    used = peak("run", collection, tmp_path, "method=bm25")
    assert used < 1500 * MB
    assert pl.read_parquet(tmp_path / "out" / "records.parquet").height == 20_000


def test_a_corpus_is_read_in_three_times_its_size(tmp_path):
    draw = random.Random(4)
    texts = [text(draw, 300) for _ in range(1000)]
    documents = (f"{texts[number % 1000]} {number}" for number in range(300_000))
    collection = written(tmp_path / "in", documents, 5, "d0")
    size = (collection / "corpus.jsonl").stat().st_size
    assert size > 400 * MB
    assert peak("plan", collection, tmp_path, "method=bm25") < 3 * size + 500 * MB
