"""A slice of the demo in the engines that run in this process: SQLite FTS5, tantivy, Qdrant's
client in local mode, Qdrant Edge; the queries of the slice and titles as further ones.
"""

import json
import re
import sqlite3
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from desa_ray.engine_channels import SqliteChannel
from desa_ray.local_channels import QdrantList, edge_search, qdrant_search, tantivy_search

QUERIES, DIMENSIONS = 120, 32
BIG = 10_000  # more than there are documents


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


@dataclass
class LocalEngines:
    """The slice in every engine; `folder` is in BEIR layout."""

    folder: Path
    scratch: Path

    @cached_property
    def documents(self) -> dict[str, str]:
        rows = map(json.loads, (self.folder / "corpus.jsonl").read_text("utf-8").splitlines())
        return {row["_id"]: f"{row['title']} {row['text']}" for row in rows}

    @cached_property
    def queries(self) -> list[str]:
        lines = (self.folder / "queries.jsonl").read_text("utf-8").splitlines()
        needs = [json.loads(line)["text"] for line in lines]
        titles = [" ".join(text.split()[:6]) for text in self.documents.values()]
        return [*needs, *titles][:QUERIES]

    @cached_property
    def _space(self) -> tuple[dict[str, int], np.ndarray, np.ndarray]:
        """Vocabulary, idf, and the first right singular vectors of the tf-idf matrix."""
        held = [Counter(words(text)) for text in self.documents.values()]
        vocabulary = {word: n for n, word in enumerate(sorted(set().union(*held)))}
        counts = np.zeros((len(held), len(vocabulary)))
        for row, own in enumerate(held):
            for word, count in own.items():
                counts[row, vocabulary[word]] = count
        idf = np.log(len(held) / (counts > 0).sum(axis=0))
        axes = np.linalg.svd(np.log1p(counts) * idf, full_matrices=False)[2][:DIMENSIONS]
        return vocabulary, idf, axes

    def sparse(self, text: str) -> tuple[list[int], list[float]]:
        """Tf-idf by number of word."""
        vocabulary, idf, _ = self._space
        held = Counter(word for word in words(text) if word in vocabulary)
        ordered = sorted((vocabulary[word], count) for word, count in held.items())
        return [n for n, _ in ordered], [float(np.log1p(c) * idf[n]) for n, c in ordered]

    def dense(self, text: str) -> list[float]:
        """Latent semantic analysis: a small dense vector without a model."""
        indices, values = self.sparse(text)
        found = self._space[2][:, indices] @ np.array(values)
        return (found / max(np.linalg.norm(found), 1e-9)).astype(np.float32).tolist()

    @cached_property
    def sqlite(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:")
        connection.execute("CREATE VIRTUAL TABLE docs USING fts5(id UNINDEXED, text)")
        connection.executemany("INSERT INTO docs VALUES (?, ?)", self.documents.items())
        return connection

    @cached_property
    def tantivy(self) -> Any:
        from tantivy import Document, Index, SchemaBuilder

        schema = SchemaBuilder()
        schema.add_text_field("id", stored=True, tokenizer_name="raw")
        schema.add_text_field("text")
        index = Index(schema.build())
        writer = index.writer(15_000_000, 1)
        for half in (0, 1):  # two segments
            for name, text in list(self.documents.items())[half::2]:
                writer.add_document(Document(id=name, text=text))
            writer.commit()
        index.reload()
        return index

    @cached_property
    def qdrant(self) -> Any:
        from qdrant_client import QdrantClient, models

        client = QdrantClient(":memory:")
        size = models.VectorParams(size=DIMENSIONS, distance=models.Distance.DOT)
        sparse = {"words": models.SparseVectorParams()}
        client.create_collection("docs", {"dense": size}, sparse_vectors_config=sparse)
        points = [
            models.PointStruct(
                id=number,
                vector={"dense": self.dense(text), "words": self.qdrant_sparse(text)},
                payload={"id": name},
            )
            for number, (name, text) in enumerate(self.documents.items())
        ]
        client.upsert("docs", points)
        return client

    def qdrant_sparse(self, text: str) -> Any:
        from qdrant_client import models

        indices, values = self.sparse(text)
        return models.SparseVector(indices=indices, values=values)

    @cached_property
    def edge(self) -> Any:
        import qdrant_edge as edge

        config = edge.EdgeConfig(
            {"dense": edge.EdgeVectorParams(DIMENSIONS, edge.Distance.Dot)},
            {"words": edge.EdgeSparseVectorParams()},
        )
        shard = edge.EdgeShard.create(mkdtemp(dir=self.scratch), config)
        points = [
            edge.Point(
                number,
                {"dense": self.dense(text), "words": self.edge_sparse(text)},
                {"id": name},
            )
            for number, (name, text) in enumerate(self.documents.items())
        ]
        shard.update(edge.UpdateOperation.upsert_points(points))
        return shard

    def edge_sparse(self, text: str) -> Any:
        import qdrant_edge as edge

        return edge.SparseVector(*self.sparse(text))

    def channel(self, kind: str, text: str) -> Any:
        """A fresh channel of one query."""
        if kind == "sqlite":
            query = " OR ".join(f'"{word}"' for word in words(text))
            return SqliteChannel(kind, self.sqlite, "docs", "id", query)
        if kind == "tantivy":
            return tantivy_search(kind, self.tantivy, " ".join(words(text)))
        engine, leg = kind.split(" ")
        if engine == "qdrant":
            query = self.dense(text) if leg == "dense" else self.qdrant_sparse(text)
            return qdrant_search(kind, self.qdrant, "docs", QdrantList(query, leg, "id"))
        query = self.dense(text) if leg == "dense" else self.edge_sparse(text)
        return edge_search(kind, self.edge, QdrantList(query, leg, "id"))

    def whole(self, kind: str, text: str) -> list[tuple[str, float]]:
        """The engine's complete list by one call of its own, ids and scores; of Qdrant with ties
        by id.
        """
        if kind == "sqlite":
            query = " OR ".join(f'"{word}"' for word in words(text))
            ranked = "SELECT id, -bm25(docs) FROM docs WHERE docs MATCH ? ORDER BY bm25(docs), id"
            return list(self.sqlite.execute(ranked, (query,)))
        if kind == "tantivy":
            searcher = self.tantivy.searcher()
            hits = searcher.search(self.tantivy.parse_query(" ".join(words(text))), BIG).hits
            return [(searcher.doc(address)["id"][0], score) for score, address in hits]
        engine, leg = kind.split(" ")
        found = getattr(self, f"{engine}_leg")(leg, text, BIG)
        return sorted(found, key=lambda hit: (-hit[1], hit[0]))  # its own order of ties is any

    def qdrant_leg(self, leg: str, text: str, limit: int) -> list[tuple[str, float]]:
        query = self.dense(text) if leg == "dense" else self.qdrant_sparse(text)
        found = self.qdrant.query_points("docs", query, using=leg, limit=limit, with_payload=True)
        return [(point.payload["id"], point.score) for point in found.points]

    def edge_leg(self, leg: str, text: str, limit: int) -> list[tuple[str, float]]:
        import qdrant_edge as edge

        query = self.dense(text) if leg == "dense" else self.edge_sparse(text)
        nearest = edge.Query.Nearest(query, using=leg)
        found = self.edge.query(edge.QueryRequest(limit, query=nearest, with_payload=True))
        return [(point.payload["id"], point.score) for point in found]

    def qdrant_fused(self, text: str, fusion: Any, legs: int, limit: int) -> Any:
        """The answer of Qdrant's own fusion in local mode, as its client gives it."""
        from qdrant_client import models

        prefetch = [
            models.Prefetch(query=self.dense(text), using="dense", limit=legs),
            models.Prefetch(query=self.qdrant_sparse(text), using="words", limit=legs),
        ]
        return self.qdrant.query_points(
            "docs", prefetch=prefetch, query=fusion, limit=limit, with_payload=True
        )

    def edge_fused(self, text: str, fusion: Any, legs: int, limit: int) -> list[tuple[str, float]]:
        """The answer of Qdrant Edge's own fusion."""
        import qdrant_edge as edge

        dense = edge.Query.Nearest(self.dense(text), using="dense")
        sparse = edge.Query.Nearest(self.edge_sparse(text), using="words")
        prefetches = [edge.Prefetch(legs, dense), edge.Prefetch(legs, sparse)]
        found = self.edge.query(
            edge.QueryRequest(limit, query=fusion, prefetches=prefetches, with_payload=True)
        )
        return [(point.payload["id"], point.score) for point in found]
