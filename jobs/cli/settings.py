"""From Hydra's configuration to the typed one."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from desa_ray.counting import counting
from desa_ray.credentials import refuse_credentials
from desa_ray.errors import DesaError, choices
from desa_ray.experiment.spec import RUN_KEYS, CellSpec, cell_spec, flat

from .composition import Plain, plain_of

PARITY = "parity"  # top-level key of the group of that name: what `desa report` takes from it
# Ids and words, which may look like anything
FREE_TEXTS = (
    "dataset.queries",
    "encoder.query_prefix",
    "prompt.system",
    "prompt.user",
    "prompt.source",
)


def spec_of(config: DictConfig | Plain, folder: Path, further: Sequence[str] = ()) -> CellSpec:
    """A composed configuration as a cell to run; every wrong or unknown value is reported at once.

    Args:
        config: as Hydra composed it, or plain settings.
        folder: where the cell's files go.
        further: top-level keys that the verb reads itself.
    """
    unknown = [str(key) for key in config if key not in (*RUN_KEYS, *further, PARITY, "hydra")]
    settings = plain_of(config) if isinstance(config, DictConfig) else config
    refuse_credentials(addresses(settings))
    known = [*RUN_KEYS, *further]
    problems = [
        DesaError("no such setting", where=key, hint=choices(key, known)) for key in unknown
    ]
    own = {key: settings[key] for key in RUN_KEYS if key in settings}
    return cell_spec(own, folder, problems)


def specs_of(
    configs: Sequence[Plain], folders: Sequence[Path], further: Sequence[str] = ()
) -> list[CellSpec]:
    """The cells of a sweep, each with its folder."""
    pairs = [*zip(configs, folders, strict=True)]
    return [spec_of(*pair, further) for pair in counting(pairs, "reading cells")]


def addresses(config: DictConfig | Plain) -> Iterator[tuple[str, str]]:
    """(name, value) of every setting that is text, and so could be an address with a password."""
    plain: Any = (
        OmegaConf.to_container(config, resolve=True) if isinstance(config, DictConfig) else config
    )
    for name, value in flat(plain).items():
        if name.startswith(("hydra.", *FREE_TEXTS)):
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str):
                yield name, item
