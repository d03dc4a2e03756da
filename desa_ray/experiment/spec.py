"""The specification of one cell: its typed configuration, the plain one it was made from, its
output folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from desa_ray.config import RunConfig
from desa_ray.config_check import parse
from desa_ray.errors import DesaError, Problems

RUN_KEYS = tuple(field.name for field in fields(RunConfig))
PATHS = (
    ("dataset", "path"),
    ("encoder", "path"),
    ("generator", "folder"),
    ("generator", "path"),
    ("sparse", "java_home"),
    ("sparse", "impacts"),
    ("sparse", "tokenizer"),
    ("sparse", "token_weights"),
    ("store", "root"),
)


@dataclass(frozen=True)
class CellSpec:
    """One cell to run: its configuration, the plain configuration as composed, and its output
    folder.
    """

    config: RunConfig
    plain: dict[str, Any]
    folder: Path


def cell_spec(plain: dict[str, Any], folder: Path, problems: Sequence[DesaError] = ()) -> CellSpec:
    """A plain configuration as a cell to run; every wrong or unknown value is reported at once.

    Args:
        plain: nested mappings with the keys of `RunConfig`; paths in it become absolute.
        folder: where the cell's files go.
        problems: what was found wrong with it already.
    """
    plain = {**plain}
    for group, name in PATHS:
        # Workers have another working folder, so paths travel whole. An empty one is left to be
        # refused.
        if (value := _text(plain, group, name)) and "://" not in value and "\0" not in value:
            plain[group] = {**plain[group], name: str(Path(value).expanduser().absolute())}
    try:
        parsed = parse(plain)
    except Problems as found:
        raise Problems([*problems, *found.problems]) from None
    if problems:
        raise Problems(problems)
    return CellSpec(parsed, plain, folder)


def _text(plain: Mapping[str, Any], group: str, name: str) -> str | None:
    """The text at `group.name`, or None where there is none."""
    values = plain.get(group)
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if isinstance(value, str) else None


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings and lists as dotted names."""
    flattened: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flattened |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            numbered = {str(number): item for number, item in enumerate(value)}
            flattened |= flat(numbered, f"{prefix}{name}.")
        else:
            flattened[f"{prefix}{name}"] = value
    return flattened
