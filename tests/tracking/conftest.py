"""A migrated SQLite tracking store for each test of the log."""

from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty, migrated store: making one takes seconds."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def uri(database: Path, tmp_path: Path) -> str:
    (tmp_path / "mlflow.db").write_bytes(database.read_bytes())
    return f"sqlite:///{tmp_path / 'mlflow.db'}"
