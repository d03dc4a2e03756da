"""The public BEIR sets by name: where each one is, after downloading it if it is not there yet.

Looked for, in this order: `dataset.path`, `<data home>/<name>/`, `<data home>/<name>.zip`. Thakur
et al. 2021 publish the archives; their address is part of each data set's configuration
(`dataset.url`).
"""

import os
import tempfile
import zipfile
from pathlib import Path
from typing import BinaryIO

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from desa_ray.config import DatasetConfig
from desa_ray.errors import DesaError
from desa_ray.http_client import Bounds, session
from desa_ray.http_failures import one_line
from desa_ray.terminal import screen

TIMEOUT_S = 30.0  # without an answer for as long, there is no network
RATE = 16 << 10  # bytes per second: a slower download is ended
LARGEST = 64 << 30


def locate(config: DatasetConfig, data_home: Path) -> Path:
    """The folder or zip of a BEIR set.

    Raises:
        DesaError: it is not there and cannot be downloaded; names the places and the files wanted
            there.
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
            hint=(
                f"put corpus.jsonl, queries.jsonl and qrels/{config.split}.tsv into that folder, "
                "or name another with dataset.path="
            ),
        )

    if config.url is None:
        raise unavailable("dataset.url gives no address to download it from")
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise unavailable("HF_HUB_OFFLINE forbids downloading")
    if not config.url.startswith(("https://", "http://")):
        raise unavailable(f"dataset.url is not an http(s) address: {config.url}")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f".{config.name}.") as scratch:
            part = Path(scratch) / archive.name
            with part.open("wb") as file:
                _fetch(config.url, file, config.name)
                file.flush()
                os.fsync(file.fileno())
            if not zipfile.is_zipfile(part):
                raise unavailable(f"the file from {config.url} is not a complete zip")
            part.replace(archive)
    except OSError as error:
        raise unavailable(f"downloading {config.url} failed: {error}") from error


def _fetch(url: str, file: BinaryIO, name: str) -> None:
    """Downloads an address to a file; raises OSError if that fails."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=screen(stderr=True)) as progress:
        task = progress.add_task(f"downloading {name}", total=None)

        def take(block: bytes, rest: int | None) -> None:
            file.write(block)
            progress.update(task, advance=len(block), total=rest)

        bounds = Bounds(TIMEOUT_S, file_bytes=LARGEST, rate=RATE, sink=take)
        # No key is sent, so that redirects may lead to another host.
        with session(url, bounds, follow=True) as server:
            response = server.get(url, stream=True, headers={"Accept-Encoding": "identity"})
    if response.status_code != 200:
        raise OSError(f"it answered {response.status_code} {one_line(response.reason or '')}")
