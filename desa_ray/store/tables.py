"""Tables (polars, parquet) and arrays (numpy, .npy) as parts: checked against a schema; equal rows
give equal bytes.

A table's schema is part of a stage's version: columns, their order and dtypes must be exactly the
declared ones when it is written and when it is read, so that no stage meets a column it did not
expect.
"""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from desa_ray.errors import CorruptArtifact, DesaError
from desa_ray.store.artifact import Artifact
from desa_ray.store.content import Schema, array_content, row_bytes, rows_content
from desa_ray.store.ledger import PartInfo
from desa_ray.store.makers import Maker

ROW_GROUP = 65_536


def write_table(
    artifact: Artifact,
    name: str,
    frame: pl.DataFrame,
    schema: Schema,
    made: Sequence[Maker] | None = None,
) -> PartInfo:
    """Store `frame` as the part `name` (`….parquet`); its content hash is `rows_content(frame)`,
    whoever `made` it.

    Raises:
        DesaError: columns, order or dtypes are not the schema's; lists every difference.
    """
    _check(frame.schema, schema, f"{artifact.where}/{name}")
    return artifact.write_part(
        name,
        lambda path: _parquet(frame, path),
        rows=frame.height,
        content=rows_content(frame),
        made=made,
    )


def read_table(artifact: Artifact, name: str, schema: Schema) -> pl.DataFrame:
    """The rows of the part `name`, verified.

    Raises:
        CorruptArtifact: its bytes are not those that were written.
        DesaError: columns, order or dtypes are not the schema's; lists every difference.
    """
    frame = pl.read_parquet(artifact.read_part(name), glob=False)
    _check(frame.schema, schema, f"{artifact.where}/{name}")
    return frame


def write_array(artifact: Artifact, name: str, array: np.ndarray) -> PartInfo:
    """Store an array of numbers, shape [rows, ...], as the part `name` (`….npy`); content hash
    `array_content(array)`.

    Raises:
        DesaError: elements that are not plain numbers.
    """
    data, content = row_bytes(array), array_content(array)
    return artifact.write_part(
        name, lambda path: _npy(array, data, path), rows=len(array), content=content
    )


def read_array(artifact: Artifact, name: str) -> np.ndarray:
    """The array of the part `name`, verified, read-only and mapped into memory. Raises
    CorruptArtifact.
    """
    path = artifact.read_part(name)
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:  # whole, but no array of numbers: not written here
        what = f"is not an array of numbers: {error}"
        raise CorruptArtifact(
            what, where=str(path), hint=f"delete {artifact.where} and rerun"
        ) from None


def _check(found: pl.Schema, schema: Schema, where: str) -> None:
    wanted = pl.Schema(schema)
    if list(found.items()) == list(wanted.items()):
        return
    differences = [
        f"column {name} ({dtype}) is missing" for name, dtype in wanted.items() if name not in found
    ]
    differences += [
        f"column {name} ({dtype}) is unknown" for name, dtype in found.items() if name not in wanted
    ]
    both = [name for name in wanted if name in found]
    differences += [
        f"column {n} is {found[n]}, not {wanted[n]}" for n in both if found[n] != wanted[n]
    ]
    if not differences:
        differences = [f"columns are in the order {', '.join(found)}, not {', '.join(wanted)}"]
    raise DesaError(
        "; ".join(differences),
        where=where,
        hint="write these columns, or raise the stage's version",
    )


def _parquet(frame: pl.DataFrame, path: Path) -> None:
    # One chunk per column and row groups of a fixed size, so that how the frame came to be leaves
    # no trace in the file.
    frame.rechunk().write_parquet(
        path, compression="zstd", compression_level=1, statistics=False, row_group_size=ROW_GROUP
    )


def _npy(array: np.ndarray, data: memoryview, path: Path) -> None:
    little = np.dtype(array.dtype).newbyteorder("<")
    header = BytesIO()
    npy_format: Any = np.lib.format
    fields = {
        "descr": npy_format.dtype_to_descr(little),
        "fortran_order": False,
        "shape": array.shape,
    }
    npy_format.write_array_header_1_0(header, fields)
    with path.open("wb") as file:
        file.write(header.getbuffer())
        file.write(data)
