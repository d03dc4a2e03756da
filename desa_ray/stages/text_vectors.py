"""Text vectors: each distinct text that a template makes from queries and their generated texts,
encoded once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from desa_ray.core.query_text import DENSE_TEXTS
from desa_ray.engines.encoder import Encoder
from desa_ray.errors import DesaError
from desa_ray.pipeline.execute import present
from desa_ray.pipeline.sizes import Params, Rows, Size, even_size
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Work, bounds, shards_of
from desa_ray.stages.collection import read_rows
from desa_ray.stages.generation import Generations, RecordedWork, read_generations
from desa_ray.stages.query_shards import text_inputs
from desa_ray.store.content import array_content
from desa_ray.store.tables import read_array, read_table, write_array, write_table

TEXTS = pl.Schema({"text": pl.String})


def made_texts(
    stage: Stage, queries: Sequence[str], generations: Generations | None
) -> list[list[str]]:
    """What the encoder is given for each query: the stage's template of the query and its generated
    texts.
    """
    template, prefix = DENSE_TEXTS[stage.params["template"]], stage.params["prefix"]
    texts = generations.texts_or(queries) if generations else [[] for _ in queries]
    made = []
    for pair in zip(queries, texts, strict=True):
        made.append([prefix + text for text in template(*pair)])
    return made


@dataclass(frozen=True)
class TextVectorsWork(Work):
    """Encodes the distinct texts that a template makes of queries and generated texts.

    Parts: `texts.parquet` (distinct texts in order of first use), `index.npy` int64 [Q, n] (row of
    each text), and `part-*.npy` float32 [rows, D].
    """

    pool: Pool
    shard_texts: int
    unit = "texts"

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        artifact = stage.artifact
        queries = read_rows(stage.inputs["queries"])["text"].to_list()
        generation = stage.inputs.get("generation")
        made = made_texts(stage, queries, read_generations(generation) if generation else None)
        rows: dict[str, int] = {}
        lines = []
        for line in made:
            lines.append([rows.setdefault(text, len(rows)) for text in line])
        index = np.array(lines, np.int64)
        write_table(artifact, "texts.parquet", pl.DataFrame({"text": list(rows)}, TEXTS), TEXTS)
        write_array(artifact, "index.npy", index.reshape(len(queries), -1))
        return {"bounds": bounds(len(rows), self.shard_texts)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.npy")

    def run(self, engine: Encoder, stage: Stage, shard: Shard) -> None:
        artifact = stage.artifact
        texts = read_table(artifact, "texts.parquet", TEXTS)["text"][
            shard.start : shard.stop
        ].to_list()
        names = [f"text {number}" for number in range(shard.start, shard.stop)]
        write_array(artifact, shard.parts[0], engine.encode(texts, names))

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        vectors = text_vectors(stage)
        counts = {"rows": len(vectors), "distinct_texts": layout["bounds"][-1]}
        return Finished(array_content(vectors), counts)

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        return even_size(rows["queries"] if distinct is None else distinct)

    @classmethod
    def comparable_key(cls, params: Params, rows: Rows) -> Any:
        return params["encoder"]["backend"]

    @classmethod
    def similarity(cls, params: Params) -> tuple[Any, ...]:
        return params.get("encoder"), params.get("template")

    def plan_group(self, stage: Stage) -> str:
        return stage.params["encoder"]["model"]

    def shard_rows(self, rows: Rows) -> int:
        return self.shard_texts

    def distinct_texts(self, stage: Stage) -> tuple[int | None, bool]:
        """Counted; an upper bound where texts are still to be generated, as they may repeat."""
        queries = read_rows(stage.inputs["queries"])["text"].to_list()
        generation = stage.inputs.get("generation")
        if generation is None:
            made = made_texts(stage, queries, None)
        elif present(generation):
            made = made_texts(stage, queries, read_generations(generation))
        elif isinstance(generation.work, RecordedWork):
            drawn = Generations(generation.work.drawn(generation), generation.params["count"])
            made = made_texts(stage, queries, drawn)
        else:
            return len(queries) * generation.params["count"], True
        distinct: set[str] = set()
        for texts in made:
            distinct.update(texts)
        return len(distinct), False


def text_vectors_stage(
    queries: Stage,
    generation: Stage | None,
    encoder: Mapping[str, Any],
    template: str,
    prefix: str,
    work: TextVectorsWork,
) -> Stage:
    """The vectors of what `template` makes of the queries and their generated texts."""
    inputs, label = text_inputs(queries, generation, template)
    params = {"encoder": encoder, "template": template, "prefix": prefix}
    return Stage(queries.store, "text_vectors", 1, params, work, inputs, label)


def text_vectors(stage: Stage) -> np.ndarray:
    """Vectors float32 [Q, n, D] of a text-vector stage, one row per query."""
    artifact = stage.artifact
    parts = [read_array(artifact, part) for shard in stage.stored_shards() for part in shard.parts]
    if not parts:
        raise DesaError("no text was encoded", where=str(stage))
    return np.concatenate(parts)[read_array(artifact, "index.npy")]
