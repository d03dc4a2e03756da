"""Why a stage must be computed: which parameter of which stage differs from the nearest stored one.

Keys are trees: a stage's parameters and the keys of its inputs. Where an input differs, the
comparison goes on inside it, down to the stage whose own parameter is another one, so that a
changed encoder is told once and not again by every stage behind it. Nearest is the artifact with
the fewest such parameters.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from desa_ray.pipeline.estimates import stored_shards
from desa_ray.pipeline.execute import missing
from desa_ray.pipeline.history import History, StoredRun
from desa_ray.pipeline.stage import Stage
from desa_ray.store.artifacts import Store
from desa_ray.types import canonical_json

HASH = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True)
class Difference:
    """One parameter of one kind of stage: dotted `name`, and what the nearest stored key and the
    new one hold.
    """

    stage: str
    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.name}: {self.old} -> {self.new}"


@dataclass(frozen=True)
class Reason:
    """Why one stage is a miss.

    Attributes:
        text: the reason in words where it is not a difference from another key.
        nearest: the short key of the stored artifact that is compared with.
        differences: what differs from it.
    """

    stage: Stage
    text: str = ""
    nearest: str = ""
    differences: tuple[Difference, ...] = field(default=())


def explain(store: Store, targets: Sequence[Stage]) -> list[Reason]:
    """A reason for every stage that the targets lack, inputs first."""
    comparer = _Comparer(History(store))
    return [_reason(stage, comparer) for stage in missing(targets)]


def _reason(stage: Stage, comparer: "_Comparer") -> Reason:
    artifact = stage.artifact
    if artifact.exists():
        if lost := _lost(stage):
            return Reason(stage, f"is a choice from what is not stored: {', '.join(lost)}")
        return Reason(
            stage, f"built from inputs that have changed content since: {_changed(stage)}"
        )
    done, shards, _ = stored_shards(stage)
    if done:
        return Reason(
            stage, f"half done: {done} of {shards} shards are stored, a run continues from there"
        )
    runs = comparer.history.runs(stage.name)
    if not runs:
        return Reason(stage, "nothing of this kind is stored")
    compared = [(comparer.differences(stage, run), run) for run in runs]
    found, near = min(compared, key=lambda pair: _distance(pair[0]))  # of equals the newest
    return Reason(stage, "", near.key.short, found)


def _lost(stage: Stage) -> list[str]:
    """Roles of the inputs that a stored stage is read with, and the store lacks."""
    read = stage.work.read_through(stage.artifact.manifest()["layout"] or {})
    return [role for role in read if not stage.inputs[role].artifact.exists()]


def _changed(stage: Stage) -> str:
    noted: Mapping[str, str] = stage.artifact.manifest()["meta"].get("inputs", {})
    changed = []
    for role, source in stage.inputs.items():
        upstream = source.artifact
        if upstream.exists() and (content := upstream.manifest()["content"]) != noted.get(role):
            changed.append(f"{role} {noted.get(role, 'unknown')[:12]} -> {content[:12]}")
    return ", ".join(changed)


def _distance(found: Sequence[Difference]) -> tuple[int, int]:
    """Parameters by their first name, then by all: an encoder is one change however much it
    consists of.
    """
    return len({(d.stage, d.name.partition(".")[0]) for d in found}), len(found)


class _Comparer:
    """Compares keys of a plan with keys of a store; each pair once."""

    def __init__(self, history: History):
        self.history = history
        self._known: dict[tuple[str, str], tuple[Difference, ...]] = {}

    def differences(self, stage: Stage, run: StoredRun) -> tuple[Difference, ...]:
        """What sets a stage to be apart from a stored one, at the places where it begins."""
        pair = (stage.key.digest, run.key.digest)
        if pair not in self._known:
            self._known[pair] = tuple(dict.fromkeys(self._compare(stage, run)))
        return self._known[pair]

    def _compare(self, stage: Stage, run: StoredRun) -> Iterator[Difference]:
        own, other = _flat(stage.key.params), _flat(run.key.params)
        if stage.version != run.key.version:
            yield Difference(
                stage.name, "version of the stage's code", str(run.key.version), str(stage.version)
            )
        for name in [*own, *(name for name in other if name not in own)]:
            if own.get(name, _NONE) != other.get(name, _NONE):
                yield Difference(stage.name, name, _shown(other, name), _shown(own, name))
        for role, source in stage.inputs.items():
            if role not in run.key.inputs:
                yield Difference(stage.name, f"input {role}", "none", str(source))
            elif run.key.inputs[role] != source.key.digest:
                upstream = self.history.find(source.name, run.key.inputs[role])
                if upstream is None:
                    yield Difference(
                        stage.name,
                        f"input {role}",
                        f"{run.key.inputs[role][:12]} (gone)",
                        str(source),
                    )
                else:
                    yield from self.differences(source, upstream)
        for role, digest in run.key.inputs.items():
            if role not in stage.inputs:
                yield Difference(stage.name, f"input {role}", digest[:12], "none")


_NONE = object()


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested parameters by dotted names; an element of a list of mappings by its own name, else by
    its number.
    """
    if isinstance(value, Mapping) and value:
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        items = [
            (str(item.get("name", n)) if isinstance(item, Mapping) else str(n), item)
            for n, item in enumerate(value)
        ]
    else:
        return {name: value}
    flat: dict[str, Any] = {}
    for key, item in items:
        flat |= _flat(item, f"{name}.{key}" if name else key)
    return flat


def _shown(values: Mapping[str, Any], name: str) -> str:
    if name not in values:
        return "none"
    value = values[name]
    text = value if isinstance(value, str) else canonical_json(value)
    if HASH.fullmatch(text):
        return f"{text[:12]}…"
    return repr(text) if isinstance(value, str) and (not text or text != text.strip()) else text
