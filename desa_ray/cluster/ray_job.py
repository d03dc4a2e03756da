"""A command as a Ray job: sent through the job server, followed to its end, its exit code returned.

Only these are sent: the command line, environment variables and a folder; the platform itself is on
the nodes already. Ray's client takes a token from RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or the home
folder; nothing here touches it.
"""

import asyncio
import logging
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from desa_ray.cluster.job_client import job_client
from desa_ray.cluster.session import knock
from desa_ray.errors import DesaError
from desa_ray.http_failures import Unanswered, chain, one_line

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
ADDRESS_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
POLL_S = 0.5
READY_TIMEOUT_S = 60.0
LOST_TIMEOUT_S = (
    120.0  # how long the job server may be away before a follower gives up; the job goes on
)
WHERE = "submit.address"
# What Ray's client raises, whatever the other side answers.
FAILURES = (OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError)
LOOKS = 3  # for a job whose submission got no answer


def job_server(address: str | None) -> str:
    """The address to send to: the one given, else the environment's, else this machine's
    dashboard.
    """
    given = (address, *(os.environ.get(name) for name in ADDRESS_VARIABLES))
    return next((one for one in given if one), DEFAULT_ADDRESS)


class RayJobs:
    """A connection to the job server of one cluster, which must run this process's
    version of Ray.
    """

    def __init__(self, address: str):
        """Connect.

        Raises:
            DesaError: nobody answers, the token is refused, or the cluster runs another version of
                Ray.
        """
        import ray
        from ray.exceptions import RayError
        from ray.job_submission import JobSubmissionClient

        for kind in JobSubmissionClient.__mro__[:-1]:
            # The client's modules set levels of their own
            logging.getLogger(kind.__module__).setLevel(logging.ERROR)
        self.address = address
        try:
            if address.startswith("http"):
                knock(address)
            with _without(ADDRESS_VARIABLES):  # Ray prefers them to the address it is given
                self.client = job_client(address)
            theirs = self.client._server_ray_version  # asked for while connecting
        except (RayError, *FAILURES) as error:
            raise self._failed(error, "no Ray job server") from error
        if theirs != ray.__version__:
            raise DesaError(
                f"the cluster at {address} runs Ray {theirs}, but this is Ray {ray.__version__}",
                where=WHERE,
                hint="install from the lock file that the cluster's nodes use",
            )

    def send(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path | None
    ) -> str:
        """Send a command; returns the job's id. It runs in a copy of `folder`, if there is one."""
        runtime: dict[str, Any] = {"env_vars": dict(environment)}
        if folder is not None:
            runtime["working_dir"] = str(folder)
        started, job = time.monotonic(), f"raysubmit_{uuid4().hex[:16]}"
        while True:
            try:
                self.client.submit_job(
                    entrypoint=shlex.join(command), runtime_env=runtime, submission_id=job
                )
            except FAILURES as error:
                # A head that has just been started takes no jobs for some seconds, and says to try
                # again.
                early = (
                    "No available agent" in str(error)
                    and time.monotonic() - started < READY_TIMEOUT_S
                )
                if not early and not self._taken(job):
                    raise self._failed(error, "the job was not accepted") from error
                if early:
                    time.sleep(POLL_S)
                    continue
            return job

    def _taken(self, job: str) -> bool:
        """Whether the job server has the job; the answer to its submission may have been lost."""
        for _ in range(LOOKS):
            try:
                self.client.get_job_info(job)
            except FAILURES as error:
                if "status code 404" in str(error):
                    return False
                time.sleep(POLL_S)
            else:
                return True
        return False

    def follow(self, job: str, write: Callable[[str], object]) -> int:
        """Write the job's output as it comes; returns its exit code when it has ended.

        A job server that is away is asked again; what was written is not written twice.

        Raises:
            DesaError: no such job, the job never started or lost its process, or the job server
                stays away.
        """
        written, last_seen = 0, time.monotonic()
        while True:
            try:
                info = self.client.get_job_info(job)
                if info.status.value != "PENDING":
                    written = asyncio.run(self._pour(job, written, write))
                    info = self.client.get_job_info(job)
                last_seen = time.monotonic()
                if info.status.is_terminal():
                    return self._exit_code(job, info)
            except FAILURES as error:
                if "status code 404" in str(error):
                    raise DesaError(
                        f"no job {job} at {self.address}", where="submit.job"
                    ) from error
                if time.monotonic() - last_seen > LOST_TIMEOUT_S:
                    raise self._failed(
                        error, f"lost contact with job {job}, which may still be running"
                    ) from error
            time.sleep(POLL_S)

    async def _pour(self, job: str, skip: int, write: Callable[[str], object]) -> int:
        """Write the log from character `skip` on until it ends or breaks; returns how much of it is
        written.
        """
        import aiohttp

        seen = 0
        try:
            async for text in self.client.tail_job_logs(job):
                if new := text[max(0, skip - seen) :]:
                    write(new)
                seen += len(text)
        except (aiohttp.ClientError, RuntimeError):
            pass  # the caller asks how the job is, and comes back
        return max(seen, skip)

    def _exit_code(self, job: str, info: Any) -> int:
        code = info.driver_exit_code
        if info.status.value == "SUCCEEDED":
            return 0
        if info.status.value == "STOPPED":
            return 130 if code in (None, 0) or code < 0 else code
        if code is None:
            raise DesaError(
                " ".join((info.message or "it failed").split()),
                where=f"job {job}",
                hint=(
                    "check the head node's memory and its Ray logs, then submit it again: finished"
                    " work is kept"
                ),
            )
        if code == 127:
            raise DesaError(
                "the command was not found on the head node",
                where="submit.command",
                hint="give its path on the head node",
            )
        return code if code >= 0 else 128 - code

    def _failed(self, error: Exception, what: str) -> DesaError:
        said = next(
            (cause.what for cause in chain(error) if isinstance(cause, Unanswered)), str(error)
        )
        text = one_line(said)
        if "uthentication" in str(error):
            return DesaError(
                f"{what}: {self.address} refuses the token",
                where=WHERE,
                hint=(
                    "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) to the"
                    " cluster's"
                ),
            )
        return DesaError(
            f"{what} at {self.address}: {text}",
            where=WHERE,
            hint="give the address of the head node's dashboard, http://HOST:8265",
        )


@contextmanager
def _without(names: Sequence[str]) -> Iterator[None]:
    """These environment variables unset for the length of the block."""
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)
