"""Composes the cells of a sweep: once per combination of configuration groups, then plain values
on top.

Hydra takes about a tenth of a second to compose one configuration, and most cells of a large sweep
differ in plain values alone. Everything else of a cell's overrides (choices of groups, mappings,
`+`, `~`) is composed by Hydra as its base. A cell takes the short way only where it must give what
Hydra gives: its plain values exist in the base, outside what other overrides touch, and nothing
refers to anything else.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

Plain = dict[str, Any]
NUMBERED = "${hydra.job.num}"
KEY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
PATH = re.compile(r"\w+(\.\w+)*")


class _Parsed(NamedTuple):
    override: Override
    is_group: bool
    plain: bool  # it sets one value that means nothing but itself


class Composer:
    """Composes cells with Hydra's own loader and remembers what they share.

    Args:
        loader: Hydra's configuration loader.
        master: the configuration of the whole sweep, as the loader composed it.
    """

    def __init__(self, loader: Any, master: DictConfig):
        self._load = loader.load_sweep_config
        self._master, self._repository = master, loader.repository
        self._parser = OverridesParser.create()
        self._parsed: dict[str, _Parsed] = {}
        self._composed: dict[tuple[str, ...], DictConfig] = {}
        self._bases: dict[tuple[str, ...], Plain | None] = {}
        below: Any = OmegaConf.to_container(master.hydra.sweep, resolve=False)
        self._numbered = below["subdir"] == NUMBERED

    def cell(self, overrides: Sequence[str]) -> Plain:
        """The settings of a cell, without those of Hydra, every reference resolved: those of its
        base, with its plain values on top; everything is of the base where the order of both could
        matter.

        Cells share the values that they have in common: they are for reading.
        """
        base, others, values = [], [], []
        for text in overrides:
            parsed = self._parse(text)
            if parsed.plain:
                values.append(parsed.override)
                continue
            base.append(text)
            if not parsed.is_group:
                others.append(parsed.override.key_or_group)
        if _touch(others, values):
            base, values = overrides, []
        settings = self._base(tuple(base))
        for override in values:
            if settings is not None:
                settings = _set(settings, override.key_or_group.split("."), override.value())
        return plain_of(self._whole(tuple(overrides))) if settings is None else settings

    def folder(self, overrides: Sequence[str], number: int) -> Path:
        """The folder of cell `number` below that of the sweep."""
        if self._numbered:
            return Path(str(number))
        config = self._whole(tuple(overrides))
        with open_dict(config):
            config.hydra.job.id, config.hydra.job.num = str(number), number
        return Path(str(config.hydra.sweep.subdir))

    def _whole(self, overrides: tuple[str, ...]) -> DictConfig:
        if overrides not in self._composed:
            self._composed[overrides] = self._load(self._master, list(overrides))
        return self._composed[overrides]

    def _parse(self, text: str) -> _Parsed:
        if text not in self._parsed:
            override = self._parser.parse_overrides([text])[0]
            is_group = self._repository.group_exists(override.key_or_group)
            is_group = is_group and not isinstance(override.value(), dict)
            plain = not is_group and _sets_a_plain_value(override)
            self._parsed[text] = _Parsed(override, is_group, plain)
        return self._parsed[text]

    def _base(self, overrides: tuple[str, ...]) -> Plain | None:
        """What these overrides compose to; None where it refers to other values, lacks some, or
        cannot be composed: the whole cell then says why.
        """
        if overrides not in self._bases:
            self._bases[overrides] = None
            with suppress(ConfigCompositionException, OmegaConfBaseException):
                raw = OmegaConf.to_container(_without_hydra(self._whole(overrides)), resolve=False)
                assert isinstance(raw, dict)
                if _is_plain(raw):
                    self._bases[overrides] = {str(key): raw[key] for key in raw}
        return self._bases[overrides]


def plain_of(config: DictConfig) -> Plain:
    """The settings of a composed configuration, without those of Hydra, references resolved.

    Raises:
        MissingMandatoryValue: a value is `???`.
    """
    plain: Any = OmegaConf.to_container(_without_hydra(config), resolve=True, throw_on_missing=True)
    return plain


def _without_hydra(config: DictConfig) -> DictConfig:
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def _touch(others: Sequence[str], values: Sequence[Override]) -> bool:
    """Whether one of the other keys is, or may be, within a plain value's key or around it."""
    if not all(map(PATH.fullmatch, others)):
        return True
    paths = [(*value.key_or_group.split("."),) for value in values]
    for other in others:
        path = (*other.split("."),)
        if any(path[: len(one)] == one[: len(path)] for one in paths):
            return True
    return False


def _is_plain(value: Any) -> bool:
    """Whether nothing in it is a reference or missing."""
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return not (isinstance(value, str) and ("${" in value or value == "???"))


def _sets_a_plain_value(override: Override) -> bool:
    """Whether it is `key=value` with a value that means nothing but itself."""
    if override.type != OverrideType.CHANGE or override.package is not None:
        return False
    key, value = override.key_or_group, override.value()
    if not KEY.fullmatch(key) or key.split(".", 1)[0] == "hydra":
        return False
    items = value if isinstance(value, list) else [value]
    simple = all(item is None or type(item) in (bool, int, float, str) for item in items)
    return simple and _is_plain(items)


def _set(settings: Plain, path: Sequence[str], value: Any) -> Plain | None:
    """A copy of `settings` with one existing value replaced; None where there is none such, or a
    group of values. Everything outside the path is shared.
    """
    name, *below = path
    if name not in settings:
        return None
    old = settings[name]
    if below:
        new = _set(old, below, value) if isinstance(old, dict) else None
        return None if new is None else {**settings, name: new}
    return None if isinstance(old, dict) else {**settings, name: value}
