"""Defaults of a report: the setting of its main tables, and its roles.

The main tables take the first value of each setting, in the order in which the records came (a
sweep's cells in the order of its command line), unless `primary.*` names another. The subject is
the first method that is not in the paper, else the paper's own, else the first other than the
reference; its baselines are all other methods with two channels.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from desa_ray.errors import DesaError, Problems, choices, listed
from desa_ray.report.cells import RecordedCell, number_of
from desa_ray.report.names import STAND_IN
from desa_ray.report.paper import METHODS, PAPER
from desa_ray.report.roles import Roles

DEPTHS = ("depth_dense", "depth_sparse")


def chosen_value(
    cells: Sequence[RecordedCell], axis: str, asked: object, *, usual: bool
) -> tuple[object, list[object]]:
    """The value of one setting that the main tables take, and the others that there are.

    Args:
        cells: of the report.
        axis: a label or a setting in which cells differ.
        asked: the value that was named, or None.
        usual: choose as the paper's preset: kappa 60, most references, else what most cells have.

    Raises:
        DesaError: no cell has the value asked for.
    """
    ordered = [cell.value(axis) for cell in sorted(cells, key=lambda cell: cell.place)]
    ordered = [value for value in ordered if value is not None]
    counts = Counter(ordered)
    known = sorted(counts, key=lambda value: (number_of(value), str(value)))
    if asked is not None:
        found = next((value for value in known if str(value) == str(asked)), None)
        if found is None:
            raise DesaError(
                f"no cell has {axis} {asked}",
                where=f"primary.{axis}",
                hint=f"there are: {listed(known)}",
            )
    elif not usual:
        found = next(iter(ordered), None)
    elif axis == "n_refs":
        found = max(counts, default=None)
    elif axis == "kappa" and "60" in counts:
        found = "60"
    else:
        found = max(known, key=lambda value: counts[value], default=None)
    return found, [value for value in known if value != found]


def chosen_roles(asked: Roles, cells: Sequence[RecordedCell]) -> Roles:
    """The roles asked for, with what was not named taken from the cells.

    Raises:
        Problems: methods that are named and not there.
    """
    ordered = sorted(cells, key=lambda cell: cell.place)
    there = list(dict.fromkeys(cell.method for cell in ordered))
    absent_ones = PAPER.named() if asked.main == PAPER.main else ()  # a preset leaves them out
    problems = []
    for name in asked.named():
        if name not in there and name not in absent_ones:
            hint = choices(name, sorted(there), 40)
            problems.append(
                DesaError(f"no records of method {listed([name])}", where="report", hint=hint)
            )
    if problems:
        raise Problems(problems)
    two = {cell.method for cell in cells if two_channels(cell)}
    reference = asked.reference or (PAPER.reference if PAPER.reference in there else None)
    wanted = asked.subject if asked.subject in there else None
    subject = wanted or _subject([name for name in there if name != reference] or there, two)
    beside = (name for name in (*asked.baselines, *there) if name != subject)
    reference = reference or next(beside, None)
    usual = replace(PAPER, main=()) if subject == PAPER.subject else Roles()
    others = [name for name in there if name in two and name not in (subject, reference)]
    everyone = [*([reference] if reference and reference != subject else []), *others]
    return Roles(
        subject=subject,
        baselines=asked.baselines or usual.baselines or everyone,
        reference=reference,
        parts=asked.parts or usual.parts,
        ablations=asked.ablations or usual.ablations,
        main=asked.main,
        inner=asked.inner or usual.inner,
        families=asked.families,
        all_pairs=asked.all_pairs,
    )


def two_channels(cell: RecordedCell) -> bool:
    """Whether the cell's records have the depth of a dense and of a sparse ranking."""
    return all(cell.records[column].null_count() < cell.records.height for column in DEPTHS)


def _subject(there: Sequence[str], two: set[str]) -> str | None:
    candidates = [name for name in there if name in two] or list(there)
    own = [name for name in candidates if name.partition(STAND_IN)[0] not in METHODS]
    if own:
        return own[0]
    return PAPER.subject if PAPER.subject in candidates else next(iter(candidates), None)
