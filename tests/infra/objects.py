"""A real S3-compatible server (moto's) on this machine, and the variables by which
clients find it.
"""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.infra.programs import free_port


@contextmanager
def object_server(log: Path, *options: str) -> Iterator[dict[str, str]]:
    """Serves until the block ends; gives the environment of its clients."""
    port = free_port()
    command = [
        sys.executable,
        str(Path(__file__).with_name("serve_objects.py")),
        str(port),
        *options,
    ]
    with log.open("w") as sink:
        server = subprocess.Popen(command, stdout=sink, stderr=sink)
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{address}/moto-api/", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "s3cr3t-of-the-store",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "no_proxy": "127.0.0.1,localhost",
        }
    finally:
        server.terminate()
        server.wait(30)


def client(environment: dict[str, str]) -> Any:
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_DEFAULT_REGION"],
    )
