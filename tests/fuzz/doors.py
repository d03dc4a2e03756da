"""The doors through which foreign input comes: for each a good input and what reads it.

A door reads the input in this process, as the command would, and raises DesaError for what it
refuses (a parser of arguments exits with 2).
"""

import json
import random
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from desa_ray.config import DatasetConfig
from desa_ray.data import generations_folder, load_collection
from desa_ray.data.trec import read_qrels, read_run
from desa_ray.engines.prompts import load_prompt
from desa_ray.engines.recorded_generator import read_recorded, recorded_fingerprint
from desa_ray.errors import DesaError
from desa_ray.jobs.cli.config_folder import read_folder
from desa_ray.jobs.compare import main as compare
from desa_ray.jobs.fuse import main as fuse
from desa_ray.store.artifacts import Store
from desa_ray.store.keys import Key
from desa_ray.store.leases import holders
from desa_ray.store.sealed import seal, unseal
from desa_ray.tracking.entry_shapes import ENTRY, TARGET, check_artifacts, read_json
from desa_ray.tracking.last import FILE, last_uri
from desa_ray.tracking.left_behind import left_behind
from tests.fuzz import newer_doors
from tests.fuzz.changes import Form, document_changed, spoilt
from tests.fuzz.made_records import (
    SUMMARY,
    parquet,
    read_records,
    read_summary,
    records,
    spoilt_records,
)

RUN = "".join(
    f"q{query} Q0 d{rank} {rank} {10 - rank} tag\n" for query in (1, 2) for rank in range(1, 5)
).encode()
QRELS = b"q1 0 d1 1\nq1 0 d3 0\nq2 0 d2 2\n"
BEIR = b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t2\n"
CORPUS = b"".join(
    json.dumps({"_id": f"d{n}", "title": "Fish", "text": f"they swim {n}"}).encode() + b"\n"
    for n in range(1, 4)
)
QUERIES = b'{"_id": "q1", "text": "what swims"}\n{"_id": "q2", "text": "where"}\n'
RECORDING = b"".join(
    json.dumps(
        {
            "query_id": f"q{n}",
            "prompt": "references",
            "draw": 0,
            "texts": [f"{n} {t}" for t in "abcde"],
        }
    ).encode()
    + b"\n"
    for n in (1, 2)
)


@dataclass(frozen=True)
class Door:
    """One door: `read` gets a folder of its own and the spoilt input."""

    name: str
    good: bytes
    form: Form
    read: Callable[[Path, bytes], object]
    spoil: Callable[[bytes, random.Random], bytes] | None = None

    def spoilt(self, draw: random.Random) -> bytes:
        return self.spoil(self.good, draw) if self.spoil else spoilt(self.good, self.form, draw)


def written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# TREC files, alone and in the commands that read them


def _trec(folder: Path, data: bytes) -> None:
    path = written(folder, "file", data)
    for read in (read_run, read_qrels):
        with suppress(DesaError):
            read(path)


def _fuse(folder: Path, data: bytes) -> None:
    names = [str(written(folder, "a.trec", data)), str(written(folder, "b.trec", RUN))]
    fuse([*names, "--out", str(folder / "out"), "--k", "3"])


def _compare(folder: Path, run: bytes, qrels: bytes) -> None:
    names = [str(written(folder, "a.trec", run)), str(written(folder, "b.trec", RUN))]
    judged = str(written(folder, "qrels.tsv", qrels))
    measures = "nDCG@3,ERR@3,RR,R@2"
    options = ["--qrels", judged, "--measures", measures, "--resamples", "5"]
    compare([*names, *options, "--out", str(folder / "out")])


# Collections and recordings


def _collection(name: str) -> Callable[[Path, bytes], None]:
    def read(folder: Path, data: bytes) -> None:
        good = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": BEIR}
        for file, own in (good | {name: data}).items():
            written(folder / "set", file, own)
        load(folder / "set")

    return read


def load(path: Path) -> None:
    config = DatasetConfig(name="mine", kind="beir_folder", path=str(path))
    load_collection(config, data_home=path.parent)
    with suppress(DesaError):
        generations_folder(config, data_home=path.parent)


def zipped(folder: Path) -> bytes:
    path = folder / "good.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (
            ("corpus.jsonl", CORPUS),
            ("queries.jsonl", QUERIES),
            ("qrels/test.tsv", BEIR),
        ):
            archive.writestr(name, data)
    return path.read_bytes()


def _recording(folder: Path, data: bytes) -> None:
    written(folder, "references.jsonl", data)
    prompt = load_prompt("references")
    recorded_fingerprint(folder, prompt)
    for strict in (False, True):
        with suppress(DesaError):
            read_recorded(
                folder,
                prompt,
                query_ids=["q1", "q2"],
                query_texts=["what swims", "where"],
                dataset="mine",
                draws=[0],
                strict=strict,
            )


# The store, the outbox, and notes of other runs

KEY = Key("vectors", 1, {"encoder": "minilm"}, {"corpus": "cd" * 32})


def stored(folder: Path) -> dict[str, bytes]:
    """The files of one made-up artifact, by name, and the folder of it."""
    artifact = Store(folder / "made").artifact(KEY)
    artifact.layout({"parts": 2})
    for number in range(2):
        artifact.write_part(f"part-{number:05}.npy", bytes([number]) * 100, rows=3)
    artifact.finish("ef" * 32, counts={"rows": 6}, meta={"a": [1.5, "b"]})
    root = folder / "made"
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.suffix in (".json", ".npy")
    }


def resealed(data: bytes, draw: random.Random) -> bytes:
    """A sealed document with other values in it and a seal that fits, where one can be made."""
    document = document_changed(unseal(data), draw)
    if isinstance(document, dict):
        document.pop("seal", None)
        with suppress(ValueError, TypeError):
            return seal(document)
    return spoilt(data, "bytes", draw)


def _manifest(files: dict[str, bytes], name: str) -> Callable[[Path, bytes], None]:
    def read(folder: Path, data: bytes) -> None:
        for file, own in (files | {name: data}).items():
            written(folder / "store", file, own)
        for repair in (False, True):
            artifact = Store(folder / "store", repair=repair).artifact(KEY)
            for look in (artifact.exists, artifact.damage, artifact.manifest, artifact.verify):
                with suppress(DesaError):
                    look()

    return read


LEASE = seal(
    {
        "owner": "one",
        "host": "h",
        "pid": 1,
        "process": "p",
        "token": "t",
        "started": 1.0,
        "heartbeat": 2.0,
        "keys": ["ab" * 32],
    }
)


def _lease(folder: Path, data: bytes) -> None:
    written(folder / "store", ".leases/one.json", data)
    holders(Store(folder / "store").files)


ENTRY_DOCUMENT = {
    "kind": "cell",
    "cell": "c",
    "name": "n",
    "status": "FINISHED",
    "params": {"a": "b"},
    "metrics": {"m": 0.5},
    "tags": {"t": "u"},
    "artifacts": ["one.txt"],
    "started_ms": 1,
    "ended_ms": 2,
    "child": False,
}
TARGET_DOCUMENT = {
    "uri": "sqlite:///x.db",
    "artifacts": "/a",
    "experiment": "e",
    "sweep": "a" * 64,
    "attempt": "b",
}


def _entry(folder: Path, data: bytes) -> None:
    path = written(folder, "outbox/one/00000.json", data)
    written(folder, "outbox/one/00000/one.txt", b"x")
    with suppress(ValueError):  # what the outbox takes as damage
        check_artifacts(read_json(path, ENTRY), path.with_suffix(""))


def _target(folder: Path, data: bytes) -> None:
    path = written(folder, "outbox/one/target.json", data)
    with suppress(ValueError):
        read_json(path, TARGET)
    written(folder, "outbox/one/00000.json", json.dumps(ENTRY_DOCUMENT).encode())
    list(left_behind(folder / "outbox", "sqlite:///x.db"))


def _last(folder: Path, data: bytes) -> None:
    written(folder, FILE, data)
    last_uri(folder)


# Configuration

METHOD = b"""\
name: mine
channels:
  - {kind: dense, weight: 1/2, options: {}}
  - kind: sparse
    weight: 0.5
"""


def _method(folder: Path, data: bytes) -> None:
    written(folder, "my/method/mine.yaml", data)
    read_folder(folder / "my")


def doors(folder: Path) -> list[Door]:
    """All doors; `folder` takes what good input is made of."""
    files = stored(folder)
    found = [
        Door("runs", RUN, "lines", _trec),
        Door("judgments", QRELS, "lines", _trec),
        Door("judgments of BEIR", BEIR, "lines", _trec),
        Door("fuse", RUN, "lines", _fuse),
        Door("compare a run", RUN, "lines", lambda f, data: _compare(f, data, QRELS)),
        Door("compare judgments", QRELS, "lines", lambda f, data: _compare(f, RUN, data)),
        Door("corpus", CORPUS, "jsonl", _collection("corpus.jsonl")),
        Door("queries", QUERIES, "jsonl", _collection("queries.jsonl")),
        Door("judgments of a collection", BEIR, "lines", _collection("qrels/test.tsv")),
        Door("zip", zipped(folder), "bytes", lambda f, data: load(written(f, "set.zip", data))),
        Door("recording", RECORDING, "jsonl", _recording),
        Door("records", parquet(records()), "bytes", read_records, spoilt_records),
        Door("summary of records", SUMMARY, "json", read_summary),
        Door("lease", LEASE, "bytes", _lease, resealed),
        Door("entry", json.dumps(ENTRY_DOCUMENT).encode(), "json", _entry),
        Door("target", json.dumps(TARGET_DOCUMENT).encode(), "json", _target),
        Door("last run", b'{"uri": "sqlite:///x.db"}', "json", _last),
        Door("method", METHOD, "lines", _method),
    ]
    found += _newer_doors()
    for name, data in sorted(files.items()):
        if "00001" in name:
            continue  # a part like the first
        spoil = resealed if data.startswith(b"{") else None
        label = f"store {Path(name).name}"
        found.append(Door(label, data, "bytes", _manifest(files, name), spoil))
    return found


def _newer_doors() -> list[Door]:
    found = [
        Door(f"answers of {name}", newer_doors.dumped(document), "json", newer_doors.answers)
        for name, document in (
            ("Elasticsearch", newer_doors.ELASTIC),
            ("Qdrant", newer_doors.QDRANT),
            ("Weaviate", newer_doors.WEAVIATE),
            ("LanceDB", newer_doors.LANCE),
        )
    ]
    found += [
        Door("answers as TSV", newer_doors.TSV, "lines", newer_doors.answers),
        Door("answers as TREC", newer_doors.TREC, "lines", newer_doors.answers),
        Door(
            "run kept", newer_doors.kept(), "bytes", newer_doors.kept_run, newer_doors.spoilt_table
        ),
        Door("runs by rules", newer_doors.RUNS, "lines", newer_doors.ruled),
        Door("table of queries", QUERIES, "jsonl", newer_doors.tables("queries.jsonl")),
    ]
    for name, data in (
        ("corpus.parquet", newer_doors.parquet()),
        (
            "qrels/test.parquet",
            newer_doors.parquet({"query-id": ["q1"], "corpus-id": ["d1"], "score": [1]}),
        ),
    ):
        spoil = newer_doors.spoilt_table
        found.append(Door(f"table {name}", data, "bytes", newer_doors.tables(name), spoil))
    for kind, data in (
        ("stream", newer_doors.arrow_stream()),
        ("packed", newer_doors.arrow_packed()),
    ):
        found.append(Door(f"arrow {kind}", data, "bytes", newer_doors.tables("corpus.arrow")))
    for name, data in newer_doors.MSMARCO.items():
        found.append(Door(f"MS MARCO's {name}", data, "lines", newer_doors.msmarco(name)))
    return found
