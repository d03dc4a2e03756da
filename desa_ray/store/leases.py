"""Leases: which processes use a store, and which artifacts they rely on, so that garbage collection
leaves those alone.

`<root>/.leases/<owner>.json` says process, machine, time of the last heartbeat and the digests of
the keys in use. On the owner's own machine (same boot, same process namespace) the process decides
whether a lease is live; elsewhere a heartbeat older than `STALE_S` means that the owner died.
Clocks of machines that share a store must agree within that.

A sweep takes its lease before it looks at what is stored, without keys, and names them (`refer`)
when it has made its plan. What killed sweeps left is swept when the next one takes its lease.
"""

import os
import re
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from threading import RLock
from typing import Self
from uuid import uuid4

from desa_ray.errors import DesaError
from desa_ray.locks import LEASE, inside
from desa_ray.proc import process, runs, system
from desa_ray.store.files import LEASES, Files, NameTakenError
from desa_ray.store.keys import DIGEST
from desa_ray.store.sealed import seal, unseal
from desa_ray.store.shapes import LeaseShape, checked

BEAT_S, STALE_S = 15.0, 180.0
GONE_S = 86_400.0  # after which a lease of another machine is swept
OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True)
class Holder:
    """What a lease file says.

    Attributes:
        owner: the sweep's id.
        host, pid: where it runs.
        process: the process beyond doubt (boot, process namespace, start time), so that a reused
            number misleads nobody; empty if the system does not say.
        token: one per lease taken, so that an owner notices that another took over.
        started, heartbeat: seconds since 1970.
        keys: digests (64 hex digits) of the keys of the artifacts in use; None where it did not
            say.
    """

    owner: str
    host: str
    pid: int
    process: str
    token: str
    started: float
    heartbeat: float
    keys: tuple[str, ...] | None = None

    @property
    def live(self) -> bool:
        """Whether the owner is running, as far as this machine can know."""
        system_id, _, _ = self.process.rpartition("/")
        if system_id and system_id == system():
            return self.process == _process(self.pid)
        return self.silent_s < STALE_S

    @property
    def silent_s(self) -> float:
        """Seconds since the last heartbeat, as far as clocks agree."""
        return time.time() - self.heartbeat

    @property
    def gone(self) -> bool:
        """Whether nobody can come back for it: its process is dead, or its machine was silent for a
        day.
        """
        system_id, _, _ = self.process.rpartition("/")
        known = bool(system_id) and system_id == system()
        return not self.live and (known or self.silent_s > GONE_S)

    def __str__(self) -> str:
        return f"{self.owner} (process {self.pid} on {self.host})"


def holders(files: Files) -> list[Holder]:
    """All leases of a store, live or stale, by owner.

    Raises:
        DesaError: a lease file is damaged; it is unknown then what is in use.
    """
    names = [name.removesuffix(".json") for name in files.list(LEASES) if name.endswith(".json")]
    holders = [_read(files, name) for name in names]
    return [holder for holder in holders if holder]


def sweep_leases(files: Files) -> list[str]:
    """Remove the leases of dead sweeps and half-written ones; returns their names. Damaged ones are
    left.
    """
    swept: list[str] = []
    for name in files.list(LEASES):
        owner = name.removesuffix(".json")
        try:
            holder = _read(files, owner) if name.endswith(".json") else None
        except DesaError:
            continue
        if holder is not None and holder.gone:
            files.delete(_name(owner))
            swept.append(name)
    for name, stat in files.list(LEASES, leftovers=True).items():
        if time.time() - stat.modified > GONE_S:
            files.delete(f"{LEASES}/{name}")
            swept.append(name)
    return swept


class Lease:
    """A held lease. Use it as a context manager: a thread beats while the block runs, the end
    releases it.

    A heartbeat that fails (full disk, network) is tried again with the next; `failure` keeps the
    last one's error.
    """

    def __init__(self, files: Files, holder: Holder):
        self._files, self._holder = files, holder
        self._lock, self._ended = RLock(), threading.Event()
        self.failure: DesaError | None = None

    @classmethod
    def acquire(cls, files: Files, owner: str, keys: Iterable[str] | None = None) -> Self:
        """Take the lease `owner`; a stale one of that name is taken over, those of dead sweeps are
        removed.

        Args:
            owner: the sweep's id: letters, digits, `_` and `-`.
            keys: digests of the keys of every artifact that the sweep reads or makes. Without them
                nothing at all is cleaned up while the lease lives.

        Raises:
            DesaError: a live process holds it.
        """
        assert OWNER.fullmatch(owner), owner
        sweep_leases(files)
        now = time.time()
        holder = Holder(
            owner,
            socket.gethostname(),
            os.getpid(),
            _process(os.getpid()) or "",
            uuid4().hex,
            now,
            now,
            _digests(keys),
        )
        while True:
            try:
                files.publish(_name(owner), seal(asdict(holder)))
                return cls(files, holder)
            except NameTakenError:
                found = _read(files, owner)
            if found is not None and found.live:
                hint = "wait for it, or end it; the same command continues from there"
                raise DesaError(
                    f"is being run by process {found.pid} on {found.host}", where=owner, hint=hint
                )
            files.delete(_name(owner))

    def refer(self, keys: Iterable[str]) -> None:
        """Name further artifacts in use, and beat."""
        with inside(LEASE, self._lock):
            merged = {*(self._holder.keys or ()), *(_digests(keys) or ())}
            self._holder = replace(self._holder, keys=tuple(sorted(merged)))
        self.beat()

    def beat(self) -> None:
        """Say that the owner is alive.

        Raises:
            DesaError: another process took the lease over (this one was suspended for too long), or
                it was removed.
        """
        with inside(LEASE, self._lock):
            if not self._own():
                what = "this process was suspended so long that its lease was taken over or removed"
                raise DesaError(what, where=self._holder.owner, hint="rerun: finished work is kept")
            self._holder = replace(self._holder, heartbeat=time.time())
            self._files.overwrite(_name(self._holder.owner), seal(asdict(self._holder)))

    def release(self) -> None:
        """Give the lease back; one that another process took over is left to it."""
        self._ended.set()
        with inside(LEASE, self._lock):
            if self._own():
                self._files.delete(_name(self._holder.owner))

    def __enter__(self) -> Self:
        threading.Thread(target=self._beat_on, name="lease", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(DesaError):
            # A disk that fails here goes stale by itself, and must not hide the block's error
            self.release()

    def _beat_on(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                self.beat()
                self.failure = None
            except DesaError as error:
                self.failure = error

    def _own(self) -> bool:
        found = _read(self._files, self._holder.owner)
        return found is not None and found.token == self._holder.token


def _name(owner: str) -> str:
    return f"{LEASES}/{owner}.json"


def _digests(keys: Iterable[str] | None) -> tuple[str, ...] | None:
    if keys is None:
        return None
    found = tuple(sorted(set(keys)))
    assert all(DIGEST.fullmatch(key) for key in found), found
    return found


def _read(files: Files, owner: str) -> Holder | None:
    data = files.read_bytes(_name(owner))
    if data is None:
        return None
    try:
        fields = checked(unseal(data), LeaseShape)
        keys = fields.pop("keys")
        holder = Holder(**fields, keys=None if keys is None else tuple(keys))
        if holder.owner != owner:
            raise ValueError("it names another owner")
        return _by_file_time(files, holder)
    except ValueError as error:
        hint = "make sure that no sweep is running on this store, then delete the file"
        raise DesaError(
            f"the lease is damaged: {error}", where=files.where(_name(owner)), hint=hint
        ) from error


def _by_file_time(files: Files, holder: Holder) -> Holder:
    """A heartbeat far ahead of this clock says nothing: then the time of the file decides."""
    now = time.time()
    if holder.heartbeat <= now + STALE_S:
        return holder
    stat = files.list(LEASES).get(f"{holder.owner}.json")
    return holder if stat is None else replace(holder, heartbeat=min(now, stat.modified))


def _process(pid: int) -> str | None:
    """A running process beyond doubt: `system` and its start time in clock ticks; None where there
    is none.
    """
    found = process(pid)
    return None if found is None or not runs(found) else f"{system()}/{found.started}"
