"""Further doors: answers of engines, collections in tables and in MS MARCO's files, runs kept as
parquet, and the commands that read runs with scores.
"""

import io
import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from desa_ray.config import DatasetConfig
from desa_ray.data import load_collection
from desa_ray.data.answers import read_answer
from desa_ray.data.run_files import read_run_parquet
from desa_ray.errors import DesaError
from desa_ray.jobs.audit import main as audit
from desa_ray.jobs.depth import main as depth
from desa_ray.jobs.fuse import main as fuse
from desa_ray.jobs.tune import main as tune
from tests.fuzz.changes import VALUES, bytes_changed

HITS = [{"_id": f"d{n}", "_score": 1.0 / (60 + n), "sort": [1, f"d{n}"]} for n in range(1, 5)]
ELASTIC = {
    "took": 2,
    "timed_out": False,
    "_shards": {"total": 1, "failed": 0},
    "hits": {"total": {"value": 4, "relation": "eq"}, "hits": HITS},
}
QDRANT = {"result": {"points": [{"id": 7, "score": 0.5}]}, "status": "ok", "time": 0.1}
WEAVIATE = {"data": {"Get": {"A": [{"_additional": {"id": "x", "score": "0.5"}}]}}}
LANCE = [{"id": "a", "_distance": 0.1}, {"id": "b", "_distance": 0.4}]
TSV = b"q1\td1\t2.5\nq1\td2\t1.5\nq1\td3\t1e-3\n"
TREC = b"q1 Q0 d1 1 2.5 t\nq1 Q0 d2 2 1.5 t\n"
RUNS = "".join(
    f"q{query} Q0 d{rank} {rank} {10 - rank} tag\n" for query in range(5) for rank in range(1, 5)
).encode()
JUDGED = "".join(f"q{query} 0 d{query % 4 + 1} 1\n" for query in range(5)).encode()
DOCUMENTS = {"_id": ["d1", "d2", "d3"], "title": ["A", "", "B"], "text": ["fish", "swim", "fly"]}
QUERY = b'{"_id": "q1", "text": "what swims"}\n'
BEIR = b"query-id\tcorpus-id\tscore\nq1\td1\t1\n"


def dumped(document: Any) -> bytes:
    return json.dumps(document).encode()


def _written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# Answers of engines


def answers(folder: Path, data: bytes) -> None:
    """Read in every form, and audited as an answer and as a leg."""
    path, leg = _written(folder, "answer", data), str(_written(folder, "leg", TSV))
    for form in ("elasticsearch", "qdrant", "weaviate", "lancedb", "trec", "tsv"):
        with suppress(DesaError):
            read_answer(path, form)
    for options in ([], ["--rule", "combsum", "--legs-go-on"], ["--longer", str(path)]):
        with suppress(DesaError):
            audit([str(path), "--legs", leg, leg, *options])
    audit([leg, "--legs", str(path), leg])


# Collections


def _loaded(place: Path, kind: str) -> None:
    config = DatasetConfig(name="mine", kind=kind, path=str(place))
    load_collection(config, data_home=place.parent)


def tables(name: str) -> Callable[[Path, bytes], None]:
    def read(folder: Path, data: bytes) -> None:
        files = {"corpus.parquet": parquet(), "queries.jsonl": QUERY, "qrels/test.tsv": BEIR}
        files = {file: own for file, own in files.items() if file.split(".")[0] not in name}
        for file, own in (files | {name: data}).items():
            _written(folder / "set", file, own)
        _loaded(folder / "set", "tables")

    return read


def msmarco(name: str) -> Callable[[Path, bytes], None]:
    def read(folder: Path, data: bytes) -> None:
        for file, own in (MSMARCO | {name: data}).items():
            _written(folder / "set", file, own)
        _loaded(folder / "set", "msmarco")

    return read


MSMARCO = {
    "collection.tsv": b"1\tfish swim\n2\tbirds fly\n",
    "queries.test.tsv": b"7\twhat swims\n8\twhere\n",
    "qrels.test.tsv": b"7\t0\t1\t1\n8 0 2 1\n",
}


def parquet(rows: Any = None) -> bytes:
    sink = io.BytesIO()
    pl.DataFrame(rows or DOCUMENTS).write_parquet(sink)
    return sink.getvalue()


def arrow_stream() -> bytes:
    sink = io.BytesIO()
    table = pa.table(DOCUMENTS)
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    return sink.getvalue()


def arrow_packed() -> bytes:
    sink = io.BytesIO()
    table = pa.table(DOCUMENTS)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, table.schema, options=options) as out:
        out.write_table(table)
    return sink.getvalue()


def spoilt_table(data: bytes, draw: random.Random) -> bytes:
    """Parquet with another value, column or type, or with other bytes."""
    if draw.randrange(3) == 0:
        return bytes_changed(data, draw)
    frame = pl.read_parquet(data)
    name = draw.choice(frame.columns)
    values = frame[name].to_list()
    values[draw.randrange(len(values))] = draw.choice(VALUES)
    how = draw.randrange(3)
    with suppress(Exception):  # values that no column holds: no file has them
        if how == 0:
            return parquet(frame.with_columns(pl.Series(name, values, strict=False)))
        if how == 1:
            same = pl.Series(name, [draw.choice(VALUES)] * frame.height, strict=False)
            return parquet(frame.with_columns(same))
        return parquet(frame.rename({name: draw.choice(("id", "x", "score", "query-id"))}))
    return bytes_changed(data, draw)


# Runs


def kept_run(folder: Path, data: bytes) -> None:
    read_run_parquet(_written(folder, "run.parquet", data))


def kept() -> bytes:
    return parquet({"query_id": ["q1", "q2"], "docs": [["d1", "d2"], ["d2"]]})


def ruled(folder: Path, data: bytes) -> None:
    """What `desa fuse --rule`, `depth` and `tune` do with a run."""
    names = [str(_written(folder, "a.trec", data)), str(_written(folder, "b.trec", RUNS))]
    judged = str(_written(folder, "q.txt", JUDGED))
    rules = ("combsum", "isr", "dbsf")
    calls: list[Callable[[], object]] = []
    for rule in rules:
        out = ["--rule", rule, "--k", "2", "--out", str(folder / rule)]
        calls.append(lambda out=out: fuse([*names, *out]))
    calls.append(lambda: depth([*names, "--k", "2", "--qrels", judged]))
    calls.append(
        lambda: tune([*names, "--qrels", judged, "--rules", ",".join(rules), "--resamples", "5"])
    )
    refused = None
    for call in calls:
        try:
            call()
        except DesaError as error:
            refused = error
    if refused is not None:
        raise refused
