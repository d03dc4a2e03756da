"""What the runs on one cluster publish for each other: what each holds, and what it waits for.

A run writes one small record into the cluster's own key-value store every few seconds. A record
whose heartbeat no longer changes belongs to a run that has ended: clocks of different nodes are
never compared. While somebody waits, the cluster is divided among users first, then among a user's
runs.
"""

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import ray
from pydantic import TypeAdapter, ValidationError
from ray.exceptions import RayError

from desa_ray.cluster.run_series import this_user
from desa_ray.errors import counted, listed
from desa_ray.pipeline.stage import Pool
from desa_ray.pipeline.transport import Share
from desa_ray.printable import printable

PREFIX = b"desa-run:"
GONE_S = 15.0  # a run whose beat stands still so long has ended
FORGET_S = 120.0  # then its record is removed


@dataclass(frozen=True)
class Claim:
    """What a run reports: the CPUs and GPUs that its workers hold, and those of one worker that it
    waits for.
    """

    user: str
    beat: int
    cpus: float
    gpus: float
    waits_cpus: float = 0.0
    waits_gpus: float = 0.0

    @property
    def waits(self) -> bool:
        return self.waits_cpus > 0 or self.waits_gpus > 0


CLAIM = TypeAdapter(Claim)


@dataclass
class _Seen:
    claim: Claim
    beat_at: float
    waits_since: float | None = None


class ClaimBoard:
    """The record of this run, and what it has seen of the others'. Used by one thread."""

    def __init__(self) -> None:
        self.user = this_user()
        self._beat = 0
        self._others: dict[bytes, _Seen] = {}

    def share(
        self, held: tuple[float, float], waiting: Pool | None, total: tuple[float, float]
    ) -> Share:
        """Publish this run's claim, read those of the others, and divide.

        Args:
            held: CPUs and GPUs that this run's workers hold.
            waiting: the pool it waits for a first worker of.
            total: CPUs and GPUs of the cluster.
        """
        self._beat += 1
        wanted = (waiting.cpus, waiting.gpus) if waiting else (0.0, 0.0)
        own = Claim(self.user, self._beat, *held, *wanted)
        _put(self._key(), json.dumps(asdict(own)).encode())
        self._look()
        return divided(own, [seen.claim for seen in self._living()], total, self._waited())

    def seen(self) -> str:
        """Who else uses the cluster, for a message: `; 2 other runs are active (anna, ben)`."""
        living = self._living()
        users = sorted({printable(seen.claim.user) for seen in living})
        number = len(living)
        runs = counted(number, "other run")
        verb = "is" if number == 1 else "are"
        return f"; {runs} {verb} active ({listed(users, 5)})" if users else ""

    def withdraw(self) -> None:
        """Take this run's record away."""
        # A cluster that is gone, or was never reached, holds no record either.
        with suppress(RayError, RuntimeError, OSError, AssertionError):
            _delete(self._key())

    def _key(self) -> bytes:
        return PREFIX + ray.get_runtime_context().get_job_id().encode()

    def _look(self) -> None:
        now = time.monotonic()
        for key in _keys():
            claim = _claim(key)
            if key == self._key() or claim is None:
                continue
            before = self._others.get(key)
            if before is None or before.claim.beat != claim.beat:
                since = before.waits_since if before is not None and claim.waits else None
                self._others[key] = _Seen(claim, now, since or (now if claim.waits else None))
        for key, seen in list(self._others.items()):
            if now - seen.beat_at > FORGET_S or _claim(key) is None:
                del self._others[key]
                _delete(key)

    def _waited(self) -> float:
        now = time.monotonic()
        return max(
            (now - seen.waits_since for seen in self._living() if seen.waits_since is not None),
            default=0.0,
        )

    def _living(self) -> list[_Seen]:
        now = time.monotonic()
        return [seen for seen in self._others.values() if now - seen.beat_at <= GONE_S]


def divided(
    own: Claim, others: list[Claim], total: tuple[float, float], waited_s: float = 0.0
) -> Share:
    """The share of a run: what there is by the number of users, by the number of this user's runs.

    Runs that neither hold nor wait count for nobody.
    """
    waiting = [claim for claim in others if claim.waits]
    present = [claim for claim in others if claim.waits or claim.cpus or claim.gpus]
    if not present:
        return Share()
    users = {own.user, *(claim.user for claim in present)}
    runs = 1 + sum(claim.user == own.user for claim in present)
    cpus, gpus = (amount / len(users) / runs for amount in total)
    return Share(
        others_wait=bool(waiting),
        cpus=cpus,
        gpus=gpus,
        cpus_wanted=any(claim.waits_cpus > 0 for claim in waiting),
        gpus_wanted=any(claim.waits_gpus > 0 for claim in waiting),
        waited_s=waited_s,
    )


def _claim(key: bytes) -> Claim | None:
    from ray.experimental.internal_kv import _internal_kv_get

    value: Any = _internal_kv_get(key)
    try:
        return None if value is None else CLAIM.validate_json(value)
    except ValidationError:  # of another version
        return None


def _keys() -> list[bytes]:
    from ray.experimental.internal_kv import _internal_kv_list

    return list(_internal_kv_list(PREFIX))


def _put(key: bytes, value: bytes) -> None:
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(key, value, overwrite=True)


def _delete(key: bytes) -> None:
    from ray.experimental.internal_kv import _internal_kv_del

    _internal_kv_del(key)
