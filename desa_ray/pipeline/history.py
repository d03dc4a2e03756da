"""What a store records about earlier runs: the manifests of each stage, read once, and what
computing them took.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from desa_ray.pipeline.sizes import Params, Rows, Size
from desa_ray.pipeline.stage import Stage, Work
from desa_ray.store.artifacts import Store
from desa_ray.store.keys import Key


@dataclass(frozen=True)
class StoredRun:
    """One complete artifact and how long it took. `manifest` as `Artifact.manifest` returns it."""

    key: Key
    manifest: Mapping[str, Any]

    @property
    def bytes(self) -> int:
        return sum(part["bytes"] for part in self.manifest["parts"].values())

    @property
    def input_rows(self) -> Mapping[str, int]:
        """Rows of its inputs; empty in a manifest that does not tell."""
        return self.manifest["meta"].get("input_rows", {})

    @property
    def share_computed(self) -> float:
        """How much of it the run computed that finished it; the rest was stored by an interrupted
        one.
        """
        return self.manifest["meta"].get("share_computed", 0.0)

    def size(self, work: Work) -> Size | None:
        """Its size by the rule of its kind; None where the manifest does not hold what sizes are
        made of.
        """
        distinct = self.manifest["counts"].get("distinct_texts")
        return size_of(work, self.key.params, self.input_rows, distinct)

    def pool(self) -> tuple[float, float] | None:
        """CPUs and GPUs of a worker; None where it was computed without workers."""
        pool = self.manifest["meta"].get("pool")
        return (pool["cpus"], pool["gpus"]) if pool else None


def size_of(work: Work, params: Params, rows: Rows, distinct: int | None) -> Size | None:
    """The size of a stage; None without a rule, or for parameters that another version of the code
    wrote.
    """
    try:
        return work.size(params, rows, distinct)
    except (KeyError, TypeError):
        return None


def comparable_key(work: Work, params: Params, rows: Rows) -> Any:
    """Equal for two stages of which one tells something about the other."""
    try:
        return work.comparable_key(params, rows)
    except (KeyError, TypeError):
        return object()  # equal to nothing else


class History:
    """The complete artifacts of a store by stage, newest first, each stage read once."""

    def __init__(self, store: Store):
        self.store = store
        self._stages: dict[str, list[StoredRun]] = {}
        self._by_digest: dict[str, StoredRun] = {}

    def runs(self, stage: str) -> list[StoredRun]:
        """All of one stage name."""
        if stage not in self._stages:
            found = [
                StoredRun(Key(**manifest["key"]), manifest)
                for manifest in self.store.manifests(stage)
            ]
            self._stages[stage] = found
            self._by_digest |= {run.key.digest: run for run in found}
        return self._stages[stage]

    def find(self, stage: str, digest: str) -> StoredRun | None:
        """The artifact of this stage with this key, if the store still has it."""
        self.runs(stage)
        return self._by_digest.get(digest)

    def comparable(self, stage: Stage, rows: Rows) -> list[tuple[StoredRun, Size]]:
        """Those that tell something about a stage with these input rows, and their sizes."""
        wanted = comparable_key(stage.work, stage.params, rows)
        found: list[tuple[StoredRun, Size]] = []
        for run in self.runs(stage.name):
            size = run.size(stage.work)
            if (
                size is not None
                and comparable_key(stage.work, run.key.params, run.input_rows) == wanted
            ):
                found.append((run, size))
        return found
