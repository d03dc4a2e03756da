"""Document texts: the corpus that the sparse channel indexes where texts of a file, such as the
queries of doc2query, are appended to the documents.

The dense channel keeps the documents as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from desa_ray.data.document_texts import expanded, read_document_texts
from desa_ray.engines.model_files import sha256_file
from desa_ray.errors import DesaError
from desa_ray.pipeline.sizes import Params, Rows, Size, even_size
from desa_ray.pipeline.stage import Finished, Shard, Stage, Work
from desa_ray.stages.collection import DOCUMENTS, PART, read_rows
from desa_ray.store.content import RowHasher
from desa_ray.store.tables import read_table, write_table


@dataclass(frozen=True)
class DocumentTextsWork(Work):
    """Reads a file of texts, once, and writes the documents with them, in the parts of the corpus.

    Attributes:
        path: the file.
        whole: the stage with all documents that the file may name.
    """

    path: str
    whole: Stage = field(repr=False)
    pool: None = None
    unit = "documents"
    sized_by = "corpus"

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": stage.inputs["corpus"].stored_layout()["bounds"]}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        edges = layout["bounds"]
        return [Shard(0, 0, edges[-1], _parts(len(edges) - 1))]

    def run(self, engine: None, stage: Stage, shard: Shard) -> None:
        corpus, path = stage.inputs["corpus"], Path(self.path)
        known = frozenset(read_rows(self.whole)["id"])
        texts = read_document_texts(path, read_rows(corpus)["id"].to_list(), known)
        check_unchanged(path, stage.params["document_texts_sha256"])
        edges = pairwise(stage.stored_layout()["bounds"])
        for part, (start, stop) in zip(shard.parts, edges, strict=True):
            rows = read_rows(corpus, start, stop)
            pairs = zip(rows["text"], texts[start:stop], strict=True)
            own = pl.Series("text", [expanded(*pair) for pair in pairs], pl.String)
            write_table(stage.artifact, part, rows.with_columns(own), DOCUMENTS)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        hasher = RowHasher(DOCUMENTS)
        for part in _parts(len(layout["bounds"]) - 1):
            hasher.update(read_table(stage.artifact, part, DOCUMENTS))
        return Finished(hasher.hexdigest(), {"rows": layout["bounds"][-1]})

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        return even_size(rows["corpus"])


def _parts(count: int) -> tuple[str, ...]:
    return tuple(PART.format(f"{number:05d}") for number in range(count))


def check_unchanged(path: Path, digest: str) -> None:
    """Refuses a file that by now has other contents than the key says."""
    if sha256_file(path) != digest:
        hint = "rerun when nothing writes to it any more"
        raise DesaError("changed while it was read", where=str(path), hint=hint)


def document_texts_stage(
    documents: Stage, identity: Mapping[str, Any], work: DocumentTextsWork
) -> Stage:
    """The documents with the texts of a file; `identity` is what decides these."""
    inputs = {"corpus": documents}
    return Stage(documents.store, "document_texts", 1, identity, work, inputs, documents.label)
