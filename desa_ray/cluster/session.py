"""A Ray session: this machine's own cluster for the length of a run, or a running cluster by
address.
"""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from desa_ray.config import ClusterConfig
from desa_ray.errors import DesaError
from desa_ray.exchange import run

KNOCK_TIMEOUT_S = 5.0
ADDRESS = "RAY_ADDRESS"


@contextmanager
def session(config: ClusterConfig) -> Iterator[Callable[[], str | None]]:
    """Connect for the length of the block; a local cluster ends with it, an existing one is left
    running.

    Yields a function that says why this process's own cluster died; it returns None while the
    cluster is alive and if there is none.
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
        try:
            yield _alive
        finally:
            ray.shutdown()


def _alive() -> None:
    """For clusters that this process did not start: always None."""


def _join(address: str | None) -> None:
    """Connect to a running cluster."""
    import ray
    from ray.exceptions import RayError

    where = "cluster.address"
    if address is None:
        raise DesaError(
            "no address of the running cluster", where=where, hint="give host:port or auto"
        )
    if address == "auto" and (other := os.environ.get(ADDRESS)):  # Ray prefers it, too
        address, where = other, ADDRESS
    before = signal.getsignal(signal.SIGTERM)
    try:
        knock(address)
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
