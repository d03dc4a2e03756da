"""Locations: the home, the store and the tracking store of a configuration."""

from desa_ray.config import StoreConfig, TrackingConfig
from desa_ray.errors import DesaError
from desa_ray.places import home
from desa_ray.tracking.sqlite_uri import sqlite_uri

DATABASE = "mlflow.db"  # of MLflow, in the home
SEARCHES = "searches.db"  # of Optuna, in the home


def store_root(config: StoreConfig) -> str:
    """Where the store is. Raises DesaError for a file system of this process's own memory."""
    root = config.root or str(home() / "store")
    if root.partition("://")[0] == "memory":
        hint = "set it to a folder, or to an object store such as s3://bucket/path"
        raise DesaError(
            f"{root} exists in one process only: no worker sees it, and it disappears with the run",
            where="store.root",
            hint=hint,
        )
    return root


def tracking_uri(config: TrackingConfig) -> str:
    """Where runs are logged: as configured, else the home's own database."""
    return config.uri or sqlite_uri(home() / DATABASE)


def search_storage() -> str:
    """The database of searches; its folder is made."""
    try:
        home().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot be created: {error.strerror or error}"
        raise DesaError(what, where=str(home()), hint="set DESA_HOME to another folder") from None
    return sqlite_uri(home() / SEARCHES)
