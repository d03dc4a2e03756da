"""Every method in one sweep on a slice of the demo."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from tests.desa_fixtures import dataset, once, run_desa, summaries

DRAWS = 1


@dataclass(frozen=True)
class MethodsSweep:
    """The methods experiment: summaries and records by method, in a folder with its own home."""

    folder: Path
    cells: dict[str, dict]
    records: dict[str, pl.DataFrame]


@pytest.fixture(scope="session")
def methods_sweep(
    serial_sweep: Path, demo_slice: Path, tmp_path_factory: pytest.TempPathFactory
) -> MethodsSweep:
    """Every method on a slice of the demo, run once for all tests."""

    def run(folder: Path) -> None:
        shutil.copytree(serial_sweep / "home", folder / "home")
        arguments = [
            "-m",
            "+experiment=methods",
            *dataset(demo_slice),
            f"draws={DRAWS}",
            "cluster=serial",
        ]
        done = run_desa(folder, folder / "home", "run", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr

    folder = once(tmp_path_factory, "methods", run)
    cells = summaries(folder)
    (root,) = folder.glob("outputs/sweeps/*/*")
    records = {
        cell["method"]: pl.read_parquet(root / str(n) / "records.parquet")
        for n, cell in enumerate(cells)
    }
    return MethodsSweep(folder, {cell["method"]: cell for cell in cells}, records)
