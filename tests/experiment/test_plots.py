"""The plots that a sweep logs with its parent run."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from desa_ray.experiment import plots
from desa_ray.experiment.plots import write_plots
from tests.report.made_up import cell


def _written(folder: Path, **cells) -> list[Path]:
    """The files of cells as a sweep writes them: `own=dict(...)` for each."""
    files = []
    for name, labels in cells.items():
        path = folder / name / "records.parquet"
        path.parent.mkdir()
        cell("scifact", **labels).write_parquet(path)
        files.append(path)
    return files


def _texts(path: Path) -> set[str]:
    return {found.text for found in ElementTree.fromstring(path.read_text()).iter() if found.text}


def test_a_sweep_over_methods_and_kappa_has_its_plots(tmp_path):
    """Pictures that need nothing beside them; they name methods and values."""
    files = _written(
        tmp_path,
        a={"method": "original", "kappa": "20"},
        b={"method": "original", "kappa": "60"},
        c={"method": "mine", "kappa": "20"},
        d={"method": "mine", "kappa": "60"},
    )
    notes: list[str] = []
    made = write_plots(files, tmp_path, notes.append)
    assert (sorted(path.name for path in made), notes) == (
        ["depths.svg", "kappa.svg", "pareto.svg"],
        [],
    )
    assert {path.parent for path in made} == {tmp_path / "plots"}
    depths, kappa, pareto = sorted(made)
    assert {"Original", "mine"} <= _texts(depths)
    assert {"20", "60", "mine"} <= _texts(kappa)
    assert {"Original", "mine"} <= _texts(pareto)
    for path in made:
        assert "http" not in path.read_text().replace("http://www.w3.org/2000/svg", "")


def test_cells_without_depths_have_no_plot(tmp_path):
    only = _written(tmp_path, a={"method": "bm25"})
    shallow = cell("scifact", "bm25").with_columns(depth_dense=None)
    shallow.write_parquet(only[0])
    assert write_plots(only, tmp_path, pytest.fail) == []
    assert write_plots([], tmp_path, pytest.fail) == []


def test_cells_that_cannot_be_compared_are_told(tmp_path):
    """The sweep is finished: a note, not an error."""
    files = _written(
        tmp_path, a={"method": "original"}, b={"method": "desa", "queries": ["q1", "q2"]}
    )
    notes: list[str] = []
    assert write_plots(files, tmp_path, notes.append) == []
    assert "no plots are logged" in notes[0]
    assert "queries" in notes[0]


def test_a_folder_that_takes_no_plots_is_told(tmp_path):
    files = _written(tmp_path, a={"method": "original"}, b={"method": "desa"})
    (tmp_path / "plots").write_text("in the way")
    notes: list[str] = []
    assert write_plots(files, tmp_path, notes.append) == []
    assert str(tmp_path / "plots") in notes[0]


def test_very_many_cells_are_left_to_the_report(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "MOST_CELLS", 1)
    notes: list[str] = []
    assert write_plots([tmp_path / "a", tmp_path / "b"], tmp_path, notes.append) == []
    assert "desa report" in notes[0]
