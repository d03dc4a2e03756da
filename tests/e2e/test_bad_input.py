"""Bad input: one clear error that names the place, exit code 2, before anything is encoded, and no
traceback.
"""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from desa_ray.config import DatasetConfig
from desa_ray.data import load_collection
from tests.desa_fixtures import refused
from tests.reference import REFERENCE


def _append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


CASES = {
    "missing path": (shutil.rmtree, ["tiny", "no such folder"]),
    "malformed line": (
        lambda f: _append(f / "corpus.jsonl", '{"_id": "d9", "text": \n'),
        ["corpus.jsonl", "4"],
    ),
    "duplicate ids": (
        lambda f: _append(f / "corpus.jsonl", '{"_id": "d1", "text": "again"}\n'),
        ["d1", "duplicate"],
    ),
    "empty corpus": (lambda f: (f / "corpus.jsonl").write_text(""), ["corpus", "empty"]),
    "unknown document": (
        lambda f: _append(f / "qrels" / "test.tsv", "q1\tnowhere\t1\n"),
        ["nowhere"],
    ),
    "unknown query": (lambda f: _append(f / "qrels" / "test.tsv", "q9\td1\t1\n"), ["q9"]),
    "bad grade": (
        lambda f: _append(f / "qrels" / "test.tsv", "q1\td1\thigh\n"),
        ["test.tsv", "4", "high"],
    ),
    "surrogate": (
        lambda f: _append(f / "corpus.jsonl", '{"_id": "d\\ud800", "text": "x"}\n'),
        ["surrogate"],
    ),
    "control characters": (
        lambda f: _append(
            f / "corpus.jsonl",
            '{"_id": "x\\u0000a", "text": "1"}\n{"_id": "x\\u0000b", "text": "2"}\n',
        ),
        ["document ids with control characters (2): 'x\\x00a', 'x\\x00b'"],
    ),
    "numeric id": (
        lambda f: _append(f / "corpus.jsonl", '{"_id": 0, "text": "x"}\n'),
        ['corpus.jsonl:4: field "_id" is not a string: 0 (write it in quotes: "0")'],
    ),
    "missing reference": (
        lambda f: (f / "generations" / "references.jsonl").write_text(
            "".join(
                (f / "generations" / "references.jsonl").read_text().splitlines(keepends=True)[:-1]
            )
        ),
        ["q2", "draw 2", "references.jsonl"],
    ),
    "blank reference": (
        lambda f: _append(
            f / "generations" / "references.jsonl",
            '{"query_id": "q1", "prompt": "references", "draw": 0, "texts": ["", "", "", "",'
            ' ""]}\n',
        ),
        ["q1", "references.jsonl"],
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_bad_collection_is_refused_by_name(name, collection, refuse, tmp_path):
    spoil, words = CASES[name]
    spoil(collection)
    refuse(words, "run", "dataset=beir_folder", f"dataset.path={collection}", "cluster=serial")
    assert not (tmp_path / "home" / "store" / "vectors").exists()


OVERRIDES = {
    "unknown key": (["fusion.kapa=3"], ["kapa"]),
    "unknown method": (["method=desaa"], ["desaa", "sparse_only", "original"]),
    "wrong type": (["fusion.k=many"], ["fusion.k", "many"]),
    "kappa too small": (["fusion.kappa=-1"], ["kappa"]),
    "several at once": (["fusion.k=0", "draws=0"], ["fusion.k", "draws"]),
    "unknown measure": (["evaluation.measures=[nonsense]"], ["nonsense"]),
    "too many references": (["n_refs=6"], ["n_refs"]),
    "unknown operator": (["method.channels.0.operator=rotate"], ["rotate", "residual"]),
    "unquoted value": (["dataset.path=/tmp/a=b#c d"], ["quote"]),
    "wrong Java": (["sparse.java_home=NOJAVA"], ["java"]),
    "path in a name": (["dataset.name=../up"], ["dataset.name"]),
    "tracking away": (["tracking.uri=http://127.0.0.1:9"], ["tracking"]),
}


@pytest.mark.parametrize("name", OVERRIDES)
def test_bad_override_is_refused_by_name(name, collection, refuse, tmp_path):
    overrides, words = OVERRIDES[name]
    overrides = [text.replace("NOJAVA", str(tmp_path / "no-java")) for text in overrides]
    common = ["dataset=beir_folder", f"dataset.path={collection}", "cluster=serial"]
    refuse(words, "run", *common, *overrides)
    assert not (tmp_path / "home" / "store" / "vectors").exists()


@pytest.mark.long
def test_store_that_cannot_be_written_is_refused(collection, desa, tmp_path):
    (tmp_path / "file").write_text("")
    done = desa(
        "run",
        "dataset=beir_folder",
        f"dataset.path={collection}",
        f"store.root={tmp_path}/file",
        check=False,
    )
    refused(done.returncode, done.stderr, ["file"])


def test_unknown_verb_lists_the_known(desa):
    done = desa("rum", check=False)
    assert done.returncode == 2
    assert "run" in done.stderr


@pytest.mark.long
def test_empty_and_stopword_only_queries_run_and_are_counted(collection, desa, tmp_path):
    rows = [json.loads(line) for line in (collection / "queries.jsonl").read_text().splitlines()]
    rows += [{"_id": "q3", "text": ""}, {"_id": "q4", "text": "the of and"}]
    (collection / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _append(collection / "qrels" / "test.tsv", "q3\td1\t1\nq4\td1\t1\n")
    common = [
        "dataset=beir_folder",
        f"dataset.path={collection}",
        "cluster=serial",
        "tracking.enabled=false",
    ]
    done = desa("run", *common, "method=original")
    cell = json.loads(next(tmp_path.glob("outputs/*/*/summary.json")).read_text())["cells"][0]
    assert cell["n_queries"] == 4
    # "cat" also finds "cats"
    assert cell["metrics"]["sparse_support"] == pytest.approx((2 + 1 + 0 + 0) / 4)
    assert "empty queries: 1" in done.stderr
    assert (tmp_path / "home" / "store" / "vectors").exists()


@pytest.mark.long
def test_exclude_self_drops_the_query_document_from_lists(collection, desa, tmp_path):
    """Exclude self drops the query document from lists and support."""
    rows = [{"_id": "d0", "text": "the cat sat on the mat"}, {"_id": "q2", "text": "sun"}]
    (collection / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (collection / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nd0\td1\t1\nq2\td2\t1\n"
    )
    common = [
        "dataset=beir_folder",
        f"dataset.path={collection}",
        "cluster=serial",
        "tracking.enabled=false",
    ]
    support = {}
    for exclude in ("false", "true"):
        desa(
            "run",
            *common,
            "method=original",
            f"evaluation.exclude_self={exclude}",
            f"hydra.run.dir=out-{exclude}",
        )
        import polars as pl

        records = pl.read_parquet(tmp_path / f"out-{exclude}" / "records.parquet")
        row = records.filter(pl.col("query_id") == "d0").row(0, named=True)
        support[exclude] = (row["lengths"], "d0" in row["top"])
    assert support["false"] == ([3, 2], True)  # the other cat
    assert support["true"] == ([2, 1], False)


def test_a_model_folder_that_is_none_is_refused_by_a_plan_once(collection, refuse):
    """A model folder that is none is refused by a plan once by file and tensor."""
    common = [
        "plan",
        "dataset=beir_folder",
        f"dataset.path={collection}",
        "dataset.name=mine",
        "method=original",
    ]
    place = REFERENCE / "cases" / "encoder_config-1"
    errors = refuse(
        [f"{place}/config.json: ", "num_hidden_layers is null"], *common, f"encoder.path={place}"
    )
    assert len(errors) == 1
    place = REFERENCE / "cases" / "encoder_safetensors-1"
    name = "encoder.layer.0.attention.output.LayerNorm.weight"
    words = [
        f"{place}/model.safetensors: tensor '{name}' has the shape [17]",
        "has 64 positions (lower",
    ]
    assert len(refuse(words, *common, f"encoder.path={place}")) == 2


def test_a_document_of_50_mb_and_a_query_of_10_mb_are_read(collection, tmp_path):
    """Written with escapes, as json.dumps does, the document takes three times as many bytes."""
    text = "б" * 1000 + " "
    _append(collection / "corpus.jsonl", json.dumps({"_id": "huge", "text": text * 25_000}) + "\n")
    _append(
        collection / "queries.jsonl",
        json.dumps({"_id": "long", "text": "word " * 2_000_000}) + "\n",
    )
    found = load_collection(
        DatasetConfig(name="tiny", kind="beir_folder", path=str(collection)), data_home=tmp_path
    )
    assert (
        found.documents.filter(pl.col("id") == "huge")["text"].str.len_bytes().item() > 50_000_000
    )
    assert found.queries.filter(pl.col("id") == "long")["text"].str.len_bytes().item() == 10_000_000
