"""The public BEIR sets by name: the place where one lies, downloading it first where it lies nowhere.

Looked for, in this order: `dataset.path`, `<data home>/<name>/`, `<data home>/<name>.zip`. Thakur et al. 2021 publish
the archives; their address is part of each data set's configuration (`dataset.url`).
"""

import os
import tempfile
import urllib.error
import urllib.request
import zipfile
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from desa_ray.config import DatasetConfig
from desa_ray.errors import DesaError
from desa_ray.terminal import screen

TIMEOUT_S = 10.0  # without an answer for as long, there is no network


def locate(config: DatasetConfig, data_home: Path) -> Path:
    """The folder or zip of a BEIR set.

    Raises:
        DesaError: it lies nowhere and cannot be downloaded; names the places and the files wanted there.
    """
    if config.path is not None:
        return Path(config.path).expanduser()
    folder, archive = data_home / config.name, data_home / f"{config.name}.zip"
    if folder.is_dir():
        return folder
    if not archive.is_file():
        _download(config, archive, folder)
    return archive


def _download(config: DatasetConfig, archive: Path, folder: Path) -> None:
    def unavailable(why: str) -> DesaError:
        return DesaError(
            f"found neither the folder {folder} nor {archive}, and {why}",
            where=f"dataset {config.name}",
            mend=f"put corpus.jsonl, queries.jsonl and qrels/{config.split}.tsv into that folder, "
            "or name another with dataset.path=",
        )

    if config.url is None:
        raise unavailable("dataset.url gives no address to download it from")
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise unavailable("HF_HUB_OFFLINE forbids downloading")
    if not config.url.startswith(("https://", "http://")):
        raise unavailable(f"dataset.url is no http(s) address: {config.url}")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f".{config.name}.") as scratch:
            part = Path(scratch) / archive.name
            with urllib.request.urlopen(config.url, timeout=TIMEOUT_S) as response, part.open("wb") as file:  # noqa: S310 (checked above)
                _copy(response, file, response.length, config.name)
                file.flush()
                os.fsync(file.fileno())
            if not zipfile.is_zipfile(part):
                raise unavailable(f"what {config.url} sent is not a complete zip")
            part.replace(archive)
    except (OSError, HTTPException) as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        raise unavailable(f"downloading {config.url} failed: {why}") from error


def _copy(response: BinaryIO, part: BinaryIO, size: int | None, name: str) -> None:
    columns = TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=screen(stderr=True)) as progress:
        task = progress.add_task(f"downloading {name}", total=size)
        while block := response.read(1 << 20):
            part.write(block)
            progress.advance(task, len(block))
