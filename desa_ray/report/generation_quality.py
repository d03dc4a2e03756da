"""How usable the generated texts are: share valid, retries, lengths, repetition, and how much of
the query they repeat.

The texts, and those of the queries, are read from the store. A word is a run of letters, digits and
underscores in lower case; where a language does not divide words by spaces, look at characters.
"""

import re
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import polars as pl

from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.generation_cost import generation_keys
from desa_ray.report.names import dataset_name
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value
from desa_ray.store.artifact import Artifact
from desa_ray.store.artifacts import Store

READ = ("query_id", "draw", "texts", "raw", "retries", "fallback")
QUERY_PART = "part-"
WORD = re.compile(r"\w+")
COLUMNS = (
    Column("dataset", "data set"),
    Column("generator", "generator"),
    Column("prompt", "prompt"),
    Column("records", "query-draws", "{:d}"),
    Column("valid", "valid %", "{:.2f}", help="of query-draws; the others fell back to the query"),
    Column("valid_at_once", "valid at once %", "{:.2f}", help="without a retry"),
    Column("retries", "retries", "{:.4f}", help="mean of query-draws"),
    Column("texts", "texts", "{:.2f}", help="mean of valid query-draws"),
    Column("words", "words", "{:.1f}", help="mean of texts"),
    Column("words_range", "words, 5–95 %", "{:.0f}", help="quantiles of texts"),
    Column("characters", "characters", "{:.1f}", help="mean of texts"),
    Column("distinct", "distinct texts %", "{:.2f}", help="of all texts of all queries"),
    Column(
        "query_in_text",
        "query in text %",
        "{:.1f}",
        help="distinct words of the query that a text has",
    ),
    Column(
        "text_in_query",
        "text in query %",
        "{:.1f}",
        help="distinct words of a text that the query has",
    ),
    Column("copies", "copies of the query %", "{:.2f}", help="texts equal to the query"),
)


@dataclass
class _Quality:
    """All generations of one data set, generator and prompt."""

    frames: list[pl.DataFrame] = field(default_factory=list)
    queries: dict[str, str] = field(default_factory=dict)

    def add(self, artifact: Artifact, queries: dict[str, str]) -> None:
        for name in artifact.parts():
            part = artifact.read_part(name)
            self.frames.append(pl.read_parquet(part, columns=list(READ), glob=False))
        self.queries |= queries

    def values(self) -> dict[str, Value]:
        """Means and shares; None for what the texts do not say."""
        records = pl.concat(self.frames).unique(["query_id", "draw"], maintain_order=True)
        found: dict[str, Value] = {"records": records.height}
        valid = ~records["fallback"]
        found["valid"] = 100 * float(valid.mean() or 0)  # pyright: ignore[reportArgumentType]
        if not records["raw"].null_count():
            at_once = valid & (records["retries"] == 0)
            found["valid_at_once"] = 100 * float(at_once.mean() or 0)  # pyright: ignore[reportArgumentType]
            found["retries"] = float(records["retries"].mean() or 0)  # pyright: ignore[reportArgumentType]
        kept = records.filter(valid).select("query_id", "texts")
        texts = kept.explode("texts").drop_nulls()
        if texts.height:
            found["texts"] = texts.height / kept.height
            found |= _lengths(texts["texts"].to_list())
            found |= _overlaps(texts.rows(), self.queries)
        return found


def _lengths(texts: list[str]) -> dict[str, Value]:
    counts = [len(WORD.findall(text)) for text in texts]
    low, high = np.quantile(counts, (0.05, 0.95))
    return {
        "words": float(np.mean(counts)),
        "words_range": (float(low), float(high)),
        "characters": float(np.mean([len(text) for text in texts])),
        "distinct": 100 * len(set(texts)) / len(texts),
    }


def _overlaps(rows: list[tuple[str, str]], queries: dict[str, str]) -> dict[str, Value]:
    """Of texts whose query is known and, like them, has words."""
    words = {name: _words(text) for name, text in queries.items()}
    asked, told, copies = [], [], []
    for name, text in rows:
        own, query = _words(text), words.get(name)
        if not own or not query:
            continue
        shared = len(own & query)
        asked.append(shared / len(query))
        told.append(shared / len(own))
        copies.append(text.strip() == queries[name].strip())
    if not asked:
        return {}
    means = [100 * float(np.mean(values)) for values in (asked, told, copies)]
    return dict(zip(("query_in_text", "text_in_query", "copies"), means, strict=True))


def _words(text: str) -> frozenset[str]:
    return frozenset(WORD.findall(text.lower()))


def generation_quality_table(store: Store, study: Study, sampling: Sampling) -> Table | None:
    """A row per data set, generator and prompt, over all cells of the study; None where the store
    has none of their texts.
    """
    del sampling
    found: dict[tuple[str, str, str], _Quality] = {}
    for digest, (dataset, generator) in generation_keys(study).items():
        entry = store.find("generation", digest)
        if entry is None or entry.key is None or not entry.complete:
            continue
        about = dataset, generator, entry.key.params["prompt"]
        queries = _queries(store, entry.key.inputs.get("queries"))
        found.setdefault(about, _Quality()).add(store.artifact(entry.key), queries)
    if not found:
        return None
    rows = []
    for (dataset, generator, prompt), quality in sorted(found.items()):
        about = {"dataset": dataset, "generator": generator, "prompt": prompt}
        named = {**about, "dataset": dataset_name(dataset)}
        rows.append(Row({**named, **quality.values()}, about))
    notes = ["lengths and overlaps are those of valid texts; words are runs of letters and digits"]
    if any(row.values.get("retries") is None for row in rows):
        notes.append("–: recorded texts carry no outputs or retries")
    title = "Quality of generated texts"
    return Table("generation_quality", title, COLUMNS, rows, notes, detail=True)


def generation_quality(store: Store) -> tuple[str, partial[Table | None], str]:
    """The table as a report takes it: name, builder, and what it needs."""
    return "generation quality", partial(generation_quality_table, store), ""


def _queries(store: Store, digest: str | None) -> dict[str, str]:
    """Id -> text of a table of queries; empty where the store lacks it."""
    entry = store.find("queries", digest) if digest else None
    if entry is None or entry.key is None or not entry.complete:
        return {}
    artifact, found = store.artifact(entry.key), dict[str, str]()
    for name in artifact.parts():
        if name.startswith(QUERY_PART):
            table = pl.read_parquet(artifact.read_part(name), columns=["id", "text"], glob=False)
            found |= dict(table.iter_rows())
    return found
