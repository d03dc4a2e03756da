"""A local Ray cluster that is private to this process.

Every listener is on the loopback device and requires a token that only this process and its workers
know; sockets and logs are in a folder that only this user can open. Ray reads most of that from the
environment, so it is set while Ray starts and restored right after: neither a submitted job, nor a
running cluster that is joined later, nor another child of this process sees it. What would open a
port but has no use here is not started at all (dashboard, autoscaler, agents).
"""

import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import ray
from ray._private import node, ray_constants, services, worker
from ray._private import utils as ray_utils

from desa_ray.cluster.own_node import RAYLET, OwnNode, end_all, without_agents
from desa_ray.cluster.ray_folder import ray_folder
from desa_ray.errors import DesaError
from desa_ray.store.copies import COPIES
from desa_ray.temporary import sweep

NODES: Any = node
START_LIMITS_S = (60.0, 300.0)  # of the first try and of the second
LOOK_S = 0.3
NICE_VARIABLE = "RAY_worker_niceness"
NICENESS = "5"  # behind the raylet; with 15, as Ray has it, workers starve on a busy machine
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (Ray's, on Linux)
OBJECT_STORE_BYTES = 200 << 20  # tasks and answers are small: data goes through the store
HINT = "try again when the machine is less busy, or use cluster=serial"


@cache
def token() -> str:
    """The token of this process's clusters: one, since Ray keeps the first that it reads."""
    return secrets.token_hex(32)


class NotUp(Exception):
    """Our own signal that a process of the new cluster died, or did not start in time."""


@contextmanager
def local_cluster(cpus: int | None) -> Iterator[Callable[[], str | None]]:
    """Start the cluster, and end it with the block. Yields a function that says why it died, or
    None while it is alive.

    Raises:
        DesaError: it does not start, twice; or no folder suits its sockets.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(ray_folder())
        stack.callback(reread_environment)  # from the environment as it is outside
        own = _start(cpus, folder)
        try:
            yield own.death
        finally:
            _stop(own)


def _start(cpus: int | None, folder: Path) -> OwnNode:
    first, longer = START_LIMITS_S
    try:
        return _try_to_start(cpus, folder, first)
    except NotUp:
        pass
    try:
        return _try_to_start(cpus, folder, longer)
    except NotUp as error:
        what = f"Ray did not start in two attempts ({first:.0f} s and {longer:.0f} s): {error}"
        raise DesaError(what, where="cluster=local", hint=HINT) from None


def _try_to_start(cpus: int | None, folder: Path, limit_s: float) -> OwnNode:
    """Start Ray and connect; everything that failed is ended again.

    Raises:
        NotUp: it did not come up, and another try may help.
        DesaError: Ray refuses a setting.
    """
    made: list[OwnNode] = []

    def make(*arguments: Any, **further: Any) -> OwnNode:
        return OwnNode(made, *arguments, **further)

    ask_port = partial(NODES.wait_for_persisted_port, timeout_ms=500)
    deadline = time.monotonic() + limit_s
    with (
        settings_in_place(_settings(folder)),
        _instead(ray_constants, "ENABLE_RAY_CLUSTER", False),
        _instead(ray_utils, "set_sigterm_handler", lambda handler: None),  # the caller's own stays
        _instead(NODES, "Node", make),
        _instead(services, "start_ray_process", without_agents(services.start_ray_process)),
        # Supervisors tell what failed, in a line
        _instead(worker, "listen_error_messages", lambda *_: None),
        _instead(
            NODES, "wait_for_persisted_port", _patient("GCS server", ask_port, made, deadline)
        ),
        _instead(services, "get_node", _patient("raylet", services.get_node, made, deadline)),
    ):
        reread_environment()
        try:
            ray.init(
                address="local",
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                _plasma_directory=_object_store_folder(folder),
                log_to_driver=False,
                logging_level=logging.CRITICAL,  # what fails is told in one line, by us
            )
        except BaseException as error:
            own = made[-1] if made else None
            fault = (own and own.death()) or _first_line(error)
            words = own.last_words() if own else ""
            if words and words not in fault:
                fault = f"{fault}; the raylet says: {words}"
            _stop(own)
            if isinstance(error, ValueError):  # not a matter of time
                hint = "fix the RAY_ variable or the setting that it names, or use cluster=serial"
                raise DesaError(
                    f"Ray refuses to start: {fault}", where="cluster=local", hint=hint
                ) from error
            if isinstance(error, Exception):
                raise NotUp(fault) from error
            raise
    return made[-1]


def _object_store_folder(folder: Path) -> str | None:
    """Where objects are kept: in shared memory (Ray's own choice, None) where that can be written
    and is large enough.
    """
    try:
        if (
            os.access(SHARED_MEMORY, os.W_OK)
            and shutil.disk_usage(SHARED_MEMORY).free >= OBJECT_STORE_BYTES
        ):
            return None
    except OSError:
        pass
    return str(folder)


def _settings(folder: Path) -> Mapping[str, str | None]:
    """Environment variables while Ray starts, for this process and those of the cluster; None:
    without it.
    """
    patience_s = START_LIMITS_S[-1]
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token(),
        "RAY_AUTH_TOKEN_PATH": None,
        # On Linux too: every process uses the loopback device
        ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR: "0",
        "RAY_TMPDIR": str(folder),
        "RAY_ADDRESS": None,  # what follows is of other clusters
        "RAY_REDIS_ADDRESS": None,
        "RAY_GCS_SERVER_PORT": None,
        "RAY_JOB_CONFIG_JSON_ENV_VAR": None,
        "RAY_enable_metrics_collection": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        NICE_VARIABLE: os.environ.get(NICE_VARIABLE, NICENESS),
        # Of one question; `_patient` decides how often it is asked
        "RAY_raylet_start_wait_time_s": "1",
        # Ray ends the whole driver, without a word, when its GCS has been gone for a minute; here
        # the death of a program of the cluster is seen and told, however busy the machine is.
        "RAY_gcs_rpc_server_reconnect_timeout_s": "3600",
        "RAY_worker_register_timeout_seconds": f"{patience_s:.0f}",
    }


def _patient(
    what: str, ask: Callable[..., Any], made: list[OwnNode], deadline: float
) -> Callable[..., Any]:
    """Ask again until the deadline, unless the node dies first; Ray's own waits neither look nor
    can be interrupted.
    """

    def patient(*arguments: Any, **_: Any) -> Any:
        while True:
            try:
                return ask(*arguments)
            except RuntimeError:
                if death := made[-1].death():
                    raise NotUp(death) from None
                if time.monotonic() > deadline:
                    raise NotUp(f"Ray's {what} did not start in time") from None
            time.sleep(LOOK_S)

    return patient


def _stop(own: OwnNode | None) -> None:
    """End the session and the cluster. Where a part is dead Ray would wait for it, so the rest is
    ended before.
    """
    workers = own.workers() if own else []
    if own and (own.death() or not ray.is_initialized()):
        own.end()
    ray.shutdown(wait_for_processes=True)
    end_all(workers)
    sweep(COPIES)  # of remote files, which killed workers leave


def reread_environment() -> None:
    """Let Ray read mode and token from the environment again, which it does once unless told to."""
    RAYLET.Config.initialize("")
    RAYLET.AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def settings_in_place(values: Mapping[str, str | None]) -> Iterator[None]:
    """These variables for the length of the block, then those that were there."""
    before = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _instead(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Another value of an attribute for the length of the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
