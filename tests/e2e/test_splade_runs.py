"""Runs with a small random SPLADE model: rankings equal those of its weights in plain dictionaries,
however they are computed.
"""

from pathlib import Path

import pytest

import desa_ray
from desa_ray.config import SparseConfig
from desa_ray.engines.splade import SpladeEncoder
from tests.desa_fixtures import dataset, run_desa
from tests.e2e.test_impact_runs import (
    TWO,
    Bag,
    Oracle,
    channel,
    ordered,
    recorded,
    stored,
    whole,
    write_collection,
)
from tests.impact_files import rows_of
from tests.splade_files import write_model

pytestmark = pytest.mark.long
SPARSE = ["sparse=splade", "sparse.path=model", "sparse.max_tokens=64", "draws=1"]
SERIAL = [*SPARSE, "cluster=serial", "tracking.enabled=false"]


class ModelOracle(Oracle):
    """Weights of the model, one text at a time."""

    def __init__(self, place: Path):
        given = SparseConfig(kind="splade", path=str(place / "model"), max_tokens=64)
        self.engine = SpladeEncoder(given, threads=1, model_home=place / "m", batch_size=1)
        rows = rows_of(place / "small" / "corpus.jsonl")
        texts = {row["_id"]: row["text"] for row in rows}
        super().__init__(
            place / "small", {name: self.engine.weigh([text])[0] for name, text in texts.items()}
        )

    def weights(self, text: str) -> Bag:
        return whole(self.engine.weigh([text])[0])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("splade")
    write_collection(folder / "small")
    write_model(folder / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DESA_HOME", str(folder / "home"))
        patch.chdir(folder)
        yield folder


def test_rankings_equal_those_of_single_texts(place):
    oracle = ModelOracle(place)
    methods = [*dataset(place / "small"), *SERIAL, *channel("product", "references")]
    lists = desa_ray.run(methods).rankings(channel="sparse").sort("query_id", "rank")
    found = dict(lists.group_by("query_id", maintain_order=True).agg("doc_id").iter_rows())
    for name, text in oracle.queries.items():
        query = oracle.hits(oracle.weights(text))
        expanded = oracle.hits(oracle.expanded(name, "references", 1))
        anchored = {doc: score * expanded[doc] for doc, score in query.items()}
        assert found.get(name, []) == ordered(anchored)
    assert found


def test_ways_of_ranking_and_shards_agree(place, tmp_path, monkeypatch):
    methods = [*dataset(place / "small"), *SERIAL, "method=desa", TWO]
    whole_lists = recorded([*methods, "fusion.k=5"])
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    cut = ["cluster.shard_documents=13", "cluster.range_documents=31", "cluster.batch_size=1"]
    for ranking in ("complete", "lazy", "counted"):
        found = recorded([*methods, "fusion.k=5", f"ranking={ranking}", *cut])
        assert found.equals(whole_lists), ranking


@pytest.mark.slow
def test_ray_weighs_what_the_serial_backend_weighs(place, tmp_path):
    found = []
    for kind, workers in (("serial", 1), ("local", 1), ("local", 3)):
        home = tmp_path / f"{kind}{workers}"
        done = run_desa(
            place, home, "run", *dataset(place / "small"), *SPARSE,
            *channel("product", "references"), f"cluster={kind}", f"cluster.encoders={workers}",
            f"cluster.scorers={workers}", "cluster.shard_documents=17", "tracking.enabled=false",
            *(["cluster.cpus=4"] if kind == "local" else []),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        found.append(stored(home))
    assert found[0] == found[1] == found[2]
