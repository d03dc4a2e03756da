"""From plain mappings to the typed configuration, with one line for every wrong value.

pydantic finds what is wrong; here it is reported in our own words, with the names that would be
valid.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import (
    TypeAdapter,
    ValidationError,
)

from desa_ray.config_values import NAME
from desa_ray.errors import DesaError, Problems, choices, listed

Config = TypeVar("Config")


def checked(kind: type[Config], values: Mapping[str, Any]) -> Config:
    """Plain nested mappings to any of these classes; raises `Problems` with one line for every
    wrong value.
    """
    try:
        return _adapter(kind).validate_python(dict(values))
    except ValidationError as error:
        raise Problems(_problem(kind, issue) for issue in _joined(error.errors())) from None


def _joined(issues: Iterable[Any]) -> list[Any]:
    """One issue per place: of a value that may be a word or a number, pydantic tells one for each,
    with steps like `literal['all']` in the place.
    """
    found: dict[tuple[Any, ...], Any] = {}
    for issue in issues:
        loc = tuple(step for step in issue["loc"] if not re.search(r"[\[(]", str(step)))
        if loc in found and loc != issue["loc"]:
            found[loc]["msg"] += f"; or: {issue['msg']}"
        else:
            found[loc] = {**issue, "loc": loc or issue["loc"]}
    return list(found.values())


@lru_cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _problem(kind: Any, issue: Any) -> DesaError:
    """One finding of pydantic in our words."""
    *place, name = issue["loc"]
    where = ".".join(map(str, issue["loc"]))
    if "unexpected" in issue["type"]:
        return DesaError(
            "no such setting", where=where, hint=choices(name, names_of(kind, place), 50)
        )
    if issue["type"] == "missing":
        return DesaError(
            "is missing", where=where, hint="set it, or leave out the override that removes it"
        )
    hint = ""
    what = issue["msg"].removeprefix("Value error, ")
    if issue["type"] == "string_too_short":
        hint = "give a name, or leave it out (null)"
    elif issue["type"] == "tuple_type" and not isinstance(issue["input"], dict):
        what, hint = (
            "should be a list",
            f"write a single value as a list: {where}=[{issue['input']}]",
        )
    elif issue["type"] == "string_pattern_mismatch" and issue["ctx"]["pattern"] == NAME:
        what = "a name begins with a letter or digit and has only letters, digits, _ . and -"
    elif (
        issue["type"] == "string_pattern_mismatch"
        and issue["input"]
        and not issue["input"].isprintable()
    ):
        hint = "leave out control characters"
    return DesaError(f"{what}, got {listed([repr(issue['input'])])[:200]}", where=where, hint=hint)


def class_of(kind: Any) -> Any:
    """The class with settings in a type that also allows null; any other type as it is."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return next((own for own in get_args(kind) if is_dataclass(own)), kind)


def leaves(kind: Any, prefix: str = "") -> list[str]:
    """The dotted names of all settings below a class, those of lists and free mappings left out."""
    found = []
    hints = get_type_hints(kind)
    for own in fields(kind):
        name = f"{prefix}{own.name}"
        inner = class_of(hints[own.name])
        found += leaves(inner, f"{name}.") if is_dataclass(inner) else [name]
    return found


def names_of(kind: Any, place: Sequence[int | str]) -> list[str]:
    """The keys that the class at a place within `kind` has; none where there is no class (a text, a
    free mapping).
    """
    for step in place:
        if isinstance(step, int) or str(step).isdigit():
            kind = next(iter(get_args(kind)), None)
        else:
            kind = class_of(get_type_hints(kind).get(str(step))) if is_dataclass(kind) else None
    return [own.name for own in fields(kind)] if is_dataclass(kind) else []
