"""Where things live, and the door between Hydra's configuration and the typed one."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from desa_ray.config import RunConfig, StoreConfig, TrackingConfig, parse
from desa_ray.credentials import refuse_credentials
from desa_ray.errors import DesaError, Problems, choices

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
    "ranking",
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
FREE_TEXTS = ("dataset.queries", "encoder.query_prefix")  # ids and words, which may look like anything


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
    """Where the store lies. Raises DesaError for a file system of this process's own memory."""
    root = config.root or str(home() / "store")
    if root.partition("://")[0] == "memory":
        mend = "set it to a folder, or to an object store such as s3://bucket/path"
        raise DesaError(
            f"{root} lives in one process: no worker sees it, and it ends with the run", where="store.root", mend=mend
        )
    return root


def tracking_uri(config: TrackingConfig) -> str:
    return config.uri or f"sqlite:///{home() / 'mlflow.db'}"


def order_of(config: DictConfig, folder: Path, further: Sequence[str] = ()) -> Order:
    """A composed configuration as a cell to run; every wrong or unknown value is reported at once.

    Args:
        config: as Hydra composed it.
        folder: where the cell's files go.
        further: top-level keys that the verb reads itself.
    """
    unknown = [str(key) for key in config if key not in (*RUN_KEYS, *further, "hydra")]
    own = OmegaConf.masked_copy(config, [key for key in RUN_KEYS if key in config])
    plain: Any = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
    refuse_credentials(addresses(config))
    for group, name in PATHS:
        # Workers have another working folder, so paths travel whole. An empty one is left to be refused.
        if (value := _text(plain, group, name)) and "://" not in value and "\0" not in value:
            plain[group][name] = str(Path(value).expanduser().absolute())
    problems = [DesaError("no such setting", where=key, mend=choices(key, [*RUN_KEYS, *further])) for key in unknown]
    try:
        parsed = parse(plain)
    except Problems as found:
        raise Problems([*problems, *found.problems]) from None
    if problems:
        raise Problems(problems)
    return Order(parsed, plain, folder)


def addresses(config: DictConfig) -> Iterator[tuple[str, str]]:
    """(name, value) of every setting that is text, and so could be an address with a password."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    for name, value in flat(plain).items():
        if name.startswith(("hydra.", *FREE_TEXTS)):
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str):
                yield name, item


def _text(plain: Mapping[str, Any], group: str, name: str) -> str | None:
    """The text at `group.name`, or None where there is none."""
    values = plain.get(group)
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if isinstance(value, str) else None


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
