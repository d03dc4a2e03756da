"""The plots that a sweep logs with its parent run: depths, effectiveness against depth, and a curve
over every swept number.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from desa_ray.errors import DesaError
from desa_ray.files import whole

FOLDER = "plots"
MOST_CELLS = 200  # records of more take gigabytes and minutes
RESAMPLES = 1000


def write_plots(records: Sequence[Path], folder: Path, note: Callable[[str], None]) -> list[Path]:
    """Write `plots/NAME.svg` below a sweep's folder; returns what was written.

    Args:
        records: a `records.parquet` per cell.
        folder: of the sweep.
        note: told why there are none, where cells cannot be compared or are too many.
    """
    if not records:
        return []
    if len(records) > MOST_CELLS:
        note(f"no plots of more than {MOST_CELLS} cells are logged: `desa report` draws them")
        return []
    try:
        return _written(_drawn(records), folder / FOLDER)
    except DesaError as error:
        note(f"no plots are logged: {error}")
    except OSError as error:
        note(f"no plots are logged: {error.strerror or error}: {folder / FOLDER}")
    return []


def _written(drawn: Mapping[str, str], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, svg in drawn.items():
        with whole(folder / f"{name}.svg") as temporary:
            temporary.write_text(svg, encoding="utf-8")
    return [folder / f"{name}.svg" for name in drawn]


def _drawn(records: Sequence[Path]) -> dict[str, str]:
    # Reports read and draw with libraries that a run does not need
    from desa_ray.core.statistics.sampling import Sampling
    from desa_ray.report.curves import axis_figures, corpus_figure
    from desa_ray.report.depth_figure import depth_figure
    from desa_ray.report.load import read_records
    from desa_ray.report.pareto import pareto_figure
    from desa_ray.report.study import Study

    study, sampling = Study(read_records(records)), Sampling(RESAMPLES)
    figures = [depth_figure(study), pareto_figure(study, sampling)]
    figures += [*axis_figures(study, sampling), corpus_figure(study, sampling)]
    return {own.name: own.svg.render(standalone=True) for own in figures if own is not None}
