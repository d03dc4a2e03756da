"""What a YAML file in --config-dir may contain: an allow-list of keys, references and defaults,
group by group.

Such a folder may come from somebody else, and Hydra lets a file do much: make objects, set
environment variables, read them, add folders to its search path, write anywhere. So a file sets
keys of its own group's schema and nothing else; an experiment sets our keys in any group, and
what it sweeps over. A value may refer to one of our own keys, and to nothing that is computed. What
hands over control of this machine is set on the command line only (`BY_HAND`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from desa_ray.config import RunConfig
from desa_ray.config_check import class_of
from desa_ray.errors import choices, listed
from desa_ray.lines import has_lone_surrogate, shown
from desa_ray.path_names import why_not
from desa_ray.report.published import KEYS

from .safe_yaml import Place

KINDS: Mapping[str, Any] = get_type_hints(RunConfig)
GROUPS = tuple(name for name, kind in KINDS.items() if is_dataclass(class_of(kind)))
EXPERIMENT, EXPECTED, COMPARE = "experiment", "expected", "compare"
# Groups whose files speak of all settings, not of their own group's
GLOBAL = (
    EXPERIMENT,
    EXPECTED,
)
EXPECTATION = ("overrides", "metric", "value", "tolerance", "source")
DIFFERS = "differs"  # why a value stands beside and need not hold; may be left out
PUBLISHED = ("name", "setting", "queries", *KEYS)
BY_HAND: Mapping[str, str] = {
    "cluster.address": "a server at that address could send objects that this program runs",
    "generator.api_key_env": "it names a secret that is sent to a server",
    "sparse.java_home": "programs are loaded from there",
    "store.root": "results are written there",
    "tracking.uri": "results are sent there",
}
PLAIN = "write the value itself, or refer to a setting: ${fusion.kappa}"
REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*(?:\.\w+)*)\}", re.ASCII)
SWEPT = re.compile(r"[A-Za-z0-9_.+/-]+")  # a value of a sweep: a choice, a number, a word


@dataclass(frozen=True)
class Fault:
    """Something that a file must not say, at the place of its document where it says it."""

    place: Place
    what: str
    hint: str


def faults(group: str, value: Any) -> Iterator[Fault]:
    """Everything in the document `value` that a file of `group` must not say; `defaults` aside."""
    if group == EXPERIMENT:
        yield from _experiment(value)
    elif group == EXPECTED:
        yield from _keys((), value, (EXPECTED,))
        yield from _expectations(value.get(EXPECTED))
    elif group == COMPARE:
        yield from _keys((), value, PUBLISHED)
        yield from _free((), value)
    else:
        yield from _typed((), KINDS[group], value)
        yield from _by_hand((), group, value)


def default_faults(group: str, defaults: Any, others: bool) -> Iterator[Fault]:
    """What a file's `defaults` must not say: they name files of its own group, an experiment's
    override other groups.

    Args:
        others: whether the file also sets anything itself, which Hydra would silently drop without
            `_self_`.
    """
    place: Place = ("defaults",)
    if not isinstance(defaults, list):
        yield Fault(place, "defaults are a list", f"write a list of names of {group}")
        return
    for number, item in enumerate(defaults):
        if isinstance(item, str) and (item == "_self_" or why_not(item) is None):
            continue
        overridden = _overridden(item) if group == EXPERIMENT else None
        if overridden is None or overridden in map(_overridden, defaults[:number]):
            entry = (
                "NAME, _self_ or `override /GROUP: NAME`"
                if group == EXPERIMENT
                else "NAME or _self_"
            )
            yield Fault(
                (*place, number),
                f"{_entry(item)} is not a default of a file of {group}",
                f"write {entry}, once",
            )
    if others and any(isinstance(item, str) for item in defaults) and "_self_" not in defaults:
        yield Fault(place, "the file's own settings would be lost", "add _self_ below the names")


def _overridden(item: Any) -> str | None:
    """The group that an entry `override /GROUP: NAME` is about."""
    if not isinstance(item, dict) or len(item) != 1:
        return None
    key, choice = next(iter(item.items()))
    group = key.removeprefix("override /")
    fits = group != key and group in GROUPS and isinstance(choice, str) and why_not(choice) is None
    return group if fits else None


def _entry(item: Any) -> str:
    return shown(
        ": ".join(map(str, next(iter(item.items()))))
        if isinstance(item, dict) and len(item) == 1
        else str(item)
    )


def _typed(place: Place, kind: Any, value: Any) -> Iterator[Fault]:
    """Where keys and shape of `value` are not those of the class `kind`."""
    kind = _bare(kind)
    if isinstance(value, dict) and is_dataclass(kind):
        hints = get_type_hints(kind)
        yield from _keys(place, value, [own.name for own in fields(kind)])
        for name in value.keys() & hints.keys():
            yield from _typed((*place, name), hints[name], value[name])
    elif isinstance(value, dict) and get_origin(kind) is dict:
        for name, item in value.items():
            if why := why_not(name):
                yield Fault(
                    (*place, name), f"{shown(name)}: {why}", "use letters, digits, . _ and -"
                )
            yield from _typed((*place, name), get_args(kind)[1], item)
    elif isinstance(value, list) and get_origin(kind) is tuple:
        for number, item in enumerate(value):
            yield from _typed((*place, number), get_args(kind)[0], item)
    elif isinstance(value, dict | list):
        what = f"holds {'names with values' if isinstance(value, dict) else 'a list'}"
        yield Fault(place, what, "write a single value" if place else "write NAME: VALUE lines")
    else:
        yield from _scalar(place, value)


def _bare(kind: Any) -> Any:
    """The class of a type with alternatives that has parts, where there is one."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return next(
        (own for own in get_args(kind) if is_dataclass(own) or get_origin(own) in (dict, tuple)),
        None,
    )


def _keys(place: Place, value: Any, known: Sequence[str]) -> Iterator[Fault]:
    if not isinstance(value, dict):
        yield Fault(
            place,
            f"holds a {type(value).__name__}, not names with values",
            "write NAME: VALUE lines",
        )
        return
    for name in value:
        if name not in known:
            yield Fault(
                (*place, name), f"no such setting: {_shown_key(name)}", choices(name, known, 50)
            )


def _shown_key(name: str) -> str:
    return name if why_not(name) is None else shown(name)


def _scalar(place: Place, value: Any) -> Iterator[Fault]:
    if not isinstance(value, str):
        return
    if has_lone_surrogate(value):
        yield Fault(place, f"{shown(value)} has no UTF-8 form", "write valid Unicode")
    elif "${" in value:
        yield from _reference(place, value)


def _reference(place: Place, value: str) -> Iterator[Fault]:
    """One reference per value, to one of our settings: it can be followed, but nothing can be
    computed or multiplied.
    """
    found = REFERENCE.findall(value)
    if len(found) != 1 or set(REFERENCE.sub("", value)) & set("${}\\"):
        yield Fault(place, f"{shown(value)} is more than a reference to one setting", PLAIN)
    elif not _is_value(_kind_at(found[0].split("."))):
        yield Fault(place, f"{shown(value)} refers to no setting with a value", PLAIN)


def _kind_at(steps: Sequence[str]) -> Any:
    """The type of the setting that these steps lead to; None where they lead to none."""
    kind: Any = RunConfig
    for step in steps:
        kind = _bare(kind)
        if is_dataclass(kind):
            kind = get_type_hints(kind).get(step)
        elif get_origin(kind) is tuple and step.isdigit():
            kind = get_args(kind)[0]
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
        else:
            return None
    return kind


def _is_value(kind: Any) -> bool:
    """Whether settings of this type are single values; what has parts could be made a part of
    itself.
    """
    own = _bare(kind)
    return kind is not None and not is_dataclass(own) and get_origin(own) not in (dict, tuple)


def _by_hand(place: Place, group: str, value: Any) -> Iterator[Fault]:
    for name, why in BY_HAND.items():
        own, _, key = name.partition(".")
        if own == group and isinstance(value, dict) and value.get(key) is not None:
            hint = f"leave it out, and give it on the command line: {name}=..."
            yield Fault((*place, key), f"{name} is not for a file: {why}", hint)


def _free(place: Place, value: Any) -> Iterator[Fault]:
    """Nested plain data under any plain names."""
    if isinstance(value, dict):
        for name, item in value.items():
            if "$" in name or not name.isprintable():
                yield Fault(
                    (*place, name),
                    f"{shown(name)} is not a plain name",
                    "leave out $ and control characters",
                )
            yield from _free((*place, name), item)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _free((*place, number), item)
    elif isinstance(value, str) and ("${" in value or has_lone_surrogate(value)):
        yield Fault(place, f"{shown(value)} is not a plain text", "write the value itself")


def _experiment(value: Mapping[str, Any]) -> Iterator[Fault]:
    yield from _keys((), value, (*KINDS, "hydra"))
    for name, kind in KINDS.items():
        if name in value:
            yield from _typed((name,), kind, value[name])
            yield from _by_hand((name,), name, value[name])
    if "hydra" in value:
        yield from _sweep(value["hydra"])


def _sweep(hydra: Any) -> Iterator[Fault]:
    """All that an experiment says to Hydra: that it is a sweep, and over what."""
    hint = (
        "an experiment sets hydra.mode and hydra.sweeper.params or grids; other settings go on the"
        " command line"
    )
    if not isinstance(hydra, dict):
        yield Fault(("hydra",), "holds no names with values", hint)
        return
    for name, item in hydra.items():
        if name == "mode" and item not in ("RUN", "MULTIRUN"):
            yield Fault(
                ("hydra", "mode"), f"{shown(str(item))} is not a mode", "write RUN or MULTIRUN"
            )
        elif name == "sweeper" and isinstance(item, dict) and list(item) == ["params"]:
            yield from _params(("hydra", "sweeper", "params"), item["params"])
        elif name == "sweeper" and isinstance(item, dict) and list(item) == ["grids"]:
            yield from _grids(("hydra", "sweeper", "grids"), item["grids"])
        elif name != "mode":
            yield Fault(("hydra", name), f"hydra.{_shown_key(name)} is not for a file", hint)


def _grids(place: Place, grids: Any) -> Iterator[Fault]:
    """Several products of choices, each like `params`."""
    if not isinstance(grids, list):
        yield Fault(place, "holds no list", "write one `- NAME: VALUE,VALUE` item per grid")
        return
    for number, params in enumerate(grids):
        yield from _params((*place, number), params)


def _params(place: Place, params: Any) -> Iterator[Fault]:
    if not isinstance(params, dict):
        yield Fault(place, "holds no names with values", "write NAME: VALUE,VALUE lines")
        return
    for name, values in params.items():
        if why := _no_setting(name):
            yield Fault((*place, name), *why)
        if isinstance(values, dict | list) or not all(
            SWEPT.fullmatch(one.strip()) for one in str(values).split(",")
        ):
            what = f"{shown(str(values))} is not a list of plain values"
            yield Fault(
                (*place, name), what, "separate them by commas, without quotes: original,desa"
            )


def _no_setting(name: str) -> tuple[str, str] | None:
    """Why a file must not choose or set what `name` names on a command line, and the hint."""
    if name in BY_HAND:
        return (
            f"{name} is not for a file: {BY_HAND[name]}",
            f"give it on the command line: {name}=...",
        )
    if _kind_at(name.split(".")) is not None:
        return None
    return f"no such setting: {_shown_key(name)}", choices(name, KINDS)


def _expectations(rows: Any) -> Iterator[Fault]:
    hint = f"write a list of {', '.join(EXPECTATION)}"
    if not isinstance(rows, list):
        yield Fault((EXPECTED,), "is not a list of expectations", hint)
        return
    for number, row in enumerate(rows):
        place = (EXPECTED, number)
        yield from _keys(place, row, (*EXPECTATION, DIFFERS))
        if not isinstance(row, dict):
            continue
        if missing := [name for name in EXPECTATION if name not in row]:
            yield Fault(place, f"lacks {listed(missing)}", hint)
        for name in ("metric", "source", DIFFERS):
            if name in row and not isinstance(row[name], str):
                yield Fault((*place, name), "is not a text", "write a text")
        for name in ("value", "tolerance"):
            if name in row and (
                isinstance(row[name], bool) or not isinstance(row[name], int | float)
            ):
                yield Fault((*place, name), "is not a number", "write a number")
        yield from _free(place, {name: row[name] for name in row if name != "overrides"})
        yield from _overrides((*place, "overrides"), row.get("overrides", []))


def _overrides(place: Place, overrides: Any) -> Iterator[Fault]:
    """Overrides in a file choose and set our own keys, each to one plain value or a list
    of some.
    """
    hint = "write a list of NAME=VALUE, such as fusion.kappa=20 or evaluation.measures=[AP,R@100]"
    if not isinstance(overrides, list):
        yield Fault(place, "is not a list", hint)
        return
    for number, text in enumerate(overrides):
        name, equals, value = str(text).partition("=")
        values = value[1:-1].split(",") if value[:1] == "[" and value[-1:] == "]" else [value]
        plain = all(re.fullmatch(r"[A-Za-z0-9_.+/@-]+", one.strip()) for one in values)
        if not isinstance(text, str) or not equals or not plain:
            yield Fault((*place, number), f"{shown(str(text))} sets no plain value", hint)
        elif why := _no_setting(name):
            yield Fault((*place, number), *why)
