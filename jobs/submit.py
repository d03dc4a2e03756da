"""Send a run to a Ray cluster as a job and follow it (overrides of `desa run`, and submit.*).

Every cell is composed and checked here first, so wrong overrides are refused before anything is
sent. Then the same overrides are sent as they were typed, with the YAML files of --config-dir, and
nothing else. Paths mean the cluster's disks and must be absolute. Ctrl-C detaches: the job
continues, and `desa submit submit.job=ID` follows it again.
"""

import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from desa_ray.config_check import checked
from desa_ray.credentials import refuse_credentials
from desa_ray.errors import DesaError, Problems
from desa_ray.experiment.checks import setting_problems
from desa_ray.experiment.spec import PATHS, CellSpec, Composed, cell_spec
from desa_ray.plugins import Identity
from desa_ray.printable import printable_lines
from desa_ray.stages.plugged import named_plugins
from desa_ray.tracking.sqlite_uri import sqlite_file

from .cli.app import Summaries, hydra_app
from .cli.arrival import VARIABLE, expectation
from .cli.composition import Plain, plain_of
from .cli.config_folder import read_folder
from .cli.console import note
from .cli.given import check_used

CONFIG_FOLDER = "conf"
HINT_PATH = "give an absolute path on a disk that all nodes share"


@dataclass(frozen=True, config=ConfigDict(extra="forbid", coerce_numbers_to_str=True))
class SubmitConfig:
    """Where a run is sent, and what happens then; see conf/submit.yaml."""

    address: str | None = None
    home: str | None = None
    command: str = "desa"
    follow: bool = True
    job: str | None = None


class _Composed:
    """What Hydra composed from the command line, cell by cell."""

    def __init__(self):
        self.settings: list[SubmitConfig] = []
        self.plugins: dict[str, Identity] = {}

    def add(self, configs: Iterable[Plain]) -> None:
        """Check cells; raises `Problems` with everything wrong in any of them."""
        problems: dict[str, DesaError] = {}
        specs: list[CellSpec] = []
        for config in configs:
            self.settings.append(_settings(config))
            spec = cell_spec(config, Path(), ("submit",))
            specs.append(spec)
            found = [*_relative(config), *setting_problems(spec.config)]
            for problem in found:
                problems.setdefault(str(problem), problem)
            if not found:
                self.plugins |= named_plugins(spec.config)
        if problems:
            raise Problems(problems.values())
        check_used(specs)


_composed = _Composed()


def _settings(config: Plain) -> SubmitConfig:
    try:
        return checked(SubmitConfig, config["submit"])
    except Problems as found:
        raise Problems(
            DesaError(problem.what, where=f"submit.{problem.where}", hint=problem.hint)
            for problem in found.problems
        ) from None


def _relative(config: Plain) -> list[DesaError]:
    """Paths that would mean another place on the cluster than here."""
    found = {f"{group}.{name}": config[group].get(name) for group, name in PATHS}
    found["submit.home"] = config["submit"]["home"]
    if database := sqlite_file(str(config["tracking"].get("uri"))):
        found["tracking.uri"] = str(database)
    return [
        DesaError(
            f"{value!r} is not a path that all nodes resolve to the same place",
            where=name,
            hint=HINT_PATH,
        )
        for name, value in found.items()
        if isinstance(value, str) and "://" not in value and not Path(value).is_absolute()
    ]


def _sweep(cells: Sequence[Composed], folder: Path, earlier: Summaries) -> Summaries:
    """The cells of a `-m` command, checked together; nothing runs here."""
    del folder
    _composed.add(cell.settings for cell in cells)
    return [*earlier, *({} for _ in cells)]


def _task(config: DictConfig) -> None:
    _composed.add([plain_of(config)])


def main(arguments: list[str]) -> int:
    """`desa submit [-m] [--config-dir D] [overrides]`; returns the job's exit code, 130 after
    Ctrl-C.
    """
    parser = get_args_parser()
    parser.prog = "desa submit"
    flags = parser.parse_intermixed_args(arguments)
    if flags.help or flags.hydra_help or flags.cfg or flags.info or flags.shell_completion:
        return hydra_app("submit", "submit", arguments, _task, sweep=_sweep, further=("submit",))
    for name in ("config_name", "config_path", "experimental_rerun"):
        if getattr(flags, name) is not None:
            raise DesaError(
                "cannot be sent to the cluster",
                where=f"--{name.replace('_', '-')}",
                hint="drop it",
            )
    options = [
        *(["--multirun"] if flags.multirun else []),
        *(["--config-dir", flags.config_dir] if flags.config_dir is not None else []),
    ]
    _composed.settings.clear()
    _composed.plugins.clear()
    with tempfile.TemporaryDirectory(prefix="desa-submit-") as scratch:
        here = [
            f"hydra.run.dir={scratch}",
            f"hydra.sweep.dir={scratch}",
            "hydra.output_subdir=null",
        ]
        hydra_app(
            "submit",
            "submit",
            [*options, *flags.overrides, *here],
            _task,
            sweep=_sweep,
            further=("submit",),
        )
    settings = _composed.settings[0]
    if any(other != settings for other in _composed.settings):
        raise DesaError(
            "one submission has one target", where="submit", hint="do not sweep over submit.*"
        )
    return _submit(
        settings, flags.multirun, flags.config_dir, _travelling(flags.overrides, settings)
    )


def _travelling(overrides: Sequence[str], settings: SubmitConfig) -> list[str]:
    """The overrides that are the run's, as they were typed."""
    kept = []
    for text, override in zip(
        overrides, OverridesParser.create().parse_overrides(list(overrides)), strict=True
    ):
        if override.key_or_group.startswith("submit."):
            continue
        refuse_credentials([(str(override.key_or_group), text)])
        value = str(override.value())
        if override.key_or_group in ("hydra.run.dir", "hydra.sweep.dir") and not value.startswith(
            ("/", "${")
        ):
            raise DesaError(
                f"{value!r} is not a path that all nodes resolve to the same place",
                where=override.key_or_group,
                hint=HINT_PATH,
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DesaError(
                "is not UTF-8", where=override.key_or_group, hint="set a UTF-8 locale"
            ) from None
        kept.append(text)
    if settings.job is not None and kept:
        raise DesaError(
            f"only follows a job, so {kept[0]} cannot be sent",
            where="submit.job",
            hint="leave out one of them",
        )
    return kept


def _submit(
    settings: SubmitConfig, multirun: bool, config_folder: str | None, overrides: Sequence[str]
) -> int:
    """Send the run, or find the one sent before, and follow it."""
    from desa_ray.cluster.ray_job import RayJobs, job_server

    jobs = RayJobs(job_server(settings.address))
    job = settings.job
    if job is None:
        command = [
            settings.command,
            "run",
            "--config-name",
            "submitted",
            *(["--multirun"] if multirun else []),
        ]
        with ExitStack() as stack:
            folder = None
            if config_folder is not None:
                folder = Path(
                    stack.enter_context(tempfile.TemporaryDirectory(prefix="desa-submit-"))
                )
                _copy_configuration(Path(config_folder), folder / CONFIG_FOLDER)
                command += ["--config-dir", CONFIG_FOLDER]
            job = jobs.send([*command, *overrides], _environment(settings), folder)
        note(f"sent as job {job} to {jobs.address}")
    again = f"desa submit submit.job={job} submit.address={jobs.address}"
    if not settings.follow:
        note(f"follow it: {again}")
        return 0
    try:
        return jobs.follow(job, _write)
    except KeyboardInterrupt:
        note(
            f"detached: the job continues. Follow it: {again}; end it: ray job stop --address"
            f" {jobs.address} {job}"
        )
        return 130


def _write(text: str) -> None:
    """What the job printed, piece by piece, as it may be shown here: the cluster's output is not
    trusted.
    """
    sys.stdout.write(printable_lines(text))
    sys.stdout.flush()


def _environment(settings: SubmitConfig) -> dict[str, str]:
    """What the job gets in addition to its command line; credentials are set on the nodes and never
    sent.
    """
    variables = {VARIABLE: expectation(_composed.plugins)}
    if home := settings.home or os.environ.get("DESA_HOME"):
        if not Path(home).is_absolute() or "$" in home:
            raise DesaError(
                f"{home!r} is not a path that all nodes resolve to the same place",
                where="DESA_HOME",
                hint=HINT_PATH,
            )
        variables["DESA_HOME"] = home
    return variables


def _copy_configuration(folder: Path, target: Path) -> None:
    """The YAML files of a configuration folder as they were checked, and nothing else in it."""
    target.mkdir()
    for file in read_folder(folder):
        path = target / file.group / f"{file.name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(file.data)
