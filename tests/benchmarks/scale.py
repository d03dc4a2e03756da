"""A million documents, lazily: what each stage takes and holds, and how that grows with the
collection.

    python -m tests.benchmarks.scale --out scale.json 2000 50000 200000 1000000

The pipeline is the real one: ingest in pieces, Lucene in ranges, prefixes, fusion. Only the encoder
is made up: its two stages get vectors from a seed, which takes nothing away from what is measured.
Topics tie words to vectors, so that both channels agree about as much as they do on real data.
Every stage has a driver of its own and one worker at a time, a child of it; the peak memory of both
is logged. The CPU time of the smallest size stands for starting up: exponents are fitted to what
the others take more.
"""

import argparse
import importlib
import json
import math
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from desa_ray.config import ClusterConfig, RunConfig
from desa_ray.config_check import checked
from desa_ray.experiment.build import Builder
from desa_ray.experiment.prepare import prepare_cell
from desa_ray.experiment.reading import ReadingBackend
from desa_ray.experiment.records import cell_records
from desa_ray.pipeline.execute import Quiet, missing, run_stage, schedule
from desa_ray.pipeline.stage import Pool, Shard, Stage
from desa_ray.stages import ingest
from desa_ray.stages.document_vectors import DocumentVectorsWork, store_vectors
from desa_ray.stages.text_vectors import TextVectorsWork
from desa_ray.store.artifacts import Store
from desa_ray.store.tables import write_array

from .made_up import DIMENSIONS, WORDS

TOPICS, TOPIC_WORDS, QUERIES = 400, 40, 200
SEEDED = Pool("seeded", ingest.Reading, light=True)  # who makes vectors


def _topics_of(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng([seed, 1]).integers(0, TOPICS, count)


def _text(
    rng: np.random.Generator, edges: np.ndarray, topic: int, general: int, topical: int
) -> str:
    """Zipfian words of the whole vocabulary, and as many of the topic's own, the first of them most
    often.
    """
    common = np.searchsorted(edges, rng.random(general)) + 1
    own = topic * TOPIC_WORDS + (TOPIC_WORDS * rng.random(topical) ** 2).astype(int)
    return " ".join([*(f"w{w}x" for w in common), *(f"t{w}x" for w in own)])


def write_collection(folder: Path, documents: int) -> None:
    """A BEIR folder of Zipfian texts; the first documents of a topic are relevant to its query."""
    shares = 1 / np.arange(1, WORDS + 1)
    edges = np.cumsum(shares / shares.sum())
    rng = np.random.default_rng(4)
    topics = _topics_of(documents, 0)
    (folder / "qrels").mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w") as out:
        for number, topic in enumerate(topics):
            text = _text(rng, edges, topic, int(rng.poisson(24)), int(rng.poisson(8)))
            out.write(json.dumps({"_id": f"d{number:08d}", "title": "", "text": text}) + "\n")
    asked = _topics_of(QUERIES, 7)
    with (folder / "queries.jsonl").open("w") as out:
        for number, topic in enumerate(asked):
            out.write(
                json.dumps({"_id": f"q{number:04d}", "text": _text(rng, edges, topic, 3, 3)}) + "\n"
            )
    with (folder / "qrels" / "test.tsv").open("w") as out:
        out.write("query-id\tcorpus-id\tscore\n")
        for number, topic in enumerate(asked):
            for document in np.flatnonzero(topics == topic)[:5]:
                out.write(f"q{number:04d}\td{document:08d}\t1\n")


def _vectors(topics: np.ndarray, first: int, seed: int) -> np.ndarray:
    """float32 [n, D] unit rows near their topics' directions; each row from its own number."""
    middles = (
        np.random.default_rng([seed, 2]).standard_normal((TOPICS, DIMENSIONS), np.float32)
        / DIMENSIONS**0.5
    )
    noise = np.random.default_rng([seed, 3, first]).standard_normal(
        (len(topics), DIMENSIONS), np.float32
    )
    rows = middles[topics] + noise * np.float32(1.2 / DIMENSIONS**0.5)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@dataclass(frozen=True)
class MadeUpVectors(DocumentVectorsWork):
    """Document vectors from a seed."""

    def run(self, engine: Any, stage: Stage, shard: Shard) -> None:
        topics = _topics_of(stage.inputs["corpus"].rows, 0)
        vectors = _vectors(topics[shard.start : shard.stop], shard.start, 5)
        store_vectors(stage, shard, vectors)


@dataclass(frozen=True)
class MadeUpTextVectors(TextVectorsWork):
    """Query vectors from a seed."""

    def run(self, engine: Any, stage: Stage, shard: Shard) -> None:
        topics = _topics_of(QUERIES, 7)[shard.start : shard.stop]
        middles = _vectors(topics, 1 << 40 | shard.start, 5)
        write_array(stage.artifact, shard.parts[0], middles)


def _config(folder: Path, home: Path, memory_gb: float) -> RunConfig:
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    from desa_ray.experiment.spec import RUN_KEYS

    overrides = [
        "dataset=beir_folder",
        f"dataset.path={folder}",
        "dataset.name=made_up",
        "method=original",
    ]
    overrides += [
        "ranking=lazy",
        "cluster=serial",
        f"cluster.memory_gb={memory_gb}",
        "cluster.shard_documents=65536",
    ]
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        plain: Any = OmegaConf.to_container(compose("config", overrides), resolve=True)
    return checked(RunConfig, {key: plain[key] for key in RUN_KEYS if key in plain})


def _stages(config: RunConfig, store: Store, home: Path) -> list[Stage]:
    backend = ReadingBackend(ClusterConfig(kind="local", cpus=1))
    cell = Builder(prepare_cell(config, store, home, backend=backend)).cell()
    backend.close()
    return [_made_up(stage) for stage in schedule(missing(cell.targets))]


def _made_up(stage: Stage) -> Stage:
    work: Any = stage.work
    if stage.name == "vectors":
        return replace(stage, work=MadeUpVectors(SEEDED, work.shard_documents))
    if stage.name == "text_vectors":
        return replace(stage, work=MadeUpTextVectors(SEEDED, work.shard_texts))
    return stage


def _run(config: RunConfig, home: Path, number: int | None) -> Mapping[str, Any]:
    """In a process of its own: plans, and runs one of the missing stages (None: plans alone)."""
    ingest.LARGE = 0  # in pieces, whatever the size
    store = Store(str(home / "store"))
    started = time.perf_counter()
    stages = _stages(config, store, home)
    if number is not None:
        executor = ReadingBackend(ClusterConfig(kind="local", cpus=1))
        before = time.process_time(), time.perf_counter()
        run_stage(stages[number], executor, Quiet())
        cpu, wall = time.process_time() - before[0], time.perf_counter() - before[1]
        executor.close()
        name = f"{stages[number].name} {stages[number].label}".strip()
    else:
        cpu, wall, name = (
            time.process_time(),
            time.perf_counter() - started,
            "plan and ingest",
        )
    own, child = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {
        "stage": name,
        "cpu_s": cpu + child.ru_utime + child.ru_stime,
        "wall_s": wall,
        "peak_gb": max(own.ru_maxrss, child.ru_maxrss) / 2**20,
        "driver_gb": own.ru_maxrss / 2**20,
        "stages": len(stages),
    }


def _alone(*arguments: Any) -> Mapping[str, Any]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as child:
        return child.submit(_run, *arguments).result()


def run(documents: int, memory_gb: float, scratch: Path) -> dict[str, Any]:
    """All stages of one size; a line each on stderr while it runs."""
    folder, home = scratch / f"made-up-{documents}", scratch / f"home-{documents}"
    if not (folder / "qrels" / "test.tsv").exists():
        write_collection(folder, documents)
    config = _config(folder, home, memory_gb)
    found = [_alone(config, home, None)]
    while True:
        _say(documents, found[-1])
        if len(found) > found[0]["stages"]:
            break
        found.append(_alone(config, home, 0))
    store = Store(str(home / "store"))
    records = cell_records(Builder(prepare_cell(config, store, home)).cell())
    depths = records["depths"].list.max()
    result = {
        "documents": documents,
        "queries": records.height,
        "stages": [{k: v for k, v in own.items() if k != "stages"} for own in found],
        "cpu_s": sum(own["cpu_s"] for own in found),
        "wall_s": sum(own["wall_s"] for own in found),
        "peak_gb": max(own["peak_gb"] for own in found),
        "driver_gb": max(own["driver_gb"] for own in found),
        "depth_median": depths.median(),
        "depth_max": depths.max(),
        "deepened": len({p.name for p in (home / "store").glob("prefix_deep/*/*.npy")}),
    }
    print(
        json.dumps({k: v for k, v in result.items() if k != "stages"}), file=sys.stderr, flush=True
    )
    return result


def _say(documents: int, own: Mapping[str, Any]) -> None:
    what = f"{documents:>9,}  {own['stage']:32.32} {own['cpu_s']:8.1f} s CPU {own['wall_s']:8.1f} s"
    memory = f"{own['peak_gb']:6.2f} GB, driver {own['driver_gb']:.2f} GB"
    print(f"{what} {memory}", file=sys.stderr, flush=True)


def exponents(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Slope of log(quantity) over log(documents), least squares, for every stage and in all; of CPU
    seconds those that the smallest run did not take, where there are more than two.
    """
    start = {stage["stage"]: stage["cpu_s"] for stage in runs[0]["stages"]}
    start["all"] = runs[0]["cpu_s"]
    if len(runs) > 2:
        runs = runs[1:]
    else:
        start = dict.fromkeys(start, 0.0)
    sizes = [math.log(own["documents"]) for own in runs]
    found = {}
    for name in start:
        rows = [own if name == "all" else _stage_of(own, name) for own in runs]
        if all(rows):
            cpu = [row["cpu_s"] - start[name] for row in rows]
            found[name] = {"cpu_s": _slope(sizes, cpu)}
            for quantity in ("peak_gb", "driver_gb"):
                found[name][quantity] = _slope(sizes, [row[quantity] for row in rows])
    return found


def _stage_of(run: dict[str, Any], name: str) -> dict[str, Any]:
    return next((stage for stage in run["stages"] if stage["stage"] == name), {})


def _slope(x: list[float], values: list[float]) -> float:
    return float(np.polyfit(x, [math.log(max(value, 1e-9)) for value in values], 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "documents", type=int, nargs="*", default=[2_000, 50_000, 200_000, 1_000_000]
    )
    parser.add_argument("--out", type=Path, default=Path("scale.json"))
    parser.add_argument("--scratch", type=Path, default=None, help="kept afterwards if given")
    parser.add_argument("--memory-gb", type=float, default=2.0)
    options = parser.parse_args()
    for name in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{name}_NUM_THREADS", "2")
    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = root  # workers import this module
    with tempfile.TemporaryDirectory(prefix="desa-scale-") as temporary:
        scratch = options.scratch or Path(temporary)
        runs = [run(documents, options.memory_gb, scratch) for documents in options.documents]
    document = {"memory_gb": options.memory_gb, "runs": runs}
    if len(runs) > 1:
        document["exponents"] = exponents(runs)
        for name, own in document["exponents"].items():
            slopes = ", ".join(f"{quantity} {slope:.2f}" for quantity, slope in own.items())
            print(f"exponents {name:32.32} {slopes}", file=sys.stderr)
    options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    # Under its own name, so that workers find what they are sent
    importlib.import_module("tests.benchmarks.scale").main()
