"""Where the artifacts of a run are: the tracking server names the place, and only certain places
are accepted.
"""

from urllib.parse import urlsplit

from mlflow.entities import Run
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from desa_ray.credentials import redacted
from desa_ray.errors import DesaError
from desa_ray.http_client import near
from desa_ray.http_failures import one_line

ELSEWHERE = (
    "mlflow-artifacts",
    "http",
    "https",
    "s3",
    "gs",
    "wasbs",
    "abfss",
    "hdfs",
    "viewfs",
    "sftp",
    "dbfs",
)
HINT = (
    "start that server with --serve-artifacts, or with an object store as --default-artifact-root"
)


def artifacts_of(run: Run, uri: str) -> ArtifactRepository:
    """The artifacts of a run.

    Args:
        run: as the tracking store gave it.
        uri: the tracking store.

    Raises:
        DesaError: a server on another machine names a folder of this one, or a place that cannot
            hold artifacts.
    """
    place = run.info.artifact_uri or ""
    if uri.startswith(("http://", "https://")):
        scheme, here = urlsplit(place).scheme.lower(), near(uri)
        local = scheme in ("", "file")
        if not place or (not local and scheme not in ELSEWHERE) or (local and not here):
            what = (
                f"{redacted(uri)} keeps the artifacts of run {one_line(run.info.run_id)} at"
                f" {one_line(place) or '?'}"
            )
            raise DesaError(
                f"{what}, which a server must not name",
                where="tracking.uri",
                hint=HINT,
            )
    return get_artifact_repository(place, tracking_uri=uri)
