"""Reads finished runs back: the artifacts of a run, or of the children of a parent run."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from desa_ray.errors import DesaError
from desa_ray.files import sha256_file
from desa_ray.http_failures import one_line
from desa_ray.places import home
from desa_ray.tracking.failures import Nonsense, answers
from desa_ray.tracking.last import last_uri
from desa_ray.tracking.opening import open_client
from desa_ray.tracking.paging import paged
from desa_ray.tracking.places import artifacts_of
from desa_ray.tracking.runs import sound_id
from desa_ray.tracking.sqlite_uri import sqlite_file

PAGE = 500


def default_uri() -> str:
    """The store that the last run in `$DESA_HOME` (else `.desa`) logged to."""
    return last_uri(home())


@contextmanager
def fetched(
    run_ids: Sequence[str], name: str, uri: str | None = None
) -> Iterator[list[tuple[str, Path]]]:
    """Local copies of the artifact `name` of runs, `(run id, path)` each, kept while the context
    lasts.

    Args:
        run_ids: runs that have the artifact, or parents whose finished children have it.
        name: the artifact's file name.
        uri: the tracking store; that of the last run where left out.

    Raises:
        DesaError: no such store or run, or neither the run nor its children have the artifact.
    """
    uri = uri or default_uri()
    file = sqlite_file(uri)
    if file is not None and not file.exists():
        raise DesaError(
            "there is no such tracking store", where=uri, hint="set DESA_HOME, or tracking.uri"
        )
    client = open_client(uri, otherwise="")
    with tempfile.TemporaryDirectory(prefix="desa-") as folder:
        files: list[tuple[str, Path]] = []
        with answers(uri, "cannot be fetched"):
            owners = [owner for run_id in run_ids for owner in _owners(client, uri, run_id, name)]
            for owner in {run.info.run_id: run for run in owners}.values():
                file = Path(folder) / sound_id(owner.info.run_id) / name
                file.parent.mkdir()
                artifacts_of(owner, uri)._download_file(name, str(file))
                _check_hash(owner, file)
                files.append((owner.info.run_id, file))
        yield files


def _check_hash(run: Run, file: Path) -> None:
    """Compare a fetched file with the SHA-256 that its run noted as a tag, if it did."""
    wanted = run.data.tags.get(f"sha256.{file.name}")
    found = sha256_file(file)
    if wanted not in (None, found):
        what = f"its {file.name} is not what the run logged: SHA-256 {found}, the tag says {wanted}"
        raise DesaError(what, where=f"run {run.info.run_id}", hint="run the cell again")


def _owners(client: MlflowClient, uri: str, run_id: str, name: str) -> list[Run]:
    """The run if it has the artifact, else its finished children that have it."""
    run = client.get_run(run_id)
    if run.info.run_id != run_id:
        raise Nonsense(
            f"asked for run {run_id}, the answer is about {one_line(str(run.info.run_id))!r}"
        )
    if _has(run, uri, name):
        return [run]
    wanted = f"tags.`mlflow.parentRunId` = '{run_id}' and attributes.status = 'FINISHED'"
    within = [run.info.experiment_id]
    children = paged(
        lambda token: client.search_runs(within, wanted, max_results=PAGE, page_token=token)
    )
    owners = [child for child in children if _has(child, uri, name)]
    if not owners:
        raise DesaError(
            f"neither it nor its children have {name}",
            where=f"run {run_id}",
            hint="name a finished run",
        )
    return owners


def _has(run: Run, uri: str, name: str) -> bool:
    return any(
        file.path == name and not file.is_dir for file in artifacts_of(run, uri).list_artifacts()
    )
