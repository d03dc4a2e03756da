"""The specification of one cell: its typed configuration, the plain one it was made from, its
output folder.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from desa_ray.config import RunConfig
from desa_ray.config_check import checked
from desa_ray.credentials import refuse_credentials
from desa_ray.errors import DesaError, Problems, choices

RUN_KEYS = tuple(field.name for field in fields(RunConfig))
PARITY = "parity"  # top-level key of the group of that name: what `desa report` takes from it
# Ids and words, which may look like anything
FREE_TEXTS = (
    "dataset.queries",
    "encoder.query_prefix",
    "prompt.system",
    "prompt.user",
    "prompt.source",
)
PATHS = (
    ("dataset", "path"),
    ("encoder", "path"),
    ("generator", "folder"),
    ("generator", "path"),
    ("sparse", "java_home"),
    ("sparse", "impacts"),
    ("sparse", "path"),
    ("sparse", "tokenizer"),
    ("sparse", "token_weights"),
    ("sparse", "document_texts"),
    ("sparse", "query_vectors"),
    ("store", "root"),
)


class Composed(NamedTuple):
    """A cell as it was composed: its settings, without those of Hydra, and its output folder."""

    settings: dict[str, Any]
    folder: Path


@dataclass(frozen=True)
class CellSpec:
    """One cell to run: its configuration, the plain configuration as composed, and its output
    folder.
    """

    config: RunConfig
    plain: dict[str, Any]
    folder: Path


def cell_spec(settings: Mapping[str, Any], folder: Path, further: Sequence[str] = ()) -> CellSpec:
    """Composed settings as a cell to run; every wrong or unknown value is reported at once.

    Args:
        settings: nested mappings with the keys of `RunConfig`; paths in it become absolute.
        folder: where the cell's files go.
        further: top-level keys that the verb reads itself.
    """
    refuse_credentials(addresses(settings))
    known = [*RUN_KEYS, *further]
    problems = [
        DesaError("no such setting", where=key, hint=choices(key, known))
        for key in settings
        if key not in (*known, PARITY)
    ]
    plain = {key: settings[key] for key in RUN_KEYS if key in settings}
    for group, name in PATHS:
        # Workers have another working folder, so paths travel whole. An empty one is left to be
        # refused.
        if (value := _text(plain, group, name)) and "://" not in value and "\0" not in value:
            plain[group] = {**plain[group], name: str(Path(value).expanduser().absolute())}
    try:
        parsed = checked(RunConfig, plain)
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


def addresses(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, value) of every setting that is text, and so could be an address with a password."""
    for name, value in flat(settings).items():
        if name.startswith(FREE_TEXTS):
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str):
                yield name, item


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
