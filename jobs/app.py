"""Runs a verb as a Hydra application and turns Hydra's failures into one-line errors."""

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from desa_ray.credentials import refuse_credentials
from desa_ray.errors import DesaError

CONFIG = "pkg://desa_ray.conf"


def hydra_app(verb: str, config_name: str, arguments: list[str], task: Callable[[DictConfig], None]) -> int:
    """Compose `config_name` with the command line's overrides and call `task`; 0 on success."""
    # Before Hydra, which writes the command line beside the results.
    refuse_credentials((argument.partition("=")[0], argument) for argument in arguments)
    sys.argv = [f"desa {verb}", *arguments]
    failures: list[BaseException] = []

    @wraps(task)
    def guarded(config: DictConfig) -> None:
        # Hydra announces an exception of the task in its own words; ours leave by another door.
        try:
            task(config)
        except (DesaError, KeyboardInterrupt) as error:
            failures.append(error)

    # Hydra prints its own traceback and exits unless told otherwise; errors are ours to word.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        hydra.main(version_base="1.3", config_path=CONFIG, config_name=config_name)(guarded)()
    except (HydraException, OmegaConfBaseException) as error:
        raise DesaError(_one_line(error), mend=_mend(str(error), arguments)) from error
    if failures:
        raise failures[0]
    return 0


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    drop = ("full_key", "object_type", "See https", "Set the environment variable", "To append to your config use")
    return " ".join(line for line in lines if line and not line.startswith(drop))


def _mend(message: str, arguments: list[str]) -> str:
    if "not in struct" in message or "Could not override" in message:
        return "no such key; `desa run --cfg job` prints all keys"
    if "mismatched input" in message or "no viable alternative" in message or "token recognition" in message:
        odd = next((a for a in arguments if "=" in a and not a.startswith("-")), "")
        name, _, value = odd.partition("=")
        return f"quote the value, for example '{name}=\"{value}\"'"
    if "Could not find" in message:
        return "choose one of the options listed"
    return "`desa run --help` lists the choices"


def output_folder() -> Path:
    """The folder Hydra made for this job."""
    from hydra.core.hydra_config import HydraConfig

    return Path(HydraConfig.get().runtime.output_dir)
