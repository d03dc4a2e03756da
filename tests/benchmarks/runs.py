"""(g) to (j): whole runs of the `desa` command, each in processes of its own whose CPU time is
added up.

Runs on Ray are compared by wall time: its node daemon lets its workers go without their times.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .harness import Measured, Target, cpu_s

# Runs a command and prints the CPU seconds of everything it started, daemons included: orphans
# become its children.
ACCOUNTANT = """
import ctypes, json, os, resource, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1)
started = time.perf_counter()
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
wall = time.perf_counter() - started
try:
    while time.perf_counter() - started < wall + 30:
        os.waitpid(-1, os.WNOHANG)
        time.sleep(0.05)
except ChildProcessError:
    pass
used = resource.getrusage(resource.RUSAGE_CHILDREN)
said = done.stdout[-2000:] + done.stderr[-4000:]
print(json.dumps([used.ru_utime + used.ru_stime, wall, done.returncode, said]))
"""


def desa(folder: Path, *arguments: str) -> tuple[float, float]:
    """CPU and wall seconds of `desa ARGUMENTS` with its home in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "DESA_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", ACCOUNTANT, sys.executable, "-m", "desa_ray.jobs", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    cpu, wall, code, said = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, said
    return cpu, wall


def whole(dataset: Sequence[str], *, scaling: bool = True) -> list[Measured]:
    """(g), (h) and (j) on one collection: a cold run, the same again, other kappas, and the same
    with Ray.

    Args:
        dataset: the overrides that choose the collection, `dataset=NAME` first.
    """
    common = [*dataset, "method=original", "tracking.enabled=false"]
    with tempfile.TemporaryDirectory(prefix="desa-bench-") as scratch:
        serial, ray = Path(scratch) / "serial", Path(scratch) / "ray"
        serially = ["cluster=serial", "cluster.encoder_cpus=2"]
        cold = desa(serial, "run", *common, *serially)
        again = desa(serial, "run", *common, *serially)
        sweep = desa(serial, "run", "-m", *common, *serially, "fusion.kappa=2,20,100")
        lazy = desa(serial, "run", *common, *serially, "ranking=lazy")
        on_ray = desa(ray, "run", *common, "cluster=local", "cluster.encoders=2", "cluster.cpus=2")
        alone = None
        if scaling:
            alone = desa(
                Path(scratch) / "one",
                "run",
                *common,
                "cluster=local",
                "cluster.encoders=1",
                "cluster.cpus=2",
            )
    marginal = max(0.0, sweep[0] - again[0]) / 3
    share = 100 * marginal / cold[0]
    overhead = 100 * (on_ray[1] / cold[1] - 1)
    what = dataset[0].removeprefix("dataset=")
    found = [
        Measured(
            "g kappa sweep",
            f"one more kappa, everything else stored ({what})",
            "the cold run",
            marginal,
            cold[0],
            share,
            "% of a cold run",
            Target(10, most=True),
        ),
        Measured(
            "h Ray overhead",
            f"a cold run, 2 encoder actors of one thread, wall time ({what})",
            "serial, 2 threads, wall time",
            on_ray[1],
            cold[1],
            overhead,
            "% longer",
            # Below a minute it is Ray's start that is measured
            (Target(15, most=True) if cold[1] > 60 else None),
            {"serial_cpu_s": cold[0], "minute_or_more": cold[1] > 60},
        ),
        Measured(
            "j end to end",
            f"the run again, everything stored ({what})",
            "the cold run",
            again[0],
            cold[0],
            cold[0] / again[0],
            "×",
            None,
            {"cold_wall_s": cold[1], "lazy_after_complete_s": lazy[0]},
        ),
    ]
    if alone is not None:
        found.append(
            Measured(
                "h Ray scaling",
                f"2 encoder actors, wall time ({what})",
                "1 encoder actor, wall time",
                on_ray[1],
                alone[1],
                alone[1] / on_ray[1],
                "×",
                None,
            )
        )
    return found


def tracking(cells: int = 7) -> list[Measured]:
    """(i) What logging one cell to a local MLflow database takes, after the first."""
    from desa_ray.tracking.delivery import Delivery
    from desa_ray.tracking.entries import CellRun, cell_document
    from desa_ray.tracking.runs import Tracker

    with tempfile.TemporaryDirectory(prefix="desa-bench-") as scratch:
        folder = Path(scratch)
        files = []
        for name, size in (
            ("records.parquet", 400_000),
            ("manifest.json", 40_000),
            ("run.parquet", 450_000),
        ):
            (folder / name).write_bytes(os.urandom(size))
            files.append(folder / name)
        tracker = Tracker(f"sqlite:///{folder / 'mlflow.db'}", folder / "artifacts")
        delivery = Delivery(tracker, "bench", "0" * 64, "1" * 32)

        def log(number: int) -> None:
            values: dict[str, Any] = {f"metric_{m}": m / 7 + number for m in range(90)}
            now = int(1000 * time.time())
            run = CellRun(
                cell=f"{number:064d}",
                name=f"made_up/desa/k{number}",
                params={f"channels.sparse.option_{p}": f"value {p}" for p in range(60)},
                metrics=values,
                per_draw=[{f"metric_{m}": m / 3 for m in range(12)}] * 3,
                tags={f"sha256.input_{t}": f"{t:064d}" for t in range(14)},
                artifacts=files,
                started_ms=now,
                ended_ms=now,
            )
            delivery.send({**cell_document(run), "child": False}, folder)

        log(0)
        started = time.perf_counter()
        times = [cpu_s(lambda number=number: log(number)) for number in range(1, cells)]
        wall = (time.perf_counter() - started) / len(times)
    own = statistics.median(times)
    words = "log one cell: 60 params, 126 metrics, 14 tags, 3 files"
    return [
        Measured(
            "i MLflow",
            words,
            "-",
            own,
            None,
            own,
            "s per cell",
            Target(1, most=True),
            {"wall_s": wall},
        )
    ]
