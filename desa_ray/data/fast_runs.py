"""Large TREC runs, read by columns: for files without irregularities.

Six fields between single blanks, plain numbers, ranks that do not tie and scores that do not rise
with them, no document twice. Everything else is left to the reader that goes line by line and says
what is wrong, or accepts what can be understood.
"""

from collections.abc import Iterable

import polars as pl

from desa_ray.lines import CONTROL

COLUMNS = ["query", "q0", "document", "rank", "score", "tag"]
RANK = r"^[0-9]{1,9}$"
ODD = (b"\t", b"\r", b"\v", b"\f", b"\0")
SCORE = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]{1,2})?$"
LARGEST = 1 << 26  # bytes of a file; reading by columns takes some 16 times as much memory


def read_plain_run(blocks: Iterable[bytes]) -> dict[str, list[str]] | None:
    """Query id -> document ids, best first; None where the file is not plain.

    Args:
        blocks: the file, unpacked.
    """
    pieces: list[bytes] = []
    size = 0
    for block in blocks:
        pieces.append(block)
        size += len(block)
        if size > LARGEST:
            return None
    frame = _frame(b"".join(pieces))
    if frame is None:
        return None
    queries = frame["query"].unique(maintain_order=True)
    numbers = {query: number for number, query in enumerate(queries.to_list())}
    ids = frame["document"].unique(maintain_order=True)
    frame = frame.select(
        pl.col("query").replace_strict(numbers, return_dtype=pl.Int32),
        pl.col("document").cast(pl.Enum(ids)).to_physical(),
        pl.col("rank").cast(pl.Int64),
        pl.col("score").cast(pl.Float64),
    ).sort("query", "rank", maintain_order=True)
    same = pl.col("query") == pl.col("query").shift(1)
    odd = frame.select(
        tied=(same & (pl.col("rank") == pl.col("rank").shift(1))).any(),
        rising=(same & (pl.col("score") > pl.col("score").shift(1))).any(),
        endless=pl.col("score").is_infinite().any(),
    )
    pairs = frame.select(pl.col("query").cast(pl.Int64) * len(ids) + pl.col("document"))
    if any(odd.row(0)) or pairs.to_series().n_unique() < frame.height:
        return None
    names: list[str] = ids.to_list()
    numbered: list[int] = frame["document"].to_list()
    documents = [names[number] for number in numbered]
    run: dict[str, list[str]] = {}
    start = 0
    counts = frame.group_by("query", maintain_order=True).len()["len"].to_list()
    for query, count in zip(queries.to_list(), counts, strict=True):
        run[query] = documents[start : start + count]
        start += count
    return run


def _frame(data: bytes) -> pl.DataFrame | None:
    """The file as six columns of text; None where a line is of another kind."""
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    if not data or data.startswith(b"\xef\xbb\xbf") or any(sign in data for sign in ODD):
        return None
    try:
        frame = pl.read_csv(
            data, has_header=False, separator=" ", quote_char=None, infer_schema=False
        )
    except pl.exceptions.PolarsError:
        return None
    if frame.width != len(COLUMNS) or frame.height != lines:
        return None
    frame.columns = COLUMNS
    there = frame.select(
        pl.all_horizontal(pl.all().is_not_null()).all(),
        pl.col("rank").str.contains(RANK).all(),
        pl.col("score").str.contains(SCORE).all(),
    )
    names = pl.concat([frame["query"], frame["document"]]).unique()
    plain = all(there.row(0)) and not names.str.contains(CONTROL.pattern).any()
    return frame if plain else None
