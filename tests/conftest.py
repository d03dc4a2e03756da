"""Fixtures shared by all tests: where the reference material lies, and an environment without any network."""

import os
from pathlib import Path

import pytest

from tests.desa_fixtures import collection, desa, refuse, scifact_slice, serial_sweep, small_slice, warm_home

__all__ = ["collection", "desa", "refuse", "scifact_slice", "serial_sweep", "small_slice", "warm_home"]

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

REPOSITORY = Path(__file__).resolve().parent.parent


# Fixtures that cost a process or a minute: their tests stay with one worker, so that each is made once.
COSTLY = ("serial_sweep", "in_lucene_process")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups tests by the costly fixture they use, for `pytest -n 2 --dist loadgroup`."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        group = next((name for name in COSTLY if name in names), item.path.stem)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with golden cases, collections and published numbers; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("DESA_SHARED", REPOSITORY.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"reference material not found: set DESA_SHARED (looked in {folder.name})")
    return folder
