"""A TCP server that says whatever it is told, byte by byte, and notices when its client
hangs up.
"""

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

Talk = Callable[[socket.socket, bytes], None]
WAIT_S = 30


class RawServer:
    """Answers each connection by `talk(connection, what it sent first)`.

    Attributes:
        heard: the first bytes of each connection, in order.
        gone: set once a client has hung up on a connection that was still being served.
    """

    def __init__(self, talk: Talk, *, silent: bool = False, certificate: Path | None = None):
        self.talk, self.silent = talk, silent
        self.heard: list[bytes] = []
        self.gone, self.met = threading.Event(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.tls: ssl.SSLContext | None = None
        if certificate is not None:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificate)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(WAIT_S)
        try:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            said = b"" if self.silent else connection.recv(1 << 16)
            self.heard.append(said)
            self.met.set()
            self.talk(connection, said)
        except OSError:
            self.gone.set()
        finally:
            with suppress(OSError):
                # What the client still sends is read, so that it sees the end and no reset
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(1)
                while connection.recv(1 << 16):
                    pass
            connection.close()


@contextmanager
def raw_server(
    talk: Talk, *, silent: bool = False, certificate: Path | None = None
) -> Iterator[RawServer]:
    """A server of its own port of 127.0.0.1; `silent` ones read nothing before they talk."""
    server = RawServer(talk, silent=silent, certificate=certificate)
    try:
        yield server
    finally:
        server.listener.close()


def says(*pieces: bytes) -> Talk:
    """Sends these bytes and hangs up."""

    def talk(connection: socket.socket, _: bytes) -> None:
        for piece in pieces:
            connection.sendall(piece)

    return talk


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """A whole answer."""
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Length: {len(body)}",
        "Content-Type: application/json",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def drips(start: bytes, piece: bytes, every_s: float = 0.05) -> Talk:
    """Sends the start, then a piece now and then, for ever: no single read is late."""

    def talk(connection: socket.socket, _: bytes) -> None:
        connection.sendall(start)
        connection.settimeout(every_s or 0.0001)
        for _ in range(int(WAIT_S / max(every_s, 0.001))):
            if piece:
                connection.settimeout(WAIT_S)
                connection.sendall(piece)
                connection.settimeout(every_s or 0.0001)
            try:
                if not connection.recv(1 << 16):
                    raise ConnectionResetError
            except TimeoutError:
                pass

    return talk


def whole(connection: socket.socket, data: bytes = b"") -> bytes:
    """A request to its end; `data` is what was read of it already."""
    while b"\r\n\r\n" not in data:
        block = connection.recv(1 << 16)
        if not block:
            raise ConnectionResetError
        data += block
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    blocks, missing = (
        [head, b"\r\n\r\n", body],
        (int(lengths[0].partition(b":")[2]) if lengths else 0) - len(body),
    )
    while missing > 0:
        block = connection.recv(1 << 16)
        if not block:
            raise ConnectionResetError
        blocks.append(block)
        missing -= len(block)
    return b"".join(blocks)


def self_signed(folder: Path) -> Path:
    """A key and its certificate for 127.0.0.1, in one file, which is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "certificate.pem"
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path


def without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxies and authorities of whoever runs the tests."""
    for name in ("HTTP", "HTTPS", "ALL", "NO"):
        for spelled in (f"{name}_PROXY", f"{name}_proxy".lower()):
            monkeypatch.delenv(spelled, raising=False)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
