"""Figures for print: SVG, PDF and PNG in one style, at the width of a column or of a page.

Matplotlib is imported here only, when a figure is written. It draws by its objects (no pyplot), in
its own defaults whatever the user's matplotlibrc says, with the fonts that it brings, embedded; no
date, host or random id enters a file, so equal drawings give equal bytes.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

from desa_ray.report.drawings import Drawing
from desa_ray.report.painters import WIDTH_IN, Columns, paint

Kind = Literal["svg", "pdf", "png"]
DPI = 300
STYLE: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.grid": False,
    "grid.color": "#d9dee4",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.1,
    "lines.markersize": 4,
    "text.parse_math": False,  # a dollar in a name begins no mathematics
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "report",
}
NO_METADATA: Mapping[Kind, Mapping[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


def write_figures(
    drawings: Mapping[str, Drawing], folder: Path, kinds: Sequence[Kind], columns: Columns
) -> list[Path]:
    """Write `NAME.KIND` for every drawing; returns the paths."""
    if not kinds or not drawings:
        return []
    written = []
    with styled():
        for name, drawing in drawings.items():
            figure = drawn(drawing, columns)
            figure.draw_without_rendering()  # lays it out, once for all kinds
            figure.set_layout_engine("none")
            for kind in kinds:
                path = folder / f"{name}.{kind}"
                figure.savefig(path, format=kind, dpi=DPI, metadata=cast(Any, NO_METADATA[kind]))
                written.append(path)
    return written


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib's defaults and this style within; what the user has set is back afterwards."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of signs in names that the font lacks
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(cast(Any, STYLE))
        yield


def drawn(drawing: Drawing, columns: Columns) -> Any:
    """A figure of the width of one column or two, within `styled`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN[columns], 2.0), layout="constrained")
    FigureCanvasAgg(figure)
    paint(drawing, figure, columns)
    return figure
