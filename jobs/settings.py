"""Where things live, and the door between Hydra's configuration and the typed one."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from desa_ray.config import RunConfig, StoreConfig, TrackingConfig, parse
from desa_ray.credentials import refuse_credentials

RUN_KEYS = (
    "dataset",
    "encoder",
    "generator",
    "sparse",
    "method",
    "fusion",
    "evaluation",
    "cluster",
    "tracking",
    "store",
    "n_refs",
    "draws",
)


PATHS = (
    ("dataset", "path"),
    ("encoder", "path"),
    ("generator", "folder"),
    ("generator", "path"),
    ("sparse", "java_home"),
    ("store", "root"),
)
ADDRESSES = (
    ("dataset", "url"),
    ("generator", "base_url"),
    ("cluster", "address"),
    ("tracking", "uri"),
    ("store", "root"),
)


@dataclass(frozen=True)
class Order:
    """One cell to run: its configuration, the plain configuration as composed, and its output folder."""

    config: RunConfig
    plain: dict[str, Any]
    folder: Path


def home() -> Path:
    """`$DESA_HOME`, else `.desa` in the current folder: store, MLflow database, models, data sets."""
    return Path(os.environ.get("DESA_HOME") or ".desa").absolute()


def store_root(config: StoreConfig) -> str:
    return config.root or str(home() / "store")


def tracking_uri(config: TrackingConfig) -> str:
    return config.uri or f"sqlite:///{home() / 'mlflow.db'}"


def order_of(config: DictConfig, folder: Path) -> Order:
    """A composed configuration as a cell to run; every wrong or unknown value is reported at once."""
    own = OmegaConf.masked_copy(config, list(RUN_KEYS))
    plain: Any = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
    refuse_credentials((f"{group}.{name}", plain[group].get(name)) for group, name in ADDRESSES)
    for group, name in PATHS:
        # Workers have another working folder, so paths travel whole.
        if isinstance(value := plain[group].get(name), str) and "://" not in value:
            plain[group][name] = str(Path(value).expanduser().absolute())
    return Order(parse(plain), plain, folder)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings and lists as dotted names."""
    flattened: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flattened |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            flattened |= flat({str(number): item for number, item in enumerate(value)}, f"{prefix}{name}.")
        else:
            flattened[f"{prefix}{name}"] = value
    return flattened
