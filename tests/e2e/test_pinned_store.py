"""Keys and content hashes that must not move: what stores written by earlier versions hold is found
again.

`pinned_store.json` was written by the code of version 0.1.0 (commit 0ea1ce6). A key that changes
throws away every store in use; a content hash that changes says that a result changed. Where either
is meant to change, the stage's version rises, and the entry here is replaced together with it.

Vectors are floats of an encoder, the same on one kind of processor; contents that rest on them are
compared where the vectors themselves agree, all others everywhere. Keys never depend on the
machine. Four entries have an empty content, KEYS_ALONE: they came later, on a processor whose
vectors differ from the pinned ones, so only their keys are pinned. What they compute is checked
without pins: weights by hand in tests/core/test_confidence.py and from a sweep's scores in
tests/e2e/test_methods.py, sums of weighted ranks by the golden cases.
"""

import json
import os
from pathlib import Path

import pytest

from tests.desa_fixtures import run_desa

pytestmark = pytest.mark.long

PINNED = Path(__file__).with_name("pinned_store.json")
DEMO = Path(__file__).parents[2] / "desa_ray" / "data" / "demo_data"
METHODS = (
    "original,shared,dense_only,sparse_only,desa,bm25,dense_original,contextual_dense,rewrite_sparse,binary_mask,"
    "references_only,references_product,hyde,query2doc,mugi,qudar_complete,qudar_top1000,qudar_weighted,"
    "qudar_weighted_top1000,dvcqr,exp4fuse,exp4fuse_hybrid,relaxed_count,relaxed_share,word2passage"
)
KEYS_ALONE = {  # scores of the two dense rankings, and the two weighted fusions of QuDAR
    *("top_scores/c76e9cdbfc5a", "top_scores/d95ced0c70af"),
    *("fusion/8b757a491574", "fusion/c1f1c2c609a7"),
}
ENCODED = ("vectors", "text_vectors", "snapshot_vectors")
SWEEPS = (
    (f"method={METHODS}",),
    ("method=original,desa", "ranking=lazy", "fusion.kappa=20,1/3"),
    ("method=desa", "dataset.size=300", "dataset.sample=5", "n_refs=3"),
    ("method=original", "encoder=minilm_l3", "sparse.k1=1.2", "evaluation.measures=[AP,RR@10]"),
)


def _rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (DEMO / name).read_text(encoding="utf-8").splitlines()]


def write_collection(folder: Path) -> None:
    """400 passages (the demo's references of two draws) and the 8 needs that have texts of every
    prompt.
    """
    generations = sorted((DEMO / "generations").glob("*.jsonl"))
    texts = {path.stem: _rows(f"generations/{path.name}") for path in generations}
    wanted = sorted({row["query_id"] for row in texts["hyde"]})
    passages = {}
    for row in texts["references"]:
        if row["draw"] > 0:
            for number, text in enumerate(row["texts"]):
                passages[f"{row['query_id']}-{row['draw']}-{number}"] = text
    (folder / "qrels").mkdir(parents=True)
    (folder / "generations").mkdir()
    _write(
        folder / "corpus.jsonl", [{"_id": n, "title": "", "text": t} for n, t in passages.items()]
    )
    needs = [{"_id": row["id"], "text": row["text"]} for row in _rows("needs.jsonl")]
    _write(folder / "queries.jsonl", [row for row in needs if row["_id"] in wanted])
    lines = ["query-id\tcorpus-id\tscore"]
    for query in wanted:
        lines += [
            f"{query}\t{query}-{1 + n % 2}-{n}\t{grade}" for n, grade in enumerate((3, 2, 1, 0))
        ]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for prompt, rows in texts.items():
        own = [row for row in rows if row["query_id"] in wanted]
        _write(folder / "generations" / f"{prompt}.jsonl", own)


def _write(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read_store(store: Path) -> dict[str, dict[str, str]]:
    """Stage name -> first digits of the key (the folder) -> content hash; read without any code of
    ours.
    """
    found: dict[str, dict[str, str]] = {}
    for path in sorted(store.glob("*/*/manifest.json")):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(path.parts[-3], {})[path.parts[-2]] = manifest["content"]
    return found


def resting_on_vectors(store: Path) -> set[str]:
    """First digits of the keys of all vectors, and of everything that is made from some."""
    inputs = {}
    for path in store.glob("*/*/manifest.json"):
        key = json.loads(path.read_text(encoding="utf-8"))["key"]
        inputs[path.parts[-2]] = [digest[:12] for digest in key["inputs"].values()]
    found = {path.parts[-2] for name in ENCODED for path in store.glob(f"{name}/*/manifest.json")}
    while more := {key for key, own in inputs.items() if found.intersection(own)} - found:
        found |= more
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pinned")


@pytest.fixture(scope="module")
def stored(folder: Path) -> dict[str, dict[str, str]]:
    write_collection(folder / "collection")
    return run_sweeps(folder)


def run_sweeps(folder: Path) -> dict[str, dict[str, str]]:
    source = [f"dataset.path={folder / 'collection'}", "dataset=beir_folder", "dataset.name=pinned"]
    for overrides in SWEEPS:
        arguments = [
            "run",
            "-m",
            *source,
            "draws=1",
            "cluster=serial",
            "tracking.enabled=false",
            *overrides,
        ]
        done = run_desa(folder, folder / "home", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    return read_store(folder / "home" / "store")


def test_contents_are_pinned_but_for_four():
    """No entry loses its content unnoticed, and no other comes without one."""
    pinned = json.loads(PINNED.read_text(encoding="utf-8"))
    empty: set[str] = set()
    for name, own in pinned.items():
        empty |= {f"{name}/{key}" for key, content in own.items() if not content}
    assert empty == KEYS_ALONE


def test_keys_are_those_of_earlier_versions(stored):
    pinned = json.loads(PINNED.read_text(encoding="utf-8"))
    assert {name: sorted(own) for name, own in stored.items()} == {
        name: sorted(own) for name, own in pinned.items()
    }


def test_contents_are_those_of_earlier_versions(stored, folder):
    pinned = json.loads(PINNED.read_text(encoding="utf-8"))
    same_floats = all(stored[name] == pinned[name] for name in ENCODED)
    left_out = set() if same_floats else resting_on_vectors(folder / "home" / "store")
    compared = 0
    for name, contents in pinned.items():
        known = {key: own for key, own in contents.items() if own and key not in left_out}
        assert {key: stored[name].get(key) for key in known} == known
        compared += len(known)
    assert compared > 40  # also where vectors differ: sparse rankings, what is fused from them


if __name__ == "__main__":  # writes the pins: python -m tests.e2e.test_pinned_store FOLDER
    import sys

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    place = Path(sys.argv[1]).absolute()
    write_collection(place / "collection")
    PINNED.write_text(
        json.dumps(run_sweeps(place), indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )
