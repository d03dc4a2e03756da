"""A small collection in each of several languages runs end to end with the analyzer and the prompt
of its language.
"""

import polars as pl
import pytest

import desa_ray
from tests.desa_fixtures import dataset
from tests.language_collections import LANGUAGES, QUERIES, RELEVANT, write_collection

pytestmark = pytest.mark.long


def prompt(language: str) -> str:
    return "references" if language == "en" else f"references_{language}"


@pytest.fixture(params=LANGUAGES)
def given(request, tmp_path, monkeypatch) -> tuple[str, list[str], list[str]]:
    """A language, the overrides of a run on its collection, and those of its generated texts."""
    language = request.param
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    folder = write_collection(tmp_path / language, language, prompt(language))
    texts = [f"prompt={prompt(language)}", "prompt.texts_per_request=2", "n_refs=2", "draws=1"]
    return language, [*dataset(folder), "cluster=serial", "tracking.enabled=false"], texts


def matched(overrides: list[str]) -> dict[str, set[str]]:
    """Query -> the documents of its sparse ranking."""
    lists = desa_ray.run([*overrides, "method=bm25"]).rankings(channel="sparse")
    found: dict[str, set[str]] = {name: set() for name in RELEVANT}
    for name, documents in lists.group_by("query_id").agg("doc_id").iter_rows():
        found[name] = {*documents}
    return found


def test_words_are_found_in_their_language(given):
    """Relevant documents share stems with their query, and few whole words."""
    language, overrides, _ = given
    found = matched([*overrides, f"sparse.analyzer={language}"])
    for name, relevant in RELEVANT.items():
        assert found[name] >= {*relevant}, (name, found[name])
    divided = matched([*overrides, "sparse.analyzer=whitespace"])
    assert sum(len(divided[name] & {*own}) for name, own in RELEVANT.items()) < 8


def test_a_language_runs_end_to_end(given):
    language, overrides, texts = given
    methods = ["method=original,bm25,shared,desa", f"sparse.analyzer={language}"]
    results = desa_ray.run([*overrides, *texts, *methods])
    rows = results.summary.sort("method")
    assert rows["method"].to_list() == ["bm25", "desa", "original", "shared"]
    records = results.records
    assert records.height == 4 * len(QUERIES[language])
    of = {name: records.filter(pl.col("method") == name) for name in rows["method"]}
    support = {name: of[name].sort("query_id")["sparse_support"] for name in of}
    assert (support["desa"] == support["original"]).all()  # DESA admits no document
    assert (support["shared"] >= support["original"]).all()
    assert (of["bm25"]["ndcg_at_10"] > 0.6).all()
    assert not records["fallback"].any()
