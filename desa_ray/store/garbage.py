"""What may be removed from a store: everything that is not needed by something kept, is old enough,
and is not in use.

Only this module removes artifacts that are whole. A folder without a readable manifest has no known
key; it is told by the first digits of keys that are kept.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from desa_ray.errors import DesaError, listed
from desa_ray.store.artifacts import Store
from desa_ray.store.catalog import Entry, entry
from desa_ray.store.files import Files
from desa_ray.store.keys import Key
from desa_ray.store.leases import holders


@dataclass(frozen=True)
class ArtifactFate:
    """One artifact's fate. `why` is a few words for people; `drop` says whether it may go."""

    entry: Entry
    drop: bool
    why: str


def reachable(found: Sequence[Entry], roots: Iterable[str]) -> set[str]:
    """The digests of the roots and of everything they were built from, as far as the
    store has it.
    """
    inputs = {own.key.digest: own.key.inputs.values() for own in found if own.key}
    seen: set[str] = set()
    open_ = list(roots)
    while open_:
        digest = open_.pop()
        if digest not in seen:
            seen.add(digest)
            open_ += inputs.get(digest, ())
    return seen


def judged(
    store: Store, roots: Iterable[str], older_than_s: float, *, texts: bool = False
) -> list[ArtifactFate]:
    """A verdict on every artifact.

    Args:
        roots: digests of the keys that runs refer to; what they were built from is kept with them.
        older_than_s: what was changed within this time is kept, whoever uses it.
        texts: let generated text go too. Without this it stays: no recomputation gives it back for
            certain, and `desa generate` makes it without a run.

    Raises:
        DesaError: what is kept has a damaged manifest, so what it was built from is
            unknown; or a live sweep has not yet said what it uses.
    """
    found = list(store.list())
    busy = _in_use(store.files)
    kept, working = reachable(found, roots), reachable(found, busy)
    generated = [own.key.digest for own in found if own.key and _live_text(own.key)]
    written: set[str] = set() if texts else reachable(found, generated)
    kept |= _records(store, found, kept | working | written)
    # An unfinished artifact's key is unknown: its folder carries the first digits of it.
    shorts = {digest[:12] for digest in kept | working | written}
    if damaged := [own.problem for own in found if own.problem and own.short in shorts]:
        hint = "run `desa store verify`, then rerun what uses it with store.repair=true"
        raise DesaError(
            f"is needed and damaged, so what it was built from is unknown: {listed(damaged)}",
            hint=hint,
        )
    now = time.time()
    verdicts: list[ArtifactFate] = []
    for own in found:
        digest = own.key.digest if own.key else ""
        if digest in working or own.short in {key[:12] for key in busy}:
            verdicts.append(ArtifactFate(own, False, "a running sweep uses it"))
        elif digest in kept or (not digest and own.short in shorts):
            verdicts.append(ArtifactFate(own, False, "runs use it"))
        elif digest in written:
            verdicts.append(ArtifactFate(own, False, "generated text and its queries"))
        elif max(0.0, now - own.last_use) < older_than_s:
            # A time to come is the clock's fault: as good as now
            verdicts.append(ArtifactFate(own, False, "changed lately"))
        else:
            verdicts.append(
                ArtifactFate(own, True, "no run uses it" if own.complete else "unfinished")
            )
    return verdicts


def sweep_out(store: Store, verdicts: Iterable[ArtifactFate]) -> Iterator[Entry]:
    """Remove what may go, one artifact after the other, and yield what went.

    Leases and times of change are read again before each: a sweep that began meanwhile keeps what
    it uses.
    """
    for verdict in verdicts:
        own = verdict.entry
        if not verdict.drop or own.short in {key[:12] for key in _in_use(store.files)}:
            continue
        if entry(store.files, own.stage, own.short) == own:
            _remove(store.files, own)
            yield own


def _in_use(files: Files) -> set[str]:
    """Digests that live sweeps rely on."""
    live = [holder for holder in holders(files) if holder.live]
    if silent := [str(holder) for holder in live if holder.keys is None]:
        hint = "wait until it has finished planning, or until it has ended"
        raise DesaError(
            f"a running sweep has not yet recorded what it uses: {listed(silent)}",
            where="gc",
            hint=hint,
        )
    return {key for holder in live for key in holder.keys or ()}


def _live_text(key: Key) -> bool:
    """Whether an engine made it; a recording is read again whenever it is needed."""
    return key.stage == "generation" and isinstance(key.params.get("generator"), dict)


def _records(store: Store, found: Sequence[Entry], kept: set[str]) -> set[str]:
    """The records of where kept collections came from, found by the tables they name; they save
    reading it again.
    """
    records: set[str] = set()
    for own in found:
        if own.key and own.stage in ("collection", "selection"):
            tables = store.artifact(own.key).manifest()["meta"].get("tables", {})
            if any(
                Key(table, 1, {"content": content}, {}).digest in kept
                for table, content in tables.items()
            ):
                records.add(own.key.digest)
    return records


def _remove(files: Files, own: Entry) -> None:
    """The manifest first, then the sidecars, then the rest with what killed writers left."""
    folder = f"{own.stage}/{own.short}"
    names = [*files.list(folder), *files.list(folder, leftovers=True)]
    for name in sorted(
        names, key=lambda name: (name != "manifest.json", not name.endswith(".json"))
    ):
        files.delete(f"{folder}/{name}")
    files.delete_folder(folder)
