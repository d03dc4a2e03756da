"""Composes the cells of a sweep: once per combination of configuration groups, then plain values
on top.

Hydra takes about a tenth of a second to compose one configuration, and most cells of a large sweep
differ in plain values alone. A cell takes the short way only where it must give what Hydra gives:
its overrides choose groups or set existing plain values, and nothing refers to anything else.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf, open_dict

Plain = dict[str, Any]
NUMBERED = "${hydra.job.num}"
KEY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


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
        self._parsed: dict[str, tuple[Override, bool]] = {}
        self._composed: dict[tuple[str, ...], DictConfig] = {}
        self._bases: dict[tuple[str, ...], Plain | None] = {}
        below: Any = OmegaConf.to_container(master.hydra.sweep, resolve=False)
        self._numbered = below["subdir"] == NUMBERED

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """The configuration of a cell as Hydra composes it; of cells with a short way, that of
        their groups alone.
        """
        groups, values = self._split(overrides)
        if values and self._base(groups) is not None and self._applied(groups, values) is not None:
            return self._composed[groups]
        return self._whole(tuple(overrides))

    def cell(self, overrides: Sequence[str]) -> Plain:
        """The settings of a cell, without those of Hydra, every reference resolved.

        Cells share the values that they have in common: they are for reading.
        """
        groups, values = self._split(overrides)
        applied = self._applied(groups, values)
        return plain_of(self._whole(tuple(overrides))) if applied is None else applied

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

    def _split(self, overrides: Sequence[str]) -> tuple[tuple[str, ...], list[Override]]:
        """The overrides that choose groups, and the others in their order."""
        groups, values = [], []
        for text in overrides:
            override, is_group = self._parse(text)
            if is_group:
                groups.append(text)
            else:
                values.append(override)
        return tuple(groups), values

    def _parse(self, text: str) -> tuple[Override, bool]:
        if text not in self._parsed:
            override = self._parser.parse_overrides([text])[0]
            is_group = self._repository.group_exists(override.key_or_group)
            self._parsed[text] = override, is_group and not isinstance(override.value(), dict)
        return self._parsed[text]

    def _base(self, groups: tuple[str, ...]) -> Plain | None:
        """What these groups compose to; None where it refers to other values or lacks some."""
        if groups not in self._bases:
            raw = OmegaConf.to_container(_without_hydra(self._whole(groups)), resolve=False)
            assert isinstance(raw, dict)
            self._bases[groups] = {str(key): raw[key] for key in raw} if _is_plain(raw) else None
        return self._bases[groups]

    def _applied(self, groups: tuple[str, ...], values: Sequence[Override]) -> Plain | None:
        """The base of the groups with plain values on top; None where Hydra must do it."""
        if not all(map(_sets_a_plain_value, values)):
            return None
        settings = self._base(groups)
        for override in values:
            if settings is not None:
                settings = _set(settings, override.key_or_group.split("."), override.value())
        return settings


def plain_of(config: DictConfig) -> Plain:
    """The settings of a composed configuration, without those of Hydra, references resolved.

    Raises:
        MissingMandatoryValue: a value is `???`.
    """
    plain: Any = OmegaConf.to_container(_without_hydra(config), resolve=True, throw_on_missing=True)
    return plain


def _without_hydra(config: DictConfig) -> DictConfig:
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


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
