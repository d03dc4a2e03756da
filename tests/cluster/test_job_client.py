"""A job server that drips, loses answers or answers anything: one error, at once, and no job sent
twice.
"""

import json
import socket
import threading
import time
from collections.abc import Callable

import pytest
import ray

from desa_ray.cluster import job_client, ray_job
from desa_ray.cluster.ray_job import RayJobs
from desa_ray.errors import DesaError
from tests.raw_server import answer, drips, raw_server, says, whole

VERSION = json.dumps(
    {"version": "4", "ray_version": ray.__version__, "ray_commit": "", "session_name": ""}
).encode()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(job_client, "REQUEST_TIMEOUT_S", 1.0)
    monkeypatch.setattr(ray_job, "POLL_S", 0.05)


def _refused(url: str) -> str:
    with pytest.raises(DesaError, match=r"submit\.address: no Ray job server at") as caught:
        RayJobs(url)
    assert str(caught.value).isprintable()
    return str(caught.value)


def _knocked(talk: Callable) -> Callable:
    """Whoever only looks whether somebody listens is left alone."""

    def answered(connection: socket.socket, said: bytes) -> None:
        if said:
            talk(connection, said)

    return answered


def test_a_job_server_that_drips_is_given_up():
    drip = drips(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n")
    with raw_server(_knocked(drip)) as server:
        started = time.monotonic()
        assert "no answer within 1 s" in _refused(server.url)
        assert time.monotonic() - started < 15
        assert server.gone.wait(15)


ANSWERS = {
    "no object": b"[1]",
    "null": b"null",
    "another type": b'{"ray_version": 5}',
    "no version": b'{"ray_version": "\x1b[31mred"}',
    "a web page": b"<html>hello</html>",
    "nothing": b"",
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_job_server_that_is_none_is_one_error(name):
    with raw_server(_knocked(says(answer(ANSWERS[name])))) as server:
        _refused(server.url)


def test_no_redirect_of_a_job_server_is_followed(monkeypatch):
    with raw_server(says(answer(VERSION))) as other:
        with raw_server(
            _knocked(says(answer(b"", "307 Moved", f"Location: {other.url}/")))
        ) as server:
            _refused(server.url)
        assert other.heard == []


class JobServer:
    """As much of Ray's job server as a submission needs; the answer to it is lost."""

    def __init__(self, lost: int):
        self.lost, self.jobs, self.posts = lost, dict[str, dict](), 0
        self.lock = threading.Lock()

    def talk(self, connection: socket.socket, said: bytes) -> None:
        line = said.split(b"\r\n", 1)[0].decode()
        if line.startswith("GET /api/version"):
            connection.sendall(answer(VERSION))
        elif line.startswith("POST /api/jobs/"):
            body = whole(connection, said).partition(b"\r\n\r\n")[2]
            with self.lock:
                job = json.loads(body)["submission_id"]
                self.posts += 1
                self.jobs[job] = {
                    "type": "SUBMISSION",
                    "submission_id": job,
                    "entrypoint": "x",
                    "status": "PENDING",
                }
                self.lost -= 1
            if self.lost < 0:
                connection.sendall(
                    answer(json.dumps({"submission_id": job, "job_id": job}).encode())
                )
        elif line.startswith("GET /api/jobs/"):
            job = line.split()[1].rpartition("/")[2]
            with self.lock:
                found = self.jobs.get(job)
            connection.sendall(
                answer(json.dumps(found).encode())
                if found
                else answer(b"no such job", "404 Not Found")
            )


def test_a_submission_whose_answer_is_lost_is_one_job():
    jobs = JobServer(lost=1)
    with raw_server(_knocked(jobs.talk)) as server:
        sent = RayJobs(server.url).send(["desa", "run"], {}, None)
    assert (jobs.posts, list(jobs.jobs)) == (1, [sent])


def test_a_submission_that_never_arrived_is_an_error():
    jobs = JobServer(lost=0)

    def talk(connection: socket.socket, said: bytes) -> None:
        if not said.startswith(b"POST"):
            jobs.talk(connection, said)

    with raw_server(_knocked(talk)) as server:
        client = RayJobs(server.url)
        with pytest.raises(DesaError, match=r"the job was not accepted at .*closed connection"):
            client.send(["desa", "run"], {}, None)
    assert jobs.posts == 0
