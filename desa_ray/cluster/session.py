"""A Ray session: this machine's own cluster for the length of a run, or a running cluster by address."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from desa_ray.config import ClusterConfig
from desa_ray.errors import DesaError

KNOCK_TIMEOUT_S = 5.0
# Set before Ray is imported. A cluster of our own lives on this machine, inside one user's processes; token
# authentication (Ray's default since 2.60) would only tie it to a file in the home folder.
LOCAL_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@contextmanager
def session(config: ClusterConfig) -> Iterator[None]:
    """Connect for the length of the block; a local cluster ends with it, an existing one is left running."""
    if config.kind == "local":
        for name, value in LOCAL_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
    import ray
    from ray.exceptions import RayError

    if ray.is_initialized():  # a caller's own session, a test's for example
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if config.kind == "local":
            ray.init(
                address="local", num_cpus=config.cpus, include_dashboard=False, object_store_memory=200 << 20, **quiet
            )
        elif config.address is None:
            raise DesaError("no address of the running cluster", where="cluster.address", mend="give host:port or auto")
        else:
            knock(config.address)
            ray.init(address=config.address, **quiet)
    except (OSError, RayError, RuntimeError, ValueError) as error:
        place = config.address or "this machine"
        versions = str(error).startswith("Version mismatch")
        raise DesaError(
            f"no Ray session on {place}: {' '.join(str(error).split()) if versions else str(error).splitlines()[0]}",
            where="cluster.address",
            mend="start it with the same lock or image"
            if versions
            else "check `ray status` there, or use cluster=local",
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(
            signal.SIGTERM, before or signal.SIG_DFL
        )  # Ray puts its own in place, which ends in a native trace
    try:
        yield
    finally:
        ray.shutdown()


def knock(address: str) -> None:
    """Raises OSError where nobody listens; Ray itself would try for minutes."""
    place = urlsplit(address if "://" in address else f"//{address}")
    if place.hostname and place.port:
        socket.create_connection((place.hostname, place.port), timeout=KNOCK_TIMEOUT_S).close()
