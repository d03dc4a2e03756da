"""Runs a verb as a Hydra application: its failures become one-line errors, empty output folders are
removed.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from functools import update_wrapper
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from desa_ray.config import RunConfig
from desa_ray.credentials import has_credentials, refuse_credentials
from desa_ray.errors import DesaError
from desa_ray.experiment.places import home
from desa_ray.experiment.spec import Composed
from desa_ray.output import print_text

from .. import VERBS
from .claims import claim, outputs, release
from .completion import leave_out_verb, script
from .composition import Composer
from .config_folder import offered, read_folder
from .flags import accepted, passed_on
from .help import help_text
from .hydra_errors import worded
from .searching import searches, with_sweeper

CONFIG = "pkg://desa_ray.conf"
Summaries = list[dict[str, Any]]
# cells, the folder of the sweep, and the summaries of its earlier batches
Sweep = Callable[[Sequence[Composed], Path, Summaries], Summaries]
NOTES = {".hydra", "multirun.yaml"}  # what Hydra writes of its own accord


class HydraTask:
    """What Hydra calls with each composed configuration; its launcher finds here what a
    sweep does.
    """

    def __init__(self, verb: str, task: Callable[[DictConfig], None], sweep: Sweep | None):
        update_wrapper(self, task)
        self.task, self.sweep = task, sweep or _does_not_sweep(verb)
        self.failure: BaseException | None = None

    def __call__(self, config: DictConfig) -> None:
        # Hydra announces an exception of the task in its own words, with all overrides: it is kept
        # instead.
        try:
            claim(output_folder())
            self.task(config)
        except BaseException as error:
            self.failure = error

    def composer(self, loader: Any, config: DictConfig) -> Composer:
        """What composes the cells of a sweep with Hydra's loader."""
        return Composer(loader, config)

    def claim(self, folder: Path) -> None:
        """Take the sweep's folder for this process."""
        claim(folder)


def _does_not_sweep(verb: str) -> Sweep:
    """What a verb that takes one cell does with several."""

    def refused(*_: Any) -> Summaries:
        hint = "leave out -m, commas between values, and experiments that sweep"
        raise DesaError("this verb does not sweep", where=f"desa {verb}", hint=hint)

    return refused


def hydra_app(
    verb: str,
    config_name: str,
    arguments: list[str],
    task: Callable[[DictConfig], None],
    *,
    sweep: Sweep | None = None,
    kind: Any = RunConfig,
    further: Sequence[str] = (),
) -> int:
    """Compose `config_name` with the command line's overrides and call `task`; 0 on success.

    Args:
        sweep: what is done with the cells of a `-m` command, where the verb takes several.
        kind: the class whose fields are the settings, for hints about mistyped ones.
        further: top-level settings in addition to those.
    """
    if any(argument in ("-h", "--help") for argument in arguments):
        print_text(help_text(verb, arguments))
        return 0
    # Before Hydra, which writes the command line beside the results.
    refuse_credentials((argument.partition("=")[0], argument) for argument in arguments)
    flags = accepted(verb, config_name, arguments)
    if flags.shell_completion:
        text = script(flags.overrides, VERBS)
        if text is not None:
            print_text(text)
            return 0
        leave_out_verb()
    if searches(flags.overrides):
        flags.overrides = with_sweeper(verb, flags.overrides, flags.multirun)
    files = [] if flags.config_dir is None else read_folder(Path(flags.config_dir))
    sys.argv = [f"desa {verb}", *passed_on(flags), *flags.overrides]
    hydra_task = HydraTask(verb, task, sweep)
    # Hydra prints its own traceback and exits unless told otherwise; errors are ours to word.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    GlobalHydra.instance().clear()
    with _tidied(), offered(files):
        try:
            with _printed_safely() if flags.cfg or flags.info else nullcontext():
                hydra.main(version_base="1.3", config_path=CONFIG, config_name=config_name)(
                    hydra_task
                )()
            if hydra_task.failure is not None:
                raise hydra_task.failure
        except BrokenPipeError:
            raise
        except (HydraException, OmegaConfBaseException, YAMLError) as error:
            raise worded(error, verb, arguments, kind, further) from error
        except (
            OSError,
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            AssertionError,
            RecursionError,
        ) as error:
            if _ours(error.__traceback__):
                raise  # a fault of this program, to be seen whole
            raise worded(error, verb, arguments, kind, further) from error
    return 0


@contextmanager
def _printed_safely() -> Iterator[None]:
    """Hydra prints configurations as they are; here what it prints is escaped and secrets are
    hidden.
    """
    with redirect_stdout(StringIO()) as printed:
        yield
    print_text(printed.getvalue().removesuffix("\n"))


def output_folder() -> Path:
    """The folder Hydra made for this job."""
    from hydra.core.hydra_config import HydraConfig

    return Path(HydraConfig.get().runtime.output_dir)


def _ours(trace: TracebackType | None) -> bool:
    """Whether an exception came through code of a verb or of the platform, and not only through
    Hydra.
    """
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__"))
        if name.startswith("desa_ray.") and name not in (__name__, worded.__module__):
            return True
        trace = trace.tb_next
    return False


@contextmanager
def _tidied() -> Iterator[None]:
    """Removes output folders that hold nothing but Hydra's notes, and after a refusal an empty new
    home.
    """
    below, own = outputs(), home()
    kept = [folder for folder in (below, own, own / "store") if folder.exists()]
    try:
        yield
    except DesaError:
        for folder in (own / "store", own):
            if folder not in kept:
                _remove_empty(folder)
        raise
    finally:
        for folder in release():
            _tidy(folder, below, below in kept)


def _tidy(folder: Path, outputs: Path, keep_outputs: bool) -> None:
    for note in (*(folder / ".hydra").glob("*.yaml"), folder / "multirun.yaml"):
        with suppress(OSError):
            if any(
                map(
                    has_credentials, note.read_text(encoding="utf-8", errors="replace").splitlines()
                )
            ):
                note.unlink()  # Hydra writes the configuration before anybody checks it
    if not folder.is_dir() or {path.name for path in folder.iterdir()} - NOTES:
        return
    for note in (*(folder / ".hydra").glob("*.yaml"), folder / "multirun.yaml"):
        note.unlink(missing_ok=True)
    _remove_empty(folder / ".hydra")
    for place in (folder, *folder.parents):
        if outputs not in (place, *place.parents) and place != folder:
            return
        if place == outputs and keep_outputs:
            return
        if not _remove_empty(place):
            return


def _remove_empty(folder: Path) -> bool:
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()
