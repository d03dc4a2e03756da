"""Runs as parquet: the form in which cells keep their fused rankings, a twentieth of the size of a
TREC file.

Columns `query_id` (String) and `docs` (List of String, best first); ids as they are, blanks too.
"""

from pathlib import Path
from typing import Any, cast

import polars as pl
import pyarrow.parquet  # pyright: ignore[reportMissingTypeStubs]

from desa_ray.columnar import parquet_table
from desa_ray.errors import DesaError
from desa_ray.lines import CONTROL, shown

PARQUET = cast(Any, pyarrow.parquet)  # comes without types
SUFFIX = ".parquet"
HINT = "name a run that desa wrote (run.parquet) or a TREC run"


def write_run_parquet(path: Path, rankings: pl.DataFrame) -> None:
    """Writes rankings (columns `query_id`, `docs`); the same rankings, the same bytes.

    By Arrow: it keeps each id once and refers to it by number, which halves what polars writes.
    """
    table: Any = cast(Any, rankings.select("query_id", "docs")).to_arrow()
    PARQUET.write_table(table, path, compression="zstd", write_statistics=False, store_schema=False)


def read_run_parquet(path: Path) -> dict[str, list[str]]:
    """Query id -> document ids, best first.

    Raises:
        DesaError: no such file, no parquet, other columns, a query or a document of one twice, an
            id that is missing, empty or has control characters, no row.
    """
    place = str(path)
    if path.exists() and not path.is_file():  # a pipe would never end
        raise DesaError("is not a plain file", where=place, hint=HINT)
    try:
        with path.open("rb") as stream:
            table = parquet_table(stream, path.stat().st_size, place)
        table.validate(full=True)
        frame: Any = cast(Any, pl).from_arrow(table)
    except (KeyboardInterrupt, SystemExit, DesaError):
        raise
    except BaseException as error:  # a panic is no Exception: types that polars does not know
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise DesaError(f"cannot be read as parquet: {reason}", where=place, hint=HINT) from None
    assert isinstance(frame, pl.DataFrame)
    if not {("query_id", pl.String), ("docs", pl.List(pl.String))} <= {*frame.schema.items()}:
        what = f"columns {', '.join(frame.columns)[:200]} are not those of a run (query_id, docs)"
        raise DesaError(what, where=place, hint=HINT)
    if not frame.height:
        raise DesaError("the run has no rows", where=place, hint=HINT)
    if frame["query_id"].n_unique() < frame.height:
        query = frame.filter(pl.col("query_id").is_duplicated())["query_id"][0]
        raise DesaError(
            f"query {shown(query)} is listed twice", where=place, hint="keep one of them"
        )
    names = pl.concat([frame["query_id"], frame["docs"].explode()]).unique().drop_nulls()
    odd = names.filter(names.str.contains(CONTROL.pattern) | (names == ""))
    if odd.len():
        what = f"an id is empty or has a control character: {shown(odd[0])}"
        raise DesaError(what, where=place, hint="write ids without them")
    run: dict[str, list[str]] = {}
    for query, docs in frame.select("query_id", "docs").iter_rows():
        if query is None or docs is None or None in docs:
            raise DesaError("an id is missing", where=place, hint=HINT)
        if len(set(docs)) < len(docs):
            what = f"query {shown(query)} lists a document twice"
            raise DesaError(what, where=place, hint="keep only its best rank")
        run[query] = docs
    return run
