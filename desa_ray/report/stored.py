"""What the store holds for a record's `fusion_key`: texts, judgments, generated passages and
complete rankings.

Only the story of one query reads the store; every table and figure comes from the records. Files
are found through the artifacts' own manifests, so nothing here knows how a stage is computed.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from desa_ray.errors import DesaError, choices
from desa_ray.store.artifact import Artifact
from desa_ray.store.artifacts import Store
from desa_ray.store.keys import Key
from desa_ray.store.tables import read_array


@dataclass(frozen=True)
class Ranking:
    """One channel of one query: document numbers int32, best first, and rank (from 1) by document
    number.
    """

    name: str
    kind: str
    weight: str
    docs: np.ndarray

    def ranks(self) -> dict[int, int]:
        return {number: rank for rank, number in enumerate(self.docs.tolist(), 1)}


class StoredFusion:
    """Everything that went into one fused ranking, read on demand.

    Args:
        store: where the run kept its artifacts.
        digest: a record's `fusion_key`.
        complete: whether complete rankings are wanted, which lazy and counted runs do not keep.

    Raises:
        DesaError: the store does not hold it.
    """

    def __init__(self, store: Store, digest: str, *, complete: bool = True):
        self.store = store
        self.key = self._find("fusion", digest)
        if complete and (kept := self.key.params.get("ranking")):
            hint = "run the cell again with ranking=complete"
            what = f"a {kept} run keeps no complete rankings"
            raise DesaError(what, where=f"fusion {digest[:12]}", hint=hint)
        self.queries = self.table("queries", self.key.inputs["queries"])
        self.corpus = self.table("corpus", self.key.inputs["corpus"])
        self.qrels = self.table("qrels", self.key.inputs["qrels"])

    def row(self, query: str) -> int:
        return self.queries["id"].to_list().index(query)

    def rankings(self, query: str) -> list[Ranking]:
        """The channels of the method in their order."""
        row = self.row(query)
        return [
            Ranking(
                channel["name"],
                channel["kind"],
                channel["weight"],
                self._ranking(self.key.inputs[f"channel:{channel['name']}"], row),
            )
            for channel in self.key.params["channels"]
        ]

    def channel(self, name: str) -> pl.DataFrame:
        """A channel's complete ranking of every query: `query_id`, `rank` from 1, `doc_id`."""
        digest = self.key.inputs.get(f"channel:{name}")
        if digest is None:
            known = [channel["name"] for channel in self.key.params["channels"]]
            raise DesaError(f"there is no channel {name!r}", hint=choices(name, known))
        artifact = self.artifact("ranking", digest)
        parts, ids = artifact.parts(), self.corpus["id"]
        lengths = pl.concat(
            pl.read_parquet(artifact.read_part(part), glob=False)
            for part in parts
            if part.startswith("queries-")
        )["length"].to_numpy()
        numbers = [read_array(artifact, part) for part in parts if part.startswith("docs-")]
        queries = np.repeat(np.arange(lengths.size), lengths)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        return pl.DataFrame(
            {
                "query_id": self.queries["id"][queries],
                "rank": np.arange(1, starts.size + 1) - starts,
                "doc_id": ids[np.concatenate(numbers)],
            }
        )

    def fused(self) -> pl.DataFrame:
        """The fused run of every query: `query_id`, `rank` from 1, `doc_id`."""
        artifact = self.artifact("fusion", self.key.digest)
        names = [name for name in artifact.parts() if name.startswith("run-")]
        run = pl.concat(pl.read_parquet(artifact.read_part(name), glob=False) for name in names)
        ranks = pl.int_ranges(1, pl.col("docs").list.len() + 1).alias("rank")
        return run.select("query_id", ranks, doc_id="docs").explode("rank", "doc_id")

    def generated(self, query: str) -> dict[str, list[str]]:
        """The prompts' texts for the query, by prompt."""
        found = {}
        for role, digest in self.key.inputs.items():
            if role.startswith("generation:"):
                table = self.table("generation", digest)
                found[role.removeprefix("generation:")] = table.filter(pl.col("query_id") == query)[
                    "texts"
                ][0].to_list()
        return found

    def grades(self, query: str) -> dict[str, int]:
        """Positive judgments of the query by document id."""
        own = self.qrels.filter((pl.col("query_id") == query) & (pl.col("grade") > 0))
        return dict(own.select("doc_id", "grade").iter_rows())

    def _find(self, stage: str, digest: str) -> Key:
        entry = self.store.find(stage, digest)
        if entry is None or entry.key is None:
            hint = "name the store of that run with store.root, or run the cell again"
            raise DesaError(
                f"stage {stage} {digest[:12]} is not in the store", where="store.root", hint=hint
            )
        return entry.key

    def artifact(self, stage: str, digest: str) -> Artifact:
        """A stored stage by its key; errors as for the class."""
        return self.store.artifact(self._find(stage, digest))

    def table(self, stage: str, digest: str) -> pl.DataFrame:
        """All rows of a stored table."""
        artifact = self.artifact(stage, digest)
        names = [name for name in artifact.parts() if name.startswith(("part-", "kept."))]
        return pl.concat([pl.read_parquet(artifact.read_part(name), glob=False) for name in names])

    def _ranking(self, digest: str, row: int) -> np.ndarray:
        artifact = self.artifact("ranking", digest)
        edges = artifact.manifest()["layout"]["bounds"]
        part = int(np.searchsorted(edges, row, side="right")) - 1
        lengths = pl.read_parquet(artifact.read_part(f"queries-{part:05d}.parquet"), glob=False)[
            "length"
        ].to_numpy()
        start, place = int(lengths[: row - edges[part]].sum()), row - edges[part]
        return np.asarray(
            read_array(artifact, f"docs-{part:05d}.npy")[start : start + int(lengths[place])]
        )
