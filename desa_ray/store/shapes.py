"""The schemas of the store's own JSON: a seal says that a document was not changed, not that it
makes sense.

Another program, or an edited file that was sealed again, can hold other types under the same names.
So every manifest, layout, sidecar and lease is checked as it is read; one that fails counts as
damaged.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from desa_ray.errors import CorruptArtifact

OPEN = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)
CLOSED = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Stage = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
File = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9]{1,16})?$")]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Seconds = Annotated[float, Field(ge=0)]


def _ascending(edges: list[int]) -> list[int]:
    if sorted(edges) != edges:
        raise ValueError("should ascend")
    return edges


Edges = Annotated[list[Count], Field(min_length=1), AfterValidator(_ascending)]


class KeyShape(BaseModel):
    """As `Key.document` writes it."""

    model_config = CLOSED

    stage: Stage
    version: Annotated[int, Field(ge=1)]
    params: dict[str, Any]
    inputs: dict[str, Digest]


class MakerShape(BaseModel):
    """Who made the rows of a part, and with what (`makers.py`)."""

    model_config = OPEN

    commit: str | None = None
    dirty: bool | None = None
    code: str = ""
    environment: str = ""
    versions: dict[str, str] = {}
    seconds: Seconds | None = None
    gpus: Seconds | None = None


class PartShape(BaseModel):
    """A part in a manifest."""

    model_config = CLOSED

    bytes: Count
    content: Digest | None
    file: File
    made: list[MakerShape] | None = None
    rows: Count
    sha256: Digest


class SidecarShape(PartShape):
    """A part's own document."""

    key: Digest
    name: File


class LayoutShape(BaseModel):
    """How work was cut; stages add their own."""

    model_config = OPEN

    bounds: Edges = [0]
    groups: Edges = [0]
    inputs: dict[str, Digest] = {}
    kept: Count = 0


class PoolShape(BaseModel):
    """The workers that computed it."""

    model_config = OPEN

    name: str
    cpus: Seconds
    gpus: Seconds


class MetaShape(BaseModel):
    """What runs say in addition to the result; stages add their own."""

    model_config = OPEN

    inputs: dict[str, Digest] = {}
    input_rows: dict[str, Count | None] = {}
    pool: PoolShape | None = None
    recording: dict[str, Count] = {}
    seconds: Seconds = 0.0
    share_computed: Annotated[float, Field(ge=0, le=1)] = 0.0
    tables: dict[str, Digest] = {}
    workers: Annotated[int, Field(ge=1)] = 1


class ManifestShape(BaseModel):
    """A complete artifact."""

    model_config = CLOSED

    key: KeyShape
    content: Digest
    counts: dict[str, Count]
    layout: LayoutShape | None
    meta: MetaShape
    parts: dict[File, PartShape]


class StoredLayoutShape(BaseModel):
    """`layout.json`."""

    model_config = CLOSED

    key: Digest
    layout: LayoutShape


class LeaseShape(BaseModel):
    """A lease (`leases.py`)."""

    model_config = CLOSED

    owner: str
    host: str
    pid: Annotated[int, Field(gt=0)]
    process: str
    token: str
    started: float
    heartbeat: float
    keys: list[Digest] | None


def checked(document: dict[str, Any], shape: type[BaseModel]) -> dict[str, Any]:
    """The document itself, if it has the shape. Raises ValueError, with the first field that has
    another.
    """
    try:
        shape.model_validate(document)
    except (ValidationError, RecursionError) as error:
        raise ValueError(_first(error)) from None
    return document


def _first(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return "it is nested too deeply"
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"its {place!r}: {first['msg'][:1].lower()}{first['msg'][1:]}"


class Told(dict[str, Any]):
    """What a manifest says; anything missing that it should say counts as damage."""

    def __init__(self, values: dict[str, Any], name: str, error: CorruptArtifact):
        super().__init__(values)
        self.name, self.error = name, error

    def __missing__(self, key: str) -> Any:
        where, hint = self.error.where, self.error.hint
        raise CorruptArtifact(
            f"is damaged: its {self.name!r} has no {key!r}", where=where, hint=hint
        )
