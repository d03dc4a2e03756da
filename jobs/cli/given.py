"""Overrides of the command line that a run would not use, and cells that are equal without them.

A value that somebody typed is used by a cell at least, or refused; experiments and other files may
set what only some of their cells use.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException

from desa_ray.config import RunConfig
from desa_ray.errors import DesaError, Problems, counted, listed
from desa_ray.experiment.spec import CellSpec
from desa_ray.experiment.unused import Unused, unused, used_settings
from desa_ray.lines import shown

from .console import note

PLAIN = ("ranking", "n_refs", "draws")  # settings that stand in no group
ALWAYS = {"draws": "1"}  # what a method without generated text has anyway
SEARCH = "hydra.sweeper."  # a sweep in batches: no batch knows what the others use


def check_used(specs: Sequence[CellSpec]) -> None:
    """Refuse values of the command line that no cell uses.

    Raises:
        Problems: each of them, and why it has no effect.
    """
    given = _typed()
    if not given or any(name.startswith(SEARCH) for name in given):
        return
    configs = {repr(spec.config): spec.config for spec in specs}
    left: dict[str, list[Unused]] = {}
    for number, found in enumerate(map(unused, configs.values())):
        for name in given if number == 0 else [*left]:
            reasons = [own for own in found if own.covers(name)]
            if reasons:
                left.setdefault(name, reasons)
            else:
                left.pop(name, None)
    problems = [
        DesaError(f"{shown(given[name])} has no effect: {why.why}", where=name, hint=why.hint)
        for name, (why, *_) in left.items()
        if ALWAYS.get(name) != given[name]
    ]
    if problems:
        raise Problems(problems)


def distinct(specs: Sequence[CellSpec]) -> list[CellSpec]:
    """The cells without those that are equal to an earlier one in everything that they use."""
    chosen = first_of_equals([spec.config for spec in specs])
    found = [specs[number] for number in dict.fromkeys(chosen)]
    if len(found) < len(specs):
        _tell(specs, chosen, len(found))
    return found


def of_each(
    specs: Sequence[CellSpec], summaries: Sequence[dict[str, Any]], earlier: int
) -> list[dict[str, Any]]:
    """The summaries of earlier batches and of distinct cells as one for each cell that was given;
    equal cells have the same.
    """
    chosen = first_of_equals([spec.config for spec in specs])
    own = dict(zip(dict.fromkeys(chosen), summaries[earlier:], strict=True))
    return [*summaries[:earlier], *(own[number] for number in chosen)]


def first_of_equals(configs: Sequence[RunConfig]) -> list[int]:
    """For each cell the number of the first one that is equal to it."""
    known: dict[tuple[tuple[str, str], ...], int] = {}
    return [known.setdefault(used_settings(own), number) for number, own in enumerate(configs)]


def _tell(specs: Sequence[CellSpec], chosen: Sequence[int], found: int) -> None:
    """Which settings made no difference between cells that are one."""
    names: dict[str, None] = {}
    given = _typed()
    for number, first in enumerate(chosen):
        if number != first:
            covered = unused(specs[number].config)
            for name in given:
                if any(own.covers(name) for own in covered):
                    names[name] = None
    why = f" ({listed(names)} has no effect on some)" if names else ""
    note(f"{counted(len(specs), 'cell')} given, {found} of them different{why}")


def _typed() -> dict[str, str]:
    """Name and value of every setting of this command, which `hydra_app` has checked."""
    flags, _ = get_args_parser().parse_known_args(sys.argv[1:])
    return dict(_given(flags.overrides))


def _given(overrides: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Dotted name and value of every setting that the overrides set, as they were typed."""
    for text in overrides:
        try:
            override = OverridesParser.create().parse_override(text)
        except HydraException:  # Hydra says so itself
            continue
        if override.type != OverrideType.DEL:
            yield from _leaves(override, text)


def _leaves(override: Override, text: str) -> Iterator[tuple[str, str]]:
    name, value = override.key_or_group, override.value()
    if "." in name or name in PLAIN:
        if value is not None:
            yield name, text.partition("=")[2]
    elif isinstance(value, Mapping):  # settings of a group, else the choice of one
        yield from ((f"{name}.{key}", str(own)) for key, own in value.items() if own is not None)
