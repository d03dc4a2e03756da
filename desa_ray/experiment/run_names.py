"""Names of a sweep's runs: every setting that the sweep varies, so that no two are equal."""

from collections.abc import Mapping, Sequence
from typing import Any

from desa_ray.experiment.build import Cell
from desa_ray.experiment.finish import cell_digest
from desa_ray.experiment.records import labels, result_config
from desa_ray.experiment.settings import cell_settings
from desa_ray.experiment.spec import flat

ALWAYS = ("dataset", "method", "kappa")
PLAIN = ("generator", "encoder")  # names that say themselves what they are of
LONGEST = 40  # characters of a setting's value
FURTHER = 3  # settings beyond the labels


def run_names(cells: Sequence[Cell]) -> list[str]:
    """One name per cell: data set, method and kappa, then the labels that vary; where that leaves
    two alike, the settings in which they differ, at last a piece of their hash.
    """
    named = [{**labels(cell), "draws": len(cell.fused)} for cell in cells]
    varying: list[str] = []
    for name in named[0]:
        values = {own[name] for own in named} - {None}
        if name not in (*ALWAYS, "draws") and len(values) > 1:
            varying.append(name)
    names: list[str] = []
    for own in named:
        parts = [own["dataset"], own["method"]]
        if own["kappa"] is not None:
            parts.append(f"k{own['kappa']}")
        for name in varying:
            if own[name] is not None:
                parts.append(str(own[name]) if name in PLAIN else f"{name} {own[name]}")
        names.append("/".join(parts))
    alike: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        alike.setdefault(name, []).append(number)
    for numbers in alike.values():
        if len(numbers) > 1:
            settings = [
                {"draws": named[number]["draws"]} | _settings(cells[number]) for number in numbers
            ]
            digests = [cell_digest(cells[number])[:8] for number in numbers]
            for number, words in zip(numbers, apart(settings, digests), strict=True):
                names[number] += f"/{words}"
    return names


def settings_apart(cells: Sequence[Cell]) -> list[dict[str, str]]:
    """For each cell, the values of the settings in which cells with equal labels differ: at most
    three settings, none of them longer than a column.
    """
    alike: dict[tuple, list[int]] = {}
    for number, cell in enumerate(cells):
        alike.setdefault(tuple(labels(cell).values()), []).append(number)
    several = [numbers for numbers in alike.values() if len(numbers) > 1]
    settings = {number: cell_settings(cells[number]) for numbers in several for number in numbers}
    differing: dict[str, None] = {}
    for numbers in several:
        known = {name for number in numbers for name in settings[number]}
        for name in sorted(known, key=lambda own: (own.count("."), len(own), own)):
            values = {settings[number].get(name, "-") for number in numbers}
            if len(values) > 1 and max(map(len, values)) <= LONGEST:
                differing[name] = None
    shown = list(differing)[:FURTHER]
    found: list[dict[str, str]] = [{} for _ in cells]
    for number, own in settings.items():
        found[number] = {name: own.get(name, "-") for name in shown}
    return found


def _settings(cell: Cell) -> dict[str, Any]:
    """What decides a cell's results, and its decoding by the names of settings."""
    decoding = {n: v for n, v in cell_settings(cell).items() if n.startswith("decoding.")}
    return flat(result_config(cell)) | decoding


def apart(settings: Sequence[Mapping[str, Any]], digests: Sequence[str]) -> list[str]:
    """What distinguishes settings: up to three names with their values, the shortest names first;
    the digests where three are not enough.
    """
    found = [""] * len(settings)
    known = {name for own in settings for name in own}
    used = 0
    for name in sorted(known, key=lambda own: (own.count("."), len(own), own)):
        values = [str(own.get(name, "-")) for own in settings]
        telling = len({*zip(found, values, strict=True)}) > len(set(found))
        if not telling or max(map(len, values)) > LONGEST or used == FURTHER:
            continue
        word = name.rpartition(".")[2]
        found = [
            f"{own}/{word} {value}" if own else f"{word} {value}"
            for own, value in zip(found, values, strict=True)
        ]
        used += 1
    if len(set(found)) == len(found):
        return found
    return [
        f"{own}/{digest}" if own else digest for own, digest in zip(found, digests, strict=True)
    ]
