"""Leases: who is at work on a store, and which artifacts they rely on, so that cleaning up leaves those alone.

`<root>/.leases/<owner>.json` says process, machine, time of the last heartbeat and the digests of the keys in use. On
the owner's own machine (same boot, same process namespace) the process decides whether a lease is live; elsewhere a
heartbeat older than `STALE_S` means that the owner died. Clocks of machines that share a store must agree within that.

A sweep takes its lease before it looks at what is stored, without keys, and names them (`refer`) when its plan stands.
"""

import os
import re
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Self
from uuid import uuid4

from desa_ray.errors import DesaError
from desa_ray.store.files import LEASES, Files, NameTakenError
from desa_ray.store.keys import DIGEST
from desa_ray.store.sealed import seal, unseal

BEAT_S, STALE_S = 15.0, 180.0
OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True)
class Holder:
    """What a lease file says.

    Attributes:
        owner: the sweep's id.
        host, pid: where it runs.
        process: the process beyond doubt (boot, process namespace, start time), so that a number used again misleads
            nobody; empty where the system does not tell.
        token: one a lease taken, so that an owner notices that another took over.
        started, heartbeat: seconds since 1970.
        keys: digests (64 hex digits) of the keys of the artifacts in use; None where it did not say.
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
        """Whether the owner is at work, as far as this machine can know."""
        system, _, _ = self.process.rpartition("/")
        if system and system == _system():
            return self.process == _process(self.pid)
        return time.time() - self.heartbeat < STALE_S

    def __str__(self) -> str:
        return f"{self.owner} (process {self.pid} on {self.host})"


def holders(files: Files) -> list[Holder]:
    """All leases of a store, live or stale, by owner.

    Raises:
        DesaError: a lease file is damaged; nobody knows then what is in use.
    """
    names = [name.removesuffix(".json") for name in files.list(LEASES) if name.endswith(".json")]
    return [holder for name in names if (holder := _read(files, name))]


class Lease:
    """A held lease. Use it as a context manager: a thread beats while the block runs, the end releases it.

    A heartbeat that fails (full disk, network) is tried again with the next; `failure` keeps the last one's error.
    """

    def __init__(self, files: Files, holder: Holder):
        self._files, self._holder = files, holder
        self._lock, self._ended = threading.Lock(), threading.Event()
        self.failure: DesaError | None = None

    @classmethod
    def acquire(cls, files: Files, owner: str, keys: Iterable[str] | None = None) -> Self:
        """Take the lease `owner`; a stale one of that name is taken over.

        Args:
            owner: the sweep's id: letters, digits, `_` and `-`.
            keys: digests of the keys of every artifact that the sweep reads or makes. Without them nothing at all is
                cleaned up while the lease lives.

        Raises:
            DesaError: a live process holds it.
        """
        assert OWNER.fullmatch(owner), owner
        now = time.time()
        holder = Holder(
            owner, socket.gethostname(), os.getpid(), _process(os.getpid()) or "", uuid4().hex, now, now, _digests(keys)
        )
        while True:
            try:
                files.publish(_name(owner), seal(asdict(holder)))
                return cls(files, holder)
            except NameTakenError:
                found = _read(files, owner)
            if found is not None and found.live:
                mend = "wait for it, or end it; the same command goes on from there"
                raise DesaError(f"is being run by process {found.pid} on {found.host}", where=owner, mend=mend)
            files.delete(_name(owner))

    def refer(self, keys: Iterable[str]) -> None:
        """Name further artifacts in use, and beat."""
        with self._lock:
            merged = {*(self._holder.keys or ()), *(_digests(keys) or ())}
            self._holder = replace(self._holder, keys=tuple(sorted(merged)))
        self.beat()

    def beat(self) -> None:
        """Say that the owner is alive.

        Raises:
            DesaError: another process took the lease over (this one was away for too long), or it was removed.
        """
        with self._lock:
            if not self._own():
                what = "this process was away for so long that its lease was taken over or removed"
                raise DesaError(what, where=self._holder.owner, mend="rerun: what is stored stays stored")
            self._holder = replace(self._holder, heartbeat=time.time())
            self._files.overwrite(_name(self._holder.owner), seal(asdict(self._holder)))

    def release(self) -> None:
        """Give the lease back; one that another process took over is left to it."""
        self._ended.set()
        with self._lock:
            if self._own():
                self._files.delete(_name(self._holder.owner))

    def __enter__(self) -> Self:
        threading.Thread(target=self._beat_on, name="lease", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(DesaError):  # a disk that fails here goes stale by itself, and must not hide the block's error
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
        fields = unseal(data)
        keys = fields.pop("keys")
        return Holder(**fields, keys=None if keys is None else tuple(keys))
    except (ValueError, TypeError, KeyError) as error:
        mend = "make sure that no sweep is running on this store, then delete the file"
        raise DesaError(f"the lease is damaged: {error}", where=files.where(_name(owner)), mend=mend) from error


@cache
def _system() -> str:
    """Boot and process namespace of this machine, within which process numbers hold; empty where unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _process(pid: int) -> str | None:
    """A running process beyond doubt: `_system` and its start time in clock ticks; None where there is none."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else f"{_system()}/{fields[18]}"
