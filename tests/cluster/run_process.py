"""Runs of `sharing_run`, each in a process of its own."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.cluster.ray_nodes import token_environment

REPOSITORY = Path(__file__).resolve().parents[2]


class Run:
    """A run of `sharing_run` in a process of its own, by a user of this name."""

    def __init__(self, folder: Path, user: str, address: str, *stages: Any, **settings: Any):
        self.out, self.store = folder / f"{user}.out", folder / user
        arguments = [address, str(folder / user), json.dumps(stages), json.dumps(settings)]
        with self.out.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.sharing_run", *arguments],
                cwd=REPOSITORY,
                env=token_environment() | {"LOGNAME": user, "PYTHONPATH": str(REPOSITORY)},
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def events(self) -> list[dict[str, Any]]:
        lines = self.out.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def notes(self) -> list[str]:
        return [event["note"] for event in self.events() if "note" in event]

    def when(self, key: str, name: str) -> list[float]:
        return [event["at"] for event in self.events() if event.get(key) == name]

    def wait_for(self, key: str, name: str, timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.when(key, name):
            assert self.process.poll() is None, self.out.read_text()
            assert time.monotonic() < deadline, self.out.read_text()
            time.sleep(0.2)

    def nodes(self) -> list[str]:
        """Where each shard that is stored was computed, in the order in which they were."""
        parts = sorted(self.store.glob("*/*/part-*.bin"), key=lambda part: part.stat().st_mtime_ns)
        return [part.read_text() for part in parts]

    def end(self) -> None:
        assert self.process.wait(180) == 0, self.out.read_text()
