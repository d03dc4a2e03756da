"""Documents sorted by id in runs that fit into memory, and merged from files that are mapped: one
arrow file per task, one record batch per run.
"""

import importlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

arrow: Any = importlib.import_module("pyarrow")  # it comes without types
RUN_BYTES = 32 << 20  # of text in a run: a worker holds one, as rows and as columns
PIECE_BYTES = 8 << 20  # of text that is merged at a time, about
SAMPLES = 64  # ids looked at for each piece of the merge
SCHEMA = arrow.schema([("id", arrow.large_string()), ("text", arrow.large_string())])
GOLDEN = (5**0.5 - 1) / 2
Text = tuple[str, str]


def write_runs(rows: Iterable[Text], path: Path) -> int:
    """Writes (id, text) rows as runs sorted by id; returns how many rows there were."""
    count = 0
    with arrow.OSFile(str(path), "wb") as sink, arrow.ipc.new_file(sink, SCHEMA) as writer:
        held: list[Text] = []
        size = 0
        for row in rows:
            held.append(row)
            size += len(row[0]) + len(row[1]) + 100  # a row of two empty strings takes memory too
            if size >= RUN_BYTES:
                count += _write(writer, held)
                held, size = [], 0
        if held:
            count += _write(writer, held)
    return count


def _write(writer: Any, held: list[Text]) -> int:
    held.sort(key=itemgetter(0))  # by code points, which is the order of their UTF-8 bytes
    ids, texts = ([key for key, _ in held], [text for _, text in held])
    columns = [arrow.array(own, arrow.large_string()) for own in (ids, texts)]
    writer.write_batch(arrow.record_batch(columns, schema=SCHEMA))
    return len(held)


@dataclass(frozen=True)
class Run:
    """One sorted run, mapped: ids and texts as Arrow arrays."""

    ids: Any
    texts: Any

    def place(self, key: str) -> int:
        """How many ids come before `key`."""
        ids = self.ids
        return bisect_left(range(len(ids)), key, key=lambda number: ids[number].as_py())

    def rows(self, start: int, stop: int) -> list[Text]:
        count = stop - start
        ids, texts = self.ids.slice(start, count), self.texts.slice(start, count)
        return list(zip(ids.to_pylist(), texts.to_pylist(), strict=True))


def open_runs(paths: Iterable[Path]) -> list[Run]:
    """The runs of files that `write_runs` wrote."""
    runs: list[Run] = []
    for path in paths:
        file = arrow.ipc.open_file(arrow.memory_map(str(path), "r"))
        batches = [file.get_batch(number) for number in range(file.num_record_batches)]
        runs += [Run(batch.column(0), batch.column(1)) for batch in batches]
    return runs


def between(runs: Sequence[Run], low: str | None, high: str | None) -> list[Text]:
    """The rows with low <= id < high (None: no limit) of all runs, by id; rows of equal ids in the
    order of the runs.
    """
    rows: list[Text] = []
    for run in runs:
        start = 0 if low is None else run.place(low)
        rows += run.rows(start, len(run.ids) if high is None else run.place(high))
    rows.sort(key=itemgetter(0))  # runs are sorted: this merges them
    return rows


def merged(runs: Sequence[Run], rows: int, size: int) -> Iterator[list[Text]]:
    """All rows in the order of their ids, a piece at a time; equal ids are in one piece.

    Args:
        rows, size: how many rows the runs have in all, and bytes of text.
    """
    stride = max(1, rows * PIECE_BYTES // max(size, 1) // SAMPLES)
    samples: list[str] = []
    for number, run in enumerate(runs):
        # Each run from another place on: where all have the same ids, samples lie in between
        samples += run.ids[int(number * GOLDEN % 1 * stride) :: stride].to_pylist()
    edges = sorted(samples)[SAMPLES - 1 :: SAMPLES]
    low: str | None = None
    for high in [*edges, None]:
        if found := between(runs, low, high):
            yield found
        low = high
