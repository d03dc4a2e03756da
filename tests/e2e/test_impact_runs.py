"""Runs on learned impacts of a file: rankings equal those of plain dictionaries, however they are
computed.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import desa_ray
from desa_ray.core.query_text import mugi_repeats
from desa_ray.errors import DesaError
from tests.desa_fixtures import dataset, run_desa
from tests.impact_files import Vectors, rows_of, write_impacts

pytestmark = pytest.mark.long

WORDS = [f"w{number}" for number in range(40)]
Bag = dict[str, int]


def _sentence(random: np.random.Generator, size: int) -> str:
    return " ".join(random.choice(WORDS, size))


def write_collection(folder: Path) -> None:
    """90 documents, 9 queries, one draw of references, query2doc and mugi texts."""
    random = np.random.default_rng(4)
    (folder / "qrels").mkdir(parents=True)
    (folder / "generations").mkdir()
    documents = [
        {"_id": f"d{n}", "title": "", "text": _sentence(random, int(random.integers(1, 12)))}
        for n in range(90)
    ]
    queries = [{"_id": f"q{n}", "text": _sentence(random, 1 + n % 3)} for n in range(9)]
    _write(folder / "corpus.jsonl", documents)
    _write(folder / "queries.jsonl", queries)
    lines = [f"q{n}\td{7 * n}\t1" for n in range(9)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]))
    for prompt, count in (("references", 5), ("query2doc", 1), ("mugi", 5)):
        rows = []
        for query in queries:
            texts = [_sentence(random, 4) + f" x{n}" for n in range(count)]
            rows.append({"query_id": query["_id"], "prompt": prompt, "draw": 0, "texts": texts})
        _write(folder / "generations" / f"{prompt}.jsonl", rows)


def _write(file: Path, rows: list[dict]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory):
    """A folder with a collection `small`, its impacts, and a home of its own."""
    folder = tmp_path_factory.mktemp("impacts")
    write_collection(folder / "small")
    made = write_impacts(folder / "small", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DESA_HOME", str(folder / "home"))
        patch.chdir(folder)
        yield folder, *made


SPARSE = [
    "sparse=impact",
    "sparse.impacts=impacts.jsonl",
    "sparse.tokenizer=words.json",
    "cluster=serial",
    "tracking.enabled=false",
    "draws=1",
]


def channel(operator: str, prompt: str | None) -> list[str]:
    """A method of one sparse channel."""
    own = f"{{name: sparse, kind: sparse, operator: {operator}}}"
    if prompt is None:
        return ["method=bm25", f"method.channels=[{own}]"]
    return ["method=desa", f"method.channels=[{own}]", f"method.prompt={prompt}"]


class Oracle:
    """Rankings from dictionaries of whole numbers."""

    def __init__(self, folder: Path, vectors: Vectors, table: dict[str, float] | None = None):
        self.folder, self.table = folder, table
        self.documents = {name: whole(vectors[name]) for name in sorted(vectors)}
        self.queries = {row["_id"]: row["text"] for row in rows_of(folder / "queries.jsonl")}

    def weights(self, text: str) -> Bag:
        words = set(text.split()) & set(WORDS)
        if self.table is None:
            return dict.fromkeys(words, 100)
        return whole({word: self.table[word] for word in words if word in self.table})

    def texts(self, prompt: str) -> dict[str, list[str]]:
        rows = rows_of(self.folder / "generations" / f"{prompt}.jsonl")
        return {row["query_id"]: row["texts"] for row in rows}

    def expanded(self, query: str, prompt: str, copies: int, combine: Callable = sum) -> Bag:
        bags = [self.weights(text) for text in self.texts(prompt)[query]]
        own = self.weights(self.queries[query])
        bags.append({term: copies * weight for term, weight in own.items()})
        terms = set().union(*bags)
        found = {term: combine([bag.get(term, 0) for bag in bags]) for term in terms}
        return {term: weight for term, weight in found.items() if weight}

    def hits(self, bag: Bag) -> dict[str, int]:
        found = {}
        for name, vector in self.documents.items():
            if shared := bag.keys() & vector.keys():
                found[name] = sum(bag[term] * vector[term] for term in shared)
        return found


def whole(weights: dict[str, float]) -> Bag:
    rounded = {term: round(weight * 100) for term, weight in weights.items()}
    return {term: weight for term, weight in rounded.items() if weight}


def ordered(hits: dict[str, int]) -> list[str]:
    return sorted(hits, key=lambda name: (-hits[name], name))


def given(place: Path, *overrides: str) -> list[str]:
    """Overrides on the collection; of several of one setting, the last."""
    every = [*dataset(place / "small"), *SPARSE, *overrides]
    return list({own.split("=", 1)[0]: own for own in every}.values())


def ranked(place: Path, *overrides: str) -> dict[str, list[str]]:
    """Query -> its complete ranking."""
    found = desa_ray.run(given(place, *overrides))
    lists = found.rankings(channel="sparse").sort("query_id", "rank")
    return dict(lists.group_by("query_id", maintain_order=True).agg("doc_id").iter_rows())


@pytest.mark.parametrize("weighed", [False, True])
def test_rankings_equal_those_of_dictionaries(place, weighed):
    folder, vectors, table = place
    oracle = Oracle(folder / "small", vectors, table if weighed else None)
    more = ["sparse.token_weights=weights.json"] if weighed else []
    found = ranked(folder, *more, *channel("original", None))
    query = {name: oracle.hits(oracle.weights(text)) for name, text in oracle.queries.items()}
    assert found == {name: ordered(hits) for name, hits in query.items() if hits}
    for how, combine in (("sum", sum), ("max", max)):
        rewritten = {
            name: oracle.hits(oracle.expanded(name, "references", 1, combine)) for name in query
        }
        more += [f"sparse.combine={how}"]
        found = ranked(folder, *more, *channel("rewrite", "references"))
        assert found == {name: ordered(hits) for name, hits in rewritten.items() if hits}
        anchored = {
            name: {doc: score * rewritten[name][doc] for doc, score in hits.items()}
            for name, hits in query.items()
        }
        found = ranked(folder, *more, *channel("product", "references"))
        assert found == {name: ordered(hits) for name, hits in anchored.items() if hits}


def test_copies_of_the_query_multiply_its_weights(place):
    folder, vectors, _ = place
    oracle = Oracle(folder / "small", vectors, None)
    passages, many = oracle.texts("query2doc"), oracle.texts("mugi")
    assert set(map(len, passages.values())) == {1}
    found = ranked(folder, *channel("query2doc", "query2doc"))
    assert found == {
        name: ordered(oracle.hits(oracle.expanded(name, "query2doc", 5))) for name in found
    }
    found = ranked(folder, *channel("mugi", "mugi"))
    copies = {name: mugi_repeats(oracle.queries[name], many[name]) for name in found}
    assert max(copies.values()) > 1
    assert found == {
        name: ordered(oracle.hits(oracle.expanded(name, "mugi", copies[name]))) for name in found
    }


def test_a_joint_text_keeps_the_support_of_the_query(place):
    """Every distinct token weighs once, whichever text has it."""
    folder, vectors, _ = place
    oracle = Oracle(folder / "small", vectors, None)
    found = ranked(folder, "sparse.combine=joint", *channel("rewrite", "references"))
    for name, ranking in found.items():
        joint = " ".join([oracle.queries[name], *oracle.texts("references")[name]])
        assert ranking == ordered(oracle.hits(oracle.weights(joint)))
    ranked(folder, "sparse.combine=joint", *channel("product", "references"))


TWO = (
    "method.channels=[{name: one, kind: sparse, operator: original},"
    "{name: two, kind: sparse, operator: product}]"
)
COLUMNS = ("query_id", "depths", "top", "sparse_support", "ndcg_at_10", "recall_at_20")


def recorded(overrides: list[str]) -> pl.DataFrame:
    """What all ways of ranking record."""
    found = desa_ray.run(overrides).records
    return found.select(name for name in COLUMNS if name in found.columns)


def records(place: Path, *overrides: str) -> pl.DataFrame:
    methods = ["method=desa", TWO, "fusion.k=5"]
    return recorded(given(place, *methods, *overrides))


@pytest.mark.parametrize("more", [[], ["cluster.range_documents=17", "cluster.shard_queries=2"]])
def test_lazy_and_counted_runs_give_the_complete_ones(place, tmp_path, more, monkeypatch):
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    complete = records(place[0])
    assert "top" in complete.columns
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "other"))
    for ranking in ("complete", "lazy", "counted"):
        assert records(place[0], f"ranking={ranking}", *more).equals(complete), ranking


def stored(home: Path) -> dict[str, str]:
    """Keys and contents of the rankings and postings of a store."""
    files = [*home.glob("store/ranking/*/manifest.json")]
    files += home.glob("store/impact_postings/*/manifest.json")
    assert files
    return {file.parent.name: json.loads(file.read_text())["content"] for file in files}


@pytest.mark.slow
def test_ray_writes_what_the_serial_backend_writes(place, tmp_path):
    folder = place[0]
    for name in ("impacts.jsonl", "words.json"):
        shutil.copy(folder / name, tmp_path / name)
    found = []
    for kind, workers in (("serial", 1), ("local", 1), ("local", 3)):
        home = tmp_path / f"{kind}{workers}"
        done = run_desa(
            tmp_path, home, "run", *dataset(folder / "small"), *SPARSE[:3],
            *channel("product", "references"), f"cluster={kind}", "draws=1",
            f"cluster.scorers={workers}", "cluster.range_documents=31", "tracking.enabled=false",
            *(["cluster.cpus=4"] if kind == "local" else []),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        found.append(stored(home))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["sparse.impacts=null"], "sparse.impacts: sparse=impact without impacts"),
        (["sparse.impacts=none.jsonl"], "cannot be read"),
        (["sparse.tokenizer=impacts.jsonl"], "not a readable tokenizer"),
        (["sparse.token_weights=words.json"], "has the weight"),
        (["+sparse.scores=adjusted"], "scores=adjusted is of sparse=bm25 alone"),
        (["sparse.scale=1000000"], "above 1048576 / 1000000.0"),
        (channel("rm3", None), "operator 'rm3' weighs terms of BM25"),
    ],
)
def test_wrong_settings_are_refused_before_the_run(place, overrides, told):
    with pytest.raises(DesaError) as found:
        desa_ray.plan(given(place[0], "method=bm25", *overrides))
    assert told in str(found.value)


def test_terms_of_an_analyzer_need_no_tokenizer(place):
    """The whitespace analyzer gives the tokens of the tokenizer here."""
    folder = place[0]
    method = channel("rewrite", "references")
    assert ranked(folder, "sparse.tokenizer=null", *method) == ranked(folder, *method)
