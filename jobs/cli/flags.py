"""A command line as Hydra's own parser reads it, and the parts of it that a verb does not accept.

Flags may be abbreviated, joined with `=`, or be anywhere; only the parser that is asked later
knows what they mean. Values typed on a command line are the user's own, but they end up in records,
tags and manifests: nothing in them is computed, least of all from the environment, which the shell
can do where it is seen.
"""

import argparse
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    Glob,
    Override,
    QuotedString,
    RangeSweep,
)
from hydra.errors import HydraException

from desa_ray.config import RunConfig
from desa_ray.config_check import leaves, names_of
from desa_ray.errors import DesaError, Problems
from desa_ray.lines import shown

from .arguments import escaped
from .hydra_errors import ordered
from .searching import searches

MAX_CELLS = 100_000
SUBMITTED = "submitted"  # what a submitted run composes where it arrives
OWN_FOLDER = "put GROUP/NAME.yaml files into a folder, and name it with --config-dir"
_REFERENCE = re.compile(r"\$\{[A-Za-z_.][\w.\[\]]*\}", re.ASCII)
# Output folders are named by the time, the sweep's own numbers, and where the user's outputs go.
_FOLDERS = re.compile(
    r"\$\{(now:[^${}]*|hydra:[\w.]+|oc\.env:\s*DESA_OUTPUTS\s*(,[^${}]*)?)\}", re.ASCII
)


def accepted(verb: str, config_name: str, arguments: Sequence[str]) -> argparse.Namespace:
    """The flags and overrides of a command line; raises DesaError where Hydra's parser would print
    its usage.

    Raises:
        Problems: everything by which files are composed, or values computed, that nothing has
            checked, and how to write it instead; or too many cells. What Hydra cannot parse is left
            for it to say.
    """
    parser = get_args_parser()
    parser.error = _refuse
    flags, unknown = parser.parse_known_args(ordered(arguments))
    if unknown:
        raise _no_flag(unknown[0], arguments)
    _check_flags(verb, flags, config_name)
    problems: list[DesaError] = []
    cells = 1.0
    for text in flags.overrides:
        values, found = _read(text)
        cells *= values
        problems += found
    if cells > MAX_CELLS and not searches(flags.overrides):  # a search lists no cells
        what = f"{cells:.3g} cells exceed the limit of a sweep ({MAX_CELLS})"
        problems.append(DesaError(what, where="-m", hint="split it into several"))
    if problems:
        raise Problems(problems)
    return flags


def _refuse(message: str) -> NoReturn:
    """The message of Hydra's parser as an error, such as `argument --info/-i: invalid choice: 'x'
    (choose from ...)`.
    """
    found = re.fullmatch(r"argument (\S+?)(?:/\S+)?: (.*?)(?: \((.*)\))?", message, re.DOTALL)
    flag, what, hint = found.groups() if found else ("", message, None)
    raise DesaError(escaped(what), where=flag, hint=escaped(hint or "`--help` lists the flags"))


def _no_flag(flag: str, arguments: Sequence[str]) -> DesaError:
    """The error of an argument with dashes that Hydra does not know; people mean settings by it."""
    name, equals, value = flag.partition("=")
    setting = name.lstrip("-").replace("-", "_")
    if not equals:
        following = (
            list(arguments)[list(arguments).index(flag) + 1 :][:1] if flag in arguments else []
        )
        value = next((text for text in following if "=" not in text), "VALUE")
    settings = names_of(RunConfig, []), leaves(RunConfig)
    found = [path for path in chain(*settings) if setting in (path, path.rpartition(".")[2])]
    hint = f"overrides are written {found[0]}={value}" if found else "`--help` lists the flags"
    return DesaError("no such flag", where=name, hint=hint)


def config_folder(arguments: Sequence[str]) -> Path | None:
    """The folder that --config-dir names, if the command line can be read at all."""
    parser = get_args_parser()
    parser.exit_on_error = False
    try:
        found = parser.parse_known_args(ordered(arguments))[0].config_dir
    except (argparse.ArgumentError, SystemExit):
        return None
    return None if found is None else Path(found)


def passed_on(flags: argparse.Namespace) -> list[str]:
    """The flags for Hydra: all but the folder of own files, which it gets from memory."""
    named = [
        (name, getattr(flags, name.replace("-", "_")))
        for name in ("config-name", "cfg", "package", "info")
    ]
    switches = ("resolve", "run", "multirun", "shell-completion", "hydra-help")
    return [
        *(text for name, value in named if value is not None for text in (f"--{name}", value)),
        *(f"--{name}" for name in switches if getattr(flags, name.replace("-", "_"))),
    ]


def _check_flags(verb: str, flags: argparse.Namespace, config_name: str) -> None:
    """Refuse flags by which files are composed, or objects loaded, that nothing has checked."""
    if flags.config_dir == "":
        raise DesaError(
            "no such folder", where="--config-dir ''", hint="name the folder that holds method/ ..."
        )
    if flags.config_path is not None:
        raise DesaError(
            "replaces the platform's own configuration", where="--config-path", hint=OWN_FOLDER
        )
    if flags.experimental_rerun is not None:
        hint = f"give the overrides again: desa {verb} KEY=VALUE"
        raise DesaError("loads objects from a file", where="--experimental-rerun", hint=hint)
    known = [config_name, *([SUBMITTED] if config_name == "config" else [])]
    if flags.config_name not in (None, *known):
        raise DesaError(
            f"desa {verb} does not compose it",
            where=f"--config-name {flags.config_name}",
            hint=OWN_FOLDER,
        )


def _read(text: str) -> tuple[float, list[DesaError]]:
    """How many values an override sweeps over, and what is wrong with it."""
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException:
        return 1, []
    except (ValueError, RecursionError) as error:  # Hydra lets Python's own limits through
        reason = "nested too deeply" if isinstance(error, RecursionError) else "a number too long"
        return 1, [DesaError(f"cannot be read: {reason}", where=shown(text))]
    return _choices(override.value()), [*_problems(text, override)]


def _choices(value: Any) -> float:
    """How many values an override sweeps over; Hydra would list them all before anybody counts."""
    if isinstance(value, ChoiceSweep):
        return len(value.list) or 1
    if isinstance(value, RangeSweep) and value.start is not None and value.stop is not None:
        return max(1.0, (value.stop - value.start) / (value.step or math.inf))
    return 1


def _problems(text: str, override: Override) -> Iterator[DesaError]:
    name = override.key_or_group
    if name == "hydra.searchpath" or name.startswith("hydra.searchpath."):
        yield DesaError("adds files that have not been checked", where=name, hint=OWN_FOLDER)
    if override.package is not None:
        hint = f"leave out @{override.package}"
        yield DesaError(
            "would put a choice into another group",
            where=f"{name}@{override.package}",
            hint=hint,
        )
    if isinstance(override.value(), list) and name in _groups():
        among = ",".join(map(str, _texts(override.value())))
        hint = f"to run a cell for each, write -m {name}={among}"
        yield DesaError(
            f"takes one choice, got {shown(text.partition('=')[2])}", where=name, hint=hint
        )
    values = [text, *_texts(override.value())]
    if any(map(_computed, map(_without_folders, values) if name.startswith("hydra.") else values)):
        hint = f'write the value; the shell can fill in a variable: {name}="$VARIABLE"'
        yield DesaError(
            f"{shown(text)} would be computed and end up in records and logs", where=name, hint=hint
        )


def _groups() -> set[str]:
    """The settings that are files of a group; Hydra would merge several of them into one."""
    return set(names_of(RunConfig, [])) - set(leaves(RunConfig))


def _without_folders(text: str) -> str:
    return _FOLDERS.sub("", text)


def _computed(text: str) -> bool:
    """Whether `text` holds more than plain references to settings."""
    return "${" in _REFERENCE.sub("", text)


def _texts(value: Any) -> Iterator[str]:
    """Every text within a parsed value, as Hydra's grammar unescaped it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, QuotedString):
        yield value.text
    elif isinstance(value, dict):
        yield from _each([*value.keys(), *value.values()])
    elif isinstance(value, list):
        yield from _each(value)
    elif isinstance(value, ChoiceSweep):
        yield from _each(value.list)
    elif isinstance(value, Glob):
        yield from _each([*value.include, *value.exclude])


def _each(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        yield from _texts(value)
