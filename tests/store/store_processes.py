"""What the tests of the store share: made-up artifacts, damage, and processes to be killed or to
race.
"""

import multiprocessing
import os
import time
from pathlib import Path

from desa_ray.store.artifact import Artifact
from desa_ray.store.artifacts import Store
from desa_ray.store.files import Files
from desa_ray.store.keys import Key

KEY = Key("vectors", 1, {"encoder": "minilm"}, {"corpus": "cd" * 32})
CONTENT = "ef" * 32
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["desa_ray.store.artifacts"])


def data_of(number: int) -> bytes:
    return bytes([number]) * 1000


def part(number: int) -> str:
    return f"part-{number:05}.npy"


def die_before_the_sidecar(root: str) -> None:
    artifact = Store(root).artifact(KEY)
    artifact.write_part(part(0), data_of(0), rows=10)
    publish = artifact._files.publish

    def publish_and_die(name, content):
        if name.endswith(".json"):
            os.kill(os.getpid(), 9)
        return publish(name, content)

    artifact._files.publish = publish_and_die
    artifact.write_part(part(1), data_of(1), rows=10)


def write_slowly(root: str, parts: int) -> None:
    artifact = Store(root).artifact(KEY)

    def write(path: Path, number: int):
        with path.open("wb", buffering=0) as file:
            for _ in range(20):
                file.write(bytes([number]) * 5000)
                time.sleep(0.0005)

    for number in range(parts):
        artifact.write_part(part(number), lambda path, n=number: write(path, n), rows=1)
    artifact.finish(CONTENT, counts={}, meta={})


def race_for_it(root: str, number: int, barrier, results) -> None:
    artifact = Store(root).artifact(KEY)
    barrier.wait()
    layout = artifact.layout({"writer": number})
    infos = [artifact.write_part(part(n), f"{n} by {number}".encode(), rows=1) for n in range(30)]
    manifest = artifact.finish(CONTENT, counts={}, meta={"writer": number})
    results.put((layout, infos, manifest))


def die_in_the_middle(root: str) -> None:
    def half(path: Path):
        path.write_bytes(b"half of it")
        os.kill(os.getpid(), 9)

    Files(root).publish("a/x.bin", half)


def build(artifact: Artifact, parts: int = 3) -> dict:
    artifact.layout({"bounds": list(range(parts + 1))})
    for number in range(parts):
        artifact.write_part(part(number), data_of(number), rows=10, content=CONTENT)
    return artifact.finish(
        CONTENT, counts={"rows": 10 * parts}, meta={"commit": "abc", "timings": {"encode_s": 1.5}}
    )


def folder_of(root: str | Path) -> Path:
    return Path(root) / KEY.stage / KEY.short


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
