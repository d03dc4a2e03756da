"""Kernels are compiled once per machine, and a run after that compiles nothing more."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.desa_fixtures import dataset

REPOSITORY = Path(__file__).resolve().parents[2]
COMPILING = """
import json, sys, time
from numba.core import event
from numba.core.dispatcher import Dispatcher

spent = [0.0, 0.0]  # CPU seconds of outermost compilations, and where the running one began
depth = [0]

class Listener(event.Listener):
    def on_start(self, event):
        depth[0] += 1
        if depth[0] == 1:
            spent[1] = time.process_time()

    def on_end(self, event):
        depth[0] -= 1
        if depth[0] == 0:
            spent[0] += time.process_time() - spent[1]

event.register("numba:compile", Listener())
from desa_ray.stages.kernels import compile_kernels
compile_kernels()
compiled = {}
for name, module in list(sys.modules.items()):
    if name.startswith("desa_ray."):
        for kernel in vars(module).values():
            if isinstance(kernel, Dispatcher) and kernel.py_func.__module__ == name:
                misses = sum(kernel.stats.cache_misses.values())
                if misses:
                    compiled[f"{name}.{kernel.py_func.__name__}"] = misses
print(json.dumps([spent[0], compiled]))
"""


def compiling(cache: Path) -> subprocess.Popen:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-c", COMPILING], cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE
    )


@pytest.mark.slow
def test_processes_that_start_together_compile_each_kernel_once(tmp_path):
    """Processes that start together compile each kernel once; waiting for it costs little."""
    together = [compiling(tmp_path) for _ in range(2)]
    answers = [json.loads(process.communicate(timeout=400)[0]) for process in together]
    busy = [compiled for _, compiled in answers if compiled]
    assert len(busy) == 1
    assert len(busy[0]) > 15
    assert max(busy[0].values()) == 1
    # CPU time of one run, which a slow or busy machine stretches alike for both.
    (compiling_s,) = [seconds for seconds, compiled in answers if compiled]
    assert sum(seconds for seconds, _ in answers) < 1.5 * compiling_s


RUNNING = """
import sys
from numba.core.dispatcher import Dispatcher

def signatures():
    return {
        (name, kernel.py_func.__name__, str(signature))
        for name, module in list(sys.modules.items()) if name.startswith("desa_ray.")
        for kernel in vars(module).values() if isinstance(kernel, Dispatcher)
        for signature in kernel.signatures
    }

from desa_ray.jobs.__main__ import main
from desa_ray.stages.kernels import compile_kernels
compile_kernels()
before = signatures()
assert len(before) > 15, before
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
assert signatures() == before, signatures() - before
"""


@pytest.mark.parametrize(
    "ranking", ["complete", "lazy", pytest.param("counted", marks=pytest.mark.slow)]
)
def test_a_run_calls_kernels_only_as_they_were_compiled(ranking, demo_slice, warm_home, tmp_path):
    """A run needs no argument types beyond those that `compile_kernels` compiled for it."""
    for stage in ("ranking", "fusion"):
        shutil.rmtree(warm_home / "store" / stage)
    common = [*dataset(demo_slice), "cluster=serial", "tracking.enabled=false", "draws=1"]
    more = ["evaluation.access_depths=true"] if ranking == "counted" else []
    done = subprocess.run(
        [sys.executable, "-c", RUNNING, "run", *common, f"ranking={ranking}", *more],
        cwd=tmp_path,
        env={**os.environ, "DESA_HOME": str(warm_home)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "outputs").is_dir()
