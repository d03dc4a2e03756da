"""The child process behind `desa_ray.plan` and `desa_ray.run`: composes and runs as the command
line does, and answers over a pipe.

The other side is `desa_ray/notebook.py`. Output folders are named by the time to the microsecond,
since several calls may begin within one second.
"""

import gc
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from threading import RLock
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig

from desa_ray.counting import counting
from desa_ray.crash import began
from desa_ray.error_boundary import error_boundary
from desa_ray.errors import DesaError
from desa_ray.experiment.listener import Listener
from desa_ray.experiment.places import store_root
from desa_ray.experiment.records import labels
from desa_ray.experiment.run import run_cells
from desa_ray.experiment.spec import CellSpec, Composed, cell_spec
from desa_ray.locks import STEPS, inside
from desa_ray.notebook import SWEEP_FLAGS, Progress
from desa_ray.parents import end_with_parent
from desa_ray.pipeline.estimates import Planned
from desa_ray.pipeline.feasible import check_feasible
from desa_ray.pipeline.stage import Stage
from desa_ray.places import working_folder

from .app import Summaries, hydra_app, output_folder
from .claims import outputs
from .given import check_used, distinct
from .planning import planned_stages
from .settings import spec_of

Answer = Callable[[Sequence[CellSpec], Path, bool], Any]


class Sending(Listener):
    """Sends every step to the caller."""

    def __init__(self, send: Callable[[Progress], None]):
        self.send = send
        self.going: dict[str, Progress] = {}

    def note(self, text: str) -> None:
        self.send(Progress("", text))

    def begin(self, stage: Stage, shards: int, stored: int) -> None:
        self._step(stage, Progress(stage.name, stage.label, stored, shards))

    def advance(self, stage: Stage) -> None:
        last = self.going[stage.key.digest]
        self._step(stage, Progress(last.stage, last.text, last.done + 1, last.total))

    def _step(self, stage: Stage, step: Progress) -> None:
        self.going[stage.key.digest] = step
        self.send(step)


def serve(descriptor: int, caller: int) -> None:
    """Answer one request of the process `caller`, then end."""
    end_with_parent(caller)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with Connection(descriptor) as line, suppress(OSError):
        line.send(_answer(line))
    gc.freeze()  # at exit Python would look through all of Ray and MLflow for garbage
    sys.exit(0)


def _answer(line: Connection) -> tuple[str, Any]:
    lock = RLock()  # steps may come from several threads

    def send(step: Progress) -> None:
        with inside(STEPS, lock), suppress(OSError):
            # a caller that was interrupted listens no more
            line.send(("progress", step))

    try:
        verb, overrides, config_dir = line.recv()
        began(verb, overrides)
        with error_boundary(f"desa_ray.{verb}"):
            working_folder()
            answer = _planned if verb == "plan" else _run(send)
            return "done", _composed(verb, overrides, config_dir, answer)
    except DesaError as error:
        return "failed", error
    except KeyboardInterrupt:
        hint = "run again: it continues from what is stored"
        return "failed", DesaError("the run was interrupted", hint=hint)
    except SystemExit as ended:
        return "failed", DesaError(f"ended with code {ended.code}", where="overrides")


def _composed(verb: str, overrides: Sequence[str], config_dir: str | None, answer: Answer) -> Any:
    """Compose the cells, and give what `answer` makes of them."""
    given: list[Any] = []

    def task(config: DictConfig) -> None:
        folder = output_folder()
        specs = [spec_of(config, folder)]
        check_used(specs)
        given.append(answer(specs, folder, False))

    specs: list[CellSpec] = []

    def sweep(cells: Sequence[Composed], folder: Path, earlier: Summaries) -> Summaries:
        own = [cell_spec(*cell) for cell in counting(cells, "reading cells")]
        check_used(own)
        specs.extend(own)  # after those of earlier batches
        given[:] = [answer(distinct(specs), folder, True)]
        return [*earlier, *({} for _ in cells)]

    hydra_app(verb, "config", arguments(overrides, config_dir), task, sweep=sweep)
    return given[0]


def arguments(overrides: Sequence[str], config_dir: str | None) -> list[str]:
    """The command line for these overrides: a sweep where one of them has several values."""
    plain = [text for text in overrides if text not in SWEEP_FLAGS]
    several = len(plain) < len(overrides) or any(map(_sweeps, plain))
    own_folder = () if config_dir is None else ("--config-dir", config_dir)
    return [*own_folder, *(["-m"] if several else []), *_folders(), *plain]


def _sweeps(text: str) -> bool:
    try:
        return OverridesParser.create().parse_override(text).is_sweep_override()
    except HydraException:
        return False  # Hydra says so itself


def _folders() -> list[str]:
    """Output folders as the command line has them, named more finely; later overrides win."""
    now = datetime.now()
    name = Path(now.strftime("%Y-%m-%d")) / now.strftime("%H-%M-%S-%f")
    places = {"hydra.run.dir": outputs() / name, "hydra.sweep.dir": outputs() / "sweeps" / name}
    return [f"{setting}={_quoted(str(place))}" for setting, place in places.items()]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
    return f'"{escaped}"'


def _run(send: Callable[[Progress], None]) -> Answer:
    def answer(specs: Sequence[CellSpec], folder: Path, several: bool) -> Any:
        if several:
            folder.mkdir(parents=True, exist_ok=True)
        summary = folder / "summary.json" if several else None
        cells = run_cells(specs, summary=summary, listener=Sending(send))
        folders = [spec.folder.absolute() for spec in specs]
        return folder.absolute(), cells, folders, store_root(specs[0].config.store)

    return answer


def _planned(specs: Sequence[CellSpec], folder: Path, several: bool) -> Any:
    del folder, several
    _, cells, stages = planned_stages(specs)
    todo = [planned.stage for planned in stages if planned.to_compute]
    check_feasible(todo, specs[0].config.cluster)
    return [labels(cell) for cell in cells], list(map(_row, stages))


def _row(planned: Planned) -> tuple[Any, ...]:
    stage = planned.stage
    left = (planned.items, planned.seconds, planned.bytes)
    return stage.name, stage.label, stage.key.digest, planned.state, planned.unit, *left
