"""What a store remembers of earlier runs: the manifests of each stage, read once, and what computing them took."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from desa_ray.pipeline.sizes import Size, size_of
from desa_ray.store.artifacts import Store
from desa_ray.store.keys import Key


@dataclass(frozen=True)
class Past:
    """One complete artifact. `manifest` as `Artifact.manifest` returns it."""

    key: Key
    manifest: Mapping[str, Any]

    @property
    def bytes(self) -> int:
        return sum(part["bytes"] for part in self.manifest["parts"].values())

    @property
    def size(self) -> Size | None:
        """None where the manifest does not hold what sizes are made of."""
        return size_of(self.key.stage, self.key.params, self.input_rows, self.manifest["counts"].get("distinct_texts"))

    @property
    def input_rows(self) -> Mapping[str, int]:
        """Rows of its inputs; empty in a manifest that does not tell."""
        return self.manifest["meta"].get("input_rows", {})

    @property
    def share_computed(self) -> float:
        """How much of it the run computed that finished it; the rest was stored by an interrupted one."""
        return self.manifest["meta"].get("share_computed", 0.0)

    def pool(self) -> tuple[float, float] | None:
        """CPUs and GPUs of a worker; None where it was computed without workers."""
        pool = self.manifest["meta"].get("pool")
        return (pool["cpus"], pool["gpus"]) if pool else None


class History:
    """The complete artifacts of a store by stage, newest first, each stage read once."""

    def __init__(self, store: Store):
        self.store = store
        self._stages: dict[str, list[Past]] = {}
        self._by_digest: dict[str, Past] = {}

    def of(self, stage: str) -> list[Past]:
        if stage not in self._stages:
            found = [Past(Key(**manifest["key"]), manifest) for manifest in self.store.manifests(stage)]
            self._stages[stage] = found
            self._by_digest |= {past.key.digest: past for past in found}
        return self._stages[stage]

    def find(self, stage: str, digest: str) -> Past | None:
        """The artifact of this stage with this key, if the store still has it."""
        self.of(stage)
        return self._by_digest.get(digest)
