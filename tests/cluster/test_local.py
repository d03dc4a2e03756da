"""The local cluster is closed: loopback only, nothing without this process's token, no trace of the
token anywhere.
"""

import http.client
import importlib
import os
import pkgutil
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import grpc
import psutil
import pytest
import ray
import ray.core.generated
from ray._private import ray_constants, services

from desa_ray.cluster.local import token
from desa_ray.cluster.session import session
from desa_ray.cluster.transport import _Actor
from desa_ray.config import ClusterConfig
from desa_ray.pipeline.stage import Pool

INHERITED = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_AUTH_TOKEN": "an-inherited-token-of-enough-characters",
    "RAY_AUTH_TOKEN_PATH": "/nowhere/token",
    "RAY_ADDRESS": "127.0.0.1:9",  # a cluster that is dead
    "AWS_SECRET_ACCESS_KEY": "s3cr3t-of-a-store",
}
IDLE = {"ray::IDLE"}  # a worker that waits
REFUSED = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED}


@dataclass(frozen=True)
class Started:
    """What the session left to be seen while it is open."""

    processes: list[psutil.Process]
    folder: Path
    environment: dict[str, str]

    def ports(self) -> dict[tuple[str, int], str]:
        """Process name and port -> address, of everything that listens."""
        return {
            (process.name(), listener.laddr.port): listener.laddr.ip
            for process in self.processes
            for listener in process.net_connections("inet")
            if listener.status == psutil.CONN_LISTEN or not listener.raddr
        }


@pytest.fixture(scope="module")
def started(tmp_path_factory) -> Iterator[Started]:
    """A local cluster of this process with a worker at work, begun under another cluster's
    settings.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, value in INHERITED.items():
            patch.setenv(name, value)
        before = psutil.Process().children(recursive=True)  # what earlier tests left
        with session(ClusterConfig(cpus=1)) as death:
            environment = dict(os.environ)
            actor = ray.remote(_Actor).remote(Pool("made up", dict))  # pyright: ignore
            ray.get(actor.ready.remote(), timeout=120)
            own = psutil.Process()
            below = [child for child in own.children(recursive=True) if child not in before]
            folder = Path(ray._private.worker._global_node.temp_dir)
            yield Started([own, *below], folder, environment)
            assert death() is None
        assert not [process for process in below if process.is_running()]
        assert not folder.parent.exists()


def test_every_listener_is_on_the_loopback_device(started):
    ports = started.ports()
    assert {name for name, _ in ports} - IDLE == {
        "gcs_server",
        "raylet",
        "ray::_Actor",
        started.processes[0].name(),
    }
    for place, address in ports.items():
        found = ip_address(address)
        found = found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
        assert found.is_loopback, (place, address)


def _methods() -> list[str]:
    """Every method of every service, as Ray's definitions and its servers name them."""
    found = set()
    for module in pkgutil.iter_modules(ray.core.generated.__path__, "ray.core.generated."):
        if module.name.endswith("_pb2"):
            known = importlib.import_module(module.name).DESCRIPTOR.services_by_name.values()
            found |= {
                f"/{service.full_name}/{method.name}"
                for service in known
                for method in service.methods
            }
    for program in (services.RAYLET_EXECUTABLE, services.GCS_SERVER_EXECUTABLE):
        names = re.findall(rb"/ray\.rpc\.[\w.]+Service/\w+", Path(program).read_bytes())
        found |= {name.decode() for name in names}
    return sorted(found)


def _answer(port: int, method: str, **options) -> grpc.StatusCode:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask = channel.unary_unary(method, lambda sent: sent, lambda got: got)
        try:
            ask(b"", timeout=20, **options)
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK


def _speaks_http(port: int) -> bool:
    """Whether a port answers in HTTP/1; the others speak gRPC."""
    try:
        _ask(port, "/")
    except http.client.BadStatusLine:
        return False
    return True


def _ask(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def test_every_port_refuses_a_client_without_the_token(started):
    """Driver, GCS, raylet (two ports) and workers: each method of each service; an agent would be
    HTTP: each page.
    """
    methods, guarded = _methods(), set()
    assert len(methods) > 100
    for name, port in started.ports():
        if _speaks_http(port):
            assert {_ask(port, path) for path in ("/", "/metrics", "/api/jobs/", "/logs")} == {
                401
            }, (name, port)
            guarded.add(name)
            continue
        answers = {method: _answer(port, method) for method in methods}
        assert set(answers.values()) <= REFUSED, {
            m: code for m, code in answers.items() if code not in REFUSED
        }
        known = [
            method for method, code in answers.items() if code is grpc.StatusCode.UNAUTHENTICATED
        ]
        assert known, (name, port)
        guarded.add(name)
        wrong = (("authorization", f"Bearer {INHERITED['RAY_AUTH_TOKEN']}"),)
        assert _answer(port, known[0], metadata=wrong) is grpc.StatusCode.UNAUTHENTICATED
    assert guarded - IDLE == {"gcs_server", "raylet", "ray::_Actor", started.processes[0].name()}


def test_the_token_opens_what_it_guards(started):
    """So that the refusals above are the token's doing."""
    (port,) = [port for name, port in started.ports() if name == "gcs_server"]
    given = (("authorization", f"Bearer {token()}"),)
    assert (
        _answer(port, "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo", metadata=given)
        is grpc.StatusCode.OK
    )


def test_the_environment_is_restored_at_once(started):
    assert {name: started.environment.get(name) for name in INHERITED} == INHERITED
    assert token() not in started.environment.values()
    assert ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR not in started.environment
    assert (
        "RAY_TMPDIR" not in started.environment
        or "desa-ray-" not in started.environment["RAY_TMPDIR"]
    )
    assert ray_constants.ENABLE_RAY_CLUSTER is True


def test_neither_the_token_nor_a_key_is_on_a_command_line(started):
    """Neither the token nor a key is on a command line or in a log."""
    secrets = (token(), INHERITED["AWS_SECRET_ACCESS_KEY"], INHERITED["RAY_AUTH_TOKEN"])
    for process in started.processes:
        assert not [secret for secret in secrets if secret in " ".join(process.cmdline())]
    files = [path for path in started.folder.rglob("*") if path.is_file() and not path.is_socket()]
    assert any(path.name == "raylet.out" for path in files)
    for path in files:
        assert not [secret for secret in secrets if secret.encode() in path.read_bytes()], path


def test_the_folder_is_this_users_alone(started):
    parent = started.folder.parent
    found = parent.lstat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o700, os.geteuid())
    assert parent.name.startswith("desa-ray-")
