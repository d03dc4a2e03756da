"""The schemas of log entries on disk: an outbox outlives its run, and anything may have happened to
its files.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

STRICT = ConfigDict(strict=True, allow_inf_nan=False)
Time = Annotated[int, Field(ge=0, lt=2**63)]


def _own_tag(name: str) -> str:
    if name.startswith("mlflow."):
        raise ValueError(f"the tag {name!r} is reserved by MLflow")
    return name


TagName = Annotated[str, AfterValidator(_own_tag)]  # MLflow renders `mlflow.note.content`
ParamName = Annotated[str, Field(min_length=1, max_length=250)]
FileName = Annotated[str, Field(pattern=r"^[^/\x00]+$")]  # of a file in the entry's own folder


class DataSet(BaseModel):
    """A data set that a cell used; `digest` identifies its contents."""

    model_config = STRICT

    name: Annotated[str, Field(min_length=1, max_length=500)]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    source: Annotated[str, Field(max_length=10_000)]
    counts: dict[str, int]


class Result(BaseModel):
    """A finished cell in the table of its sweep."""

    model_config = STRICT

    name: str
    metrics: dict[str, float]


Point = Annotated[list[int | float], Field(min_length=2, max_length=2)]


class Begin(BaseModel):
    """The start of a sweep."""

    model_config = STRICT

    kind: Literal["begin"]
    name: str
    params: dict[str, str]
    tags: dict[TagName, str]
    started_ms: Time


class CellEntry(BaseModel):
    """A finished or failed cell."""

    model_config = STRICT

    kind: Literal["cell"]
    cell: str
    name: str
    status: Literal["FINISHED", "FAILED"]
    params: dict[str, str]
    metrics: dict[str, float]
    tags: dict[TagName, str]
    artifacts: list[FileName]
    started_ms: Time
    ended_ms: Time
    child: bool
    # What entries of earlier versions lack:
    series: dict[str, list[Point]] = {}  # metric -> steps and values
    inputs: list[DataSet] = []
    command: str = ""


class Metrics(BaseModel):
    """What the machine did."""

    model_config = STRICT

    kind: Literal["metrics"]
    metrics: list[Annotated[list[str | float], Field(min_length=4, max_length=4)]]


class End(BaseModel):
    """The end of a sweep."""

    model_config = STRICT

    kind: Literal["end"]
    status: Literal["FINISHED", "FAILED", "KILLED"]
    metrics: dict[str, float]
    tags: dict[TagName, str]
    artifacts: list[FileName]
    ended_ms: Time
    results: list[Result] = []
    command: str = ""
    swept: list[ParamName] = []


class TargetShape(BaseModel):
    """Where a sweep's entries go."""

    model_config = ConfigDict(strict=True, extra="forbid")

    uri: str
    artifacts: str
    experiment: str
    sweep: str
    attempt: str


ENTRY = TypeAdapter(Annotated[Begin | CellEntry | Metrics | End, Field(discriminator="kind")])
TARGET = TypeAdapter(TargetShape)


def read_json(path: Path, shape: TypeAdapter) -> dict[str, Any]:
    """The document in a file.

    Raises:
        ValueError: it is not JSON, or not of this shape; says where.
        OSError: it cannot be read.
    """
    try:
        document = json.loads(path.read_bytes().decode("utf-8"))
        shape.validate_python(document)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place!r}: {first['msg']}" if place else first["msg"]) from None
    return document


def check_artifacts(document: dict[str, Any], folder: Path) -> None:
    """Raises ValueError where a file that the entry names is not in its folder."""
    for name in document.get("artifacts", ()):
        try:
            there = name not in (".", "..") and (folder / name).is_file()
        except OSError:  # a name too long
            there = False
        if not there:
            raise ValueError(f"its file {name[:200]!r} is missing")
