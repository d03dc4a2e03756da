"""A Ray session: this machine's own cluster for the length of a run, or a running cluster by
address.
"""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from desa_ray.config import ClusterConfig
from desa_ray.errors import DesaError
from desa_ray.exchange import run

KNOCK_TIMEOUT_S = 5.0
KNOCK_EVERY_S = 2.0
HEAD_GONE_S = 30.0
ADDRESS = "RAY_ADDRESS"
GCS_PATIENCE = "RAY_gcs_rpc_server_reconnect_timeout_s"


@contextmanager
def session(config: ClusterConfig) -> Iterator[Callable[[], str | None]]:
    """Connect for the length of the block; a local cluster ends with it, an existing one is left
    running.

    Yields a function that says why the cluster died; it returns None while the cluster is alive.
    """
    import ray

    if ray.is_initialized():  # a caller's own session, a test's for example
        yield _alive
    elif config.kind == "local":
        from desa_ray.cluster.local import local_cluster

        with local_cluster(config.cpus) as death:
            yield death
    else:
        _join(config.address)
        watch = HeadWatch(config.address or "", float(os.environ.get(GCS_PATIENCE) or HEAD_GONE_S))
        try:
            yield watch.death
        finally:
            watch.end()
            ray.shutdown()


def _alive() -> None:
    """For the session of a caller: always None."""


def _join(address: str | None) -> None:
    """Connect to a running cluster."""
    import ray
    from ray.exceptions import RayError

    from desa_ray.cluster.local import reread_environment, settings_in_place

    where = "cluster.address"
    if address is None:
        raise DesaError(
            "the address of the running cluster is not set",
            where=where,
            hint="give host:port or auto",
        )
    if address == "auto" and (other := os.environ.get(ADDRESS)):  # Ray prefers it, too
        address, where = other, ADDRESS
    before = signal.getsignal(signal.SIGTERM)
    try:
        knock(address)
        # Ray would end this process after a minute without its head, and say nothing.
        with settings_in_place({GCS_PATIENCE: "3600"}):
            reread_environment()
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RayError, RuntimeError, ValueError) as error:
        versions = str(error).startswith("Version mismatch")
        raise DesaError(
            f"no Ray session on {address}:"
            f" {' '.join(str(error).split()) if versions else str(error).splitlines()[0]}",
            where=where,
            hint=(
                "start it from the same lock file or image"
                if versions
                else (
                    f"{'unset it, ' if where == ADDRESS else ''}check `ray status` there, or use"
                    " cluster=local"
                )
            ),
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            # Ray puts a handler of its own in place, which ends in a native trace.
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def knock(address: str) -> None:
    """Raises OSError where nobody listens; Ray itself would try for minutes."""
    place = urlsplit(address if "://" in address else f"//{address}")
    if place.hostname and place.port:
        there = (place.hostname, place.port)
        # A name that does not resolve has no limit of its own.
        run(
            lambda: socket.create_connection(there, timeout=KNOCK_TIMEOUT_S).close(),
            KNOCK_TIMEOUT_S,
        )


class HeadWatch:
    """Knocks at the head of a running cluster, whose client calls may wait for it without an end.

    A head may be away for a while: one with fault tolerance comes back and the run goes on. How
    long it is waited for says RAY_gcs_rpc_server_reconnect_timeout_s, as for the nodes, or 30 s.
    """

    def __init__(self, address: str, patience_s: float):
        import ray

        own = ray.get_runtime_context().gcs_address
        self.address, self.patience_s = own, patience_s
        self._dead: str | None = None
        self._over = threading.Event()
        if not address.startswith("ray://"):  # a client knows its proxy only
            threading.Thread(target=self._watch, name="desa-head", daemon=True).start()

    def death(self) -> str | None:
        return self._dead

    def _watch(self) -> None:
        seen = time.monotonic()
        while not self._over.wait(KNOCK_EVERY_S):
            try:
                knock(self.address)
                seen = time.monotonic()
            except OSError:
                away = time.monotonic() - seen
                if away > self.patience_s:
                    self._dead = f"its head at {self.address} has not answered for {away:.0f} s"
                    return

    def end(self) -> None:
        self._over.set()
