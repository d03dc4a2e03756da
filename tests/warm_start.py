"""Starts `desa` from a process that has imported everything already: a process of its own, as users
run it, without the seconds of imports that every start would cost anew.

`python -m tests.warm_start` reads one request per line: arguments, folder, environment and the
files for its output. It forks, and the child runs the command as `python -m desa_ray.jobs` would.
Answers are the child's process id, then its exit code.
"""

import gc
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

FREE = {"DESA_HOME", "HF_HUB_OFFLINE", "PYTEST_CURRENT_TEST", "XDG_RUNTIME_DIR"}  # read when used


class WarmStart:
    """The process that forks; one command at a time."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm_start"],
            cwd=Path(__file__).parents[1],  # wherever the test that comes first has gone
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def serves(self, environment: dict[str, str]) -> bool:
        """Whether it may stand in: what libraries read as they are imported is as it was."""
        names = {*environment, *self.environment} - FREE
        return all(environment.get(name) == self.environment.get(name) for name in names)

    def run(
        self, arguments: list[str], cwd: str, environment: dict[str, str], out: str, err: str
    ) -> "Started":
        request = json.dumps([arguments, cwd, environment, out, err])
        print(request, file=_pipe(self.process.stdin), flush=True)
        return Started(int(_pipe(self.process.stdout).readline()), _pipe(self.process.stdout))

    def end(self) -> None:
        _pipe(self.process.stdin).close()
        self.process.wait(30)


class Started:
    """A command that runs: its process id, and in the end its exit code."""

    def __init__(self, pid: int, answers: IO[str]) -> None:
        self.pid, self._answers = pid, answers

    def wait(self) -> int:
        return int(self._answers.readline())


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _serve() -> tuple[list[str], str, dict[str, str], str, str] | None:
    """Answers requests; returns one in the child that has to run it, None at the end."""
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            answers.close()
            return request
        print(child, file=answers, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    return None


def _become(request: tuple[list[str], str, dict[str, str], str, str]) -> None:
    arguments, cwd, environment, out, err = request
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    for path, number in ((os.devnull, 0), (out, 1), (err, 2)):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = [sys.modules["desa_ray.jobs.__main__"].__file__ or "", *arguments]
    sys.path[0] = cwd


if __name__ == "__main__":
    from desa_ray.jobs.__main__ import main

    for module in ("jobs.run", "jobs.plan", "jobs.report", "experiment.run", "tracking.sweeps"):
        importlib.import_module(f"desa_ray.{module}")
    gc.freeze()
    asked = _serve()
    if asked is not None:
        _become(asked)
        main()
