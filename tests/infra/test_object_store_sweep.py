"""A sweep on Ray with its store on an S3-compatible server: the same results, resumed, and no
credentials left over.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.desa_fixtures import dataset, summaries
from tests.infra.objects import client, object_server

pytestmark = pytest.mark.slow


def _desa(folder: Path, environment: dict[str, str], *arguments: str) -> str:
    folder.mkdir(exist_ok=True)
    variables = {
        **os.environ,
        **environment,
        "DESA_HOME": str(folder / "home"),
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "desa_ray.jobs", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_sweep_on_an_object_store(small_slice, tmp_path):
    sweep = [
        "run",
        "-m",
        "method=original,desa",
        *dataset(small_slice),
        "draws=1",
        "cluster.shard_documents=20",
    ]
    _desa(tmp_path / "folder", {}, *sweep, "cluster=serial", "tracking.enabled=false")
    with object_server(tmp_path / "log") as environment:
        s3 = client(environment)
        s3.create_bucket(Bucket="desa")
        there = ["store.root=s3://desa/store", "cluster.cpus=2", "cluster.encoders=2"]
        doctor = _desa(tmp_path / "bucket", environment, "doctor", "--store", "s3://desa/store")
        assert "ok   store: s3://desa/store" in doctor
        told = _desa(tmp_path / "bucket", environment, *sweep, *there)
        cells = summaries(tmp_path / "bucket")
        # Another machine, with nothing but the address and the credentials, finds everything there.
        again = _desa(
            tmp_path / "other", environment, *sweep, "store.root=s3://desa/store", "cluster=serial"
        )
        assert "0 stages to compute" in again
        objects = [found["Key"] for found in s3.list_objects_v2(Bucket="desa")["Contents"]]
        assert any(name.startswith("store/vectors/") for name in objects)
        assert not any("probe" in name for name in objects)
        stored = b"".join(s3.get_object(Bucket="desa", Key=name)["Body"].read() for name in objects)
    hashes = [
        [cell["artifacts"]["records.parquet"] for cell in summaries(tmp_path / name)]
        for name in ("folder", "other")
    ]
    assert [cell["artifacts"]["records.parquet"] for cell in cells] == hashes[0] == hashes[1]
    secret = environment["AWS_SECRET_ACCESS_KEY"]
    assert secret not in told + again + doctor
    assert secret.encode() not in stored
    for path in (tmp_path / "bucket").rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path
