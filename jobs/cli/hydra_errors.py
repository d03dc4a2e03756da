"""Hydra's errors about command lines and YAML files that cannot be composed, reworded: what, where,
how to fix.
"""

import difflib
import re
import shlex
from collections.abc import Sequence
from typing import Any

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from desa_ray.config_check import leaves, names_of
from desa_ray.errors import DesaError, choices

VALUED = (
    *(
        "--config-path",
        "-cp",
        "--config-name",
        "-cn",
        "--config-dir",
        "-cd",
        "--cfg",
        "-c",
        "--package",
        "-p",
    ),
    "--experimental-rerun",
)
OUTPUT = (
    "set hydra.run.dir (a sweep: hydra.sweep.dir), or DESA_OUTPUTS, to a folder that can be created"
)


def ordered(arguments: Sequence[str]) -> list[str]:
    """The arguments with flags that take a value first: Hydra's parser wants all overrides side by
    side.
    """
    flags, rest = [], []
    waiting = iter(_joined(arguments))
    for argument in waiting:
        abbreviated = len(argument) > 2 and argument.startswith("--")
        if argument in VALUED or (
            abbreviated and any(flag.startswith(argument) for flag in VALUED)
        ):
            flags += [argument, *([value] if (value := next(waiting, None)) is not None else [])]
        else:
            (flags if argument.startswith("--config") else rest).append(argument)
    overrides = [argument for argument in rest if not argument.startswith("-")]
    return [*flags, *overrides, *(argument for argument in rest if argument.startswith("-"))]


def _joined(arguments: Sequence[str]) -> list[str]:
    """`--info defaults` as one argument; the value of --info may be left out."""
    joined: list[str] = []
    for argument in arguments:
        word = not argument.startswith("-") and "=" not in argument
        if joined and joined[-1] in ("--info", "-i") and word:
            joined[-1] = f"--info={argument}"
        else:
            joined.append(argument)
    return joined


def worded(
    error: Exception, verb: str, arguments: Sequence[str], kind: Any, further: Sequence[str]
) -> DesaError:
    """The error of a composition as one for the user.

    Args:
        kind: the class whose fields are the settings.
        further: top-level settings in addition to those.
    """
    if isinstance(error, OverrideParseException):
        return _unparsed(error, arguments)
    if isinstance(error, MissingConfigException):
        return _missing_choice(error)
    if isinstance(error, OSError):
        return DesaError(
            f"cannot be created: {error.strerror or error}",
            where=str(error.filename or ""),
            hint=OUTPUT,
        )
    message = str(error)
    if found := re.search(
        r"Could not (override|append to config|delete from config)\D*?'([^']+)'", message
    ):
        return _wrong_key(message, found[2], arguments, kind, further)
    if "Could not append to config. An item is already at" in message:
        return _wrong_key(message, message.split("'")[1], arguments, kind, further)
    if "group override must be a string" in message:
        single = leaves(kind)
        unnamed = [
            a for a in arguments if re.fullmatch(r"[\w/@]+=(null|true|false|[0-9.]*|\{.*)", a)
        ]
        empty = next((a for a in unnamed if a.partition("=")[0] not in single), "")
        return DesaError(
            "is not a choice", where=empty, hint=f"name one; `desa {verb} --help` lists them"
        )
    if sampled := re.search(r"does not support sweep type : (\w+)_SWEEP", message):
        kind_ = sampled[1].lower()
        given = next((a for a in arguments if f"{kind_}(" in a), kind_)
        hint = "an interval needs a sweeper that samples; use range(...) or choice(...)"
        return DesaError("is not a list of values", where=given, hint=hint)
    if several := re.search(
        r"(?:argument|parameters) '(.+?)'( requires --multirun|$)", message, re.M
    ):
        return _needs_sweep(several[1], kind)
    if merged := re.match(r"Error merging override ([^\n]+)", message):
        reason = _one_line(error.__cause__) if error.__cause__ is not None else "no such place"
        hint = f"`desa {verb} --cfg job` prints all settings"
        return DesaError(f"cannot be set: {reason}", where=merged[1].strip(), hint=hint)
    if isinstance(error, OmegaConfBaseException) and error.full_key:
        return DesaError(
            _one_line(error),
            where=error.full_key,
            hint=f"`desa {verb} --cfg job` prints all settings",
        )
    return DesaError(_one_line(error), hint=f"`desa {verb} --help` lists the choices")


def _needs_sweep(given: str, kind: Any) -> DesaError:
    """The error of several values without -m."""
    if re.search(r"\binterval\(", given):
        hint = (
            "an interval needs a sweeper that samples: -m objective=ndcg_at_10 (or use range(...))"
        )
        return DesaError("is not a value", where=given, hint=hint)
    name, _, value = given.partition("=")
    hint = "add -m to run a cell for each"
    if "(" not in value and name in leaves(kind):
        hint += f"; a list is written {shlex.quote(f'{name}=[{value}]')}"
    return DesaError("has several values, which is a sweep", where=given, hint=hint)


def _one_line(error: BaseException) -> str:
    """What was said, without the places where Hydra looked and other asides."""
    text = re.split(r"\n\s*(?:Config search path|Search path|provider=)", str(error))[0]
    lines = [line.strip() for line in text.splitlines()]
    drop = (
        "full_key",
        "object_type",
        "See https",
        "Set the environment variable",
        "To append to your config use",
    )
    return (
        " ".join(line for line in lines if line and not line.startswith(drop))
        or type(error).__name__
    )


def _longer(key: str, kind: Any) -> list[str]:
    """The settings anywhere that the last part of a key may mean, at most three."""
    name = key.rpartition(".")[2].lower()
    known = leaves(kind)
    ends = {path: path.rpartition(".")[2] for path in known}
    same = [path for path in known if ends[path].lower() == name]
    near = difflib.get_close_matches(name, set(ends.values()), n=1, cutoff=0.75)
    return (same or [path for path in known if ends[path] in near])[:3]


def _unparsed(error: OverrideParseException, arguments: Sequence[str]) -> DesaError:
    text = error.override
    name, equals, value = text.partition("=")
    if not equals:
        hint = "write KEY=VALUE"
    elif name != name.strip() or value != value.strip():
        hint = f"leave out the spaces around =: {shlex.quote(f'{name.strip()}={value.strip()}')}"
    elif value[:1] in tuple("[{\"'("):
        hint = 'close every bracket and quote, and quote texts within: \'name=["a b","c"]\''
    else:
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        hint = "quote the value: " + shlex.quote(f'{name}="{quoted}"')
    return DesaError(f"cannot be read: {_why(error.message)}", where=text, hint=hint)


def _why(message: str) -> str:
    """Hydra's reason without its parser's class, the override once more, and the address of a
    manual.
    """
    line = " ".join(message.partition("See https")[0].split())
    if "missing EQUAL" in line:
        return "there is no ="
    if "LexerNoViableAlt" in line or "token recognition" in line:
        return "a character that needs quotes"
    return re.sub(r"^Error parsing override '.*?' (?=\w)", "", line)


def _missing_choice(error: MissingConfigException) -> DesaError:
    name = error.missing_cfg_file
    if name is None or "/" not in name:
        return DesaError(_one_line(error), hint="check --config-dir and --config-name")
    group, _, choice = str(name).rpartition("/")
    if not error.options:
        return DesaError(
            f"there are no choices for {group!r}", where=f"{group}={choice}", hint="leave it out"
        )
    return DesaError(
        f"no {group} {choice!r}", where=group, hint=choices(choice, sorted(error.options), 60)
    )


def _wrong_key(
    message: str, key: str, arguments: Sequence[str], kind: Any, further: Sequence[str]
) -> DesaError:
    given = next((a for a in arguments if a.lstrip("+~").split("=", 1)[0] == key), f"{key}=VALUE")
    if "already at" in message:
        return DesaError(
            "is already set", where=given, hint=f"leave out the +: {shlex.quote(given.lstrip('+'))}"
        )
    *place, name = key.split(".")
    known = names_of(kind, place) + (list(further) if not place else [])
    if (
        name in known
        or (place and name.isdigit())
        or (len(place) > 1 and place[-1] in ("options", "map"))
    ):
        what = "is a setting that the chosen file leaves out"
        return DesaError(
            what, where=key, hint=f"add it with a +: {shlex.quote('+' + given.lstrip('+~'))}"
        )
    if key == "experiment":
        return DesaError("is added, not replaced", where=key, hint=f"write +{given.lstrip('+~')}")
    top = [*names_of(kind, []), *further]
    if not known and place and place[0] not in top:
        known, name = top, place[0]
    hint = choices(name, known, 50) if known else "`desa run --cfg job` prints all settings"
    if "did you mean" not in hint and (longer := _longer(key, kind)):
        value = given.partition("=")[2]
        written = [shlex.quote(f"{one}={value}") for one in longer]
        hint = f"did you mean {' or '.join(written)}?"
    return DesaError("no such setting", where=key, hint=hint)
