"""Reads finished runs back: the artifacts of a run, or of the children of a parent run."""

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from desa_ray.errors import DesaError
from desa_ray.tracking.last import last_uri
from desa_ray.tracking.opening import open_client

PAGE = 500


def default_uri() -> str:
    """The store that the last run in `$DESA_HOME` (else `.desa`) logged to."""
    return last_uri(Path(os.environ.get("DESA_HOME") or ".desa"))


@contextmanager
def fetched(run_ids: Sequence[str], name: str, uri: str | None = None) -> Iterator[list[tuple[str, Path]]]:
    """Local copies of the artifact `name` of runs, `(run id, path)` each, kept while the context lasts.

    Args:
        run_ids: runs that have the artifact, or parents whose finished children have it.
        name: the artifact's file name.
        uri: the tracking store; that of the last run where left out.

    Raises:
        DesaError: no such store or run, or neither the run nor its children have the artifact.
    """
    uri = uri or default_uri()
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        raise DesaError("there is no such tracking store", where=uri, mend="set DESA_HOME, or tracking.uri")
    client = open_client(uri)
    with tempfile.TemporaryDirectory(prefix="desa-") as folder:
        try:
            owners = [owner for run_id in run_ids for owner in _owners(client, run_id, name)]
            yield_files = []
            for owner in dict.fromkeys(owners):
                place = Path(folder) / owner
                place.mkdir()
                file = Path(client.download_artifacts(owner, name, str(place)))
                _check_hash(client.get_run(owner), file)
                yield_files.append((owner, file))
        except (MlflowException, OSError) as error:
            raise DesaError(f"cannot be fetched: {str(error).splitlines()[0]}", where=uri) from error
        yield yield_files


def _check_hash(run: Run, file: Path) -> None:
    """Compare a fetched file with the SHA-256 that its run noted as a tag, if it did."""
    wanted = run.data.tags.get(f"sha256.{file.name}")
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if wanted not in (None, found):
        what = f"its {file.name} is not what the run logged: SHA-256 {found}, the tag says {wanted}"
        raise DesaError(what, where=f"run {run.info.run_id}", mend="run the cell again")


def _owners(client: MlflowClient, run_id: str, name: str) -> list[str]:
    run = client.get_run(run_id)
    if _has(client, run_id, name):
        return [run_id]
    children = [child.info.run_id for child in _children(client, run)]
    owners = [child for child in children if _has(client, child, name)]
    if not owners:
        raise DesaError(f"neither it nor its children have {name}", where=f"run {run_id}", mend="name a finished run")
    return owners


def _children(client: MlflowClient, run: Run) -> Iterator[Run]:
    wanted, token = f"tags.`mlflow.parentRunId` = '{run.info.run_id}' and attributes.status = 'FINISHED'", None
    while True:
        found = client.search_runs([run.info.experiment_id], wanted, max_results=PAGE, page_token=token)
        yield from found
        token = found.token
        if not token:
            return


def _has(client: MlflowClient, run_id: str, name: str) -> bool:
    return any(file.path == name for file in client.list_artifacts(run_id))
