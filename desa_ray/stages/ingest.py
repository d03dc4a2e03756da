"""Ingest of large collections: tasks read pieces of the corpus and sort them, the driver merges and
checks them a piece at a time, and tasks write the table from the sorted runs.

What comes out is what `load_collection` gives: equal rows, numbers, hashes, counts and errors. No
process holds more of the corpus than a run, a piece of the merge or a part of the table.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from desa_ray.config import DatasetConfig
from desa_ray.data import fingerprint, load_collection
from desa_ray.data.load import PieceReader, piece_reader, read_rest
from desa_ray.data.pieces import CorpusFiles, CountedLines, Piece, cut
from desa_ray.data.validate import TextFaults, beside, too_long
from desa_ray.errors import DesaError
from desa_ray.lines import Findings, has_control, has_lone_surrogate
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Work, bounds, shards_of
from desa_ray.stages.collection import (
    BYTES_A_PART,
    DOCUMENTS,
    QRELS,
    ROWS_A_PART,
    changed_source,
)
from desa_ray.stages.sorted_texts import Run, merged, open_runs, write_runs
from desa_ray.store.tables import write_table
from desa_ray.types import RowsDigest, canonical_json, rows_hash, text_json
from desa_ray.unpacking import lasting

LARGE = 256 << 20  # bytes of a corpus, as it is kept, from which it is read in pieces
PIECE = 64 << 20  # bytes of a plain file that one task reads
RUNS, TOLD = "runs-{}.arrow", "told-{}.txt"
EDGES = "edges.txt"
BESIDE = {"queries": DOCUMENTS, "qrels": QRELS}


class Reading:
    """The engine of workers that read collections: it holds nothing."""


@dataclass
class PieceNotes:
    """What a task tells of its piece of a corpus.

    Attributes:
        feeds: line feeds in it.
        shift: how far the numbers of its lines are above those of the piece alone.
        size: UTF-8 bytes of its texts.
        blank: texts of blanks alone.
        empty: empty ids.
        controls, long: ids with control characters, and ids that are too long, each once.
        halves: whether an id or text has a lone surrogate.
        bad: bad lines (`Findings.told`).
        stopped: the fault of the bytes that ended reading: what, where, hint.
    """

    file: str
    feeds: int = 0
    shift: int = 0
    rows: int = 0
    size: int = 0
    blank: int = 0
    empty: int = 0
    controls: list[str] = field(default_factory=list[str])
    long: list[str] = field(default_factory=list[str])
    halves: bool = False
    bad: list[list[Any]] = field(default_factory=list[list[Any]])
    stopped: list[str] = field(default_factory=list[str])

    def noted(self, key: str, text: str) -> bool:
        """Counts a document; false for one that cannot be stored."""
        if has_lone_surrogate(key) or has_lone_surrogate(text):
            self.halves = True
            return False
        self.size += len(text) if text.isascii() else len(text.encode())
        self.blank += not text.strip()
        self.empty += not key
        if has_control(key):
            self.controls.append(key)
        if too_long(key):
            self.long.append(key)
        return True


@dataclass(frozen=True)
class IngestWork(Work):
    """Reads, validates, sorts and hashes a collection in pieces.

    Parts: `runs-*.arrow` of a piece (`sorted_texts`) and what its task tells; `edges.txt`, the ids
    at which the parts of the corpus begin; `queries.parquet` and `qrels.parquet`. The manifest has
    the counts and hashes of the collection's record. The layout notes which files the pieces are
    of (`CorpusFiles.states`); all that is stored is of these.
    """

    config: DatasetConfig
    data_home: str
    pool: Pool

    @property
    def _reader(self) -> PieceReader:
        reader = piece_reader(self.config)
        assert reader is not None, self.config.kind
        return reader

    def corpus(self) -> CorpusFiles:
        """The files as they are now."""
        return self._reader.corpus(self.config, Path(self.data_home))

    def _unchanged(self, layout: Mapping[str, Any]) -> CorpusFiles:
        """The files, which are those of the layout."""
        corpus = self.corpus()
        if corpus.states() != layout["files"]:
            raise changed_source(self.config)
        return corpus

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        corpus = self.corpus()
        pieces = [[p.file, p.start, p.stop] for p in cut(corpus, PIECE)]
        found = {"pieces": pieces, "files": corpus.states()}
        self._unchanged(found)
        return found

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        numbers = range(len(layout["pieces"]) + 1)
        return shards_of({"bounds": numbers}, RUNS, TOLD)

    def run(self, engine: Reading, stage: Stage, shard: Shard) -> None:
        layout = stage.stored_layout()
        corpus = self._unchanged(layout)
        piece = Piece(*layout["pieces"][shard.number])
        lines = CountedLines(corpus.files[piece.file], piece)
        told, findings = PieceNotes(lines.file.label, shift=lines.shift), Findings()

        def rows() -> Iterator[tuple[str, str]]:
            try:
                for key, title, text in corpus.rows(lines.file, findings):
                    whole = f"{title} {text}" if title else text
                    told.rows += 1
                    if told.noted(key, whole):
                        yield key, whole
            except DesaError as error:
                if not lasting(error):
                    raise
                told.stopped = [error.what, error.where, error.hint]
            lines.file.check_unchanged()

        artifact = stage.artifact
        if artifact.has_part(shard.parts[0]):  # of a task that was killed then
            for _ in rows():
                pass
        else:
            artifact.write_part(shard.parts[0], lambda path: write_runs(rows(), path), rows=0)
        told.feeds, told.bad = lines.feeds, findings.told()
        told.controls, told.long = (list(dict.fromkeys(own)) for own in (told.controls, told.long))
        artifact.write_part(shard.parts[1], json.dumps(asdict(told)).encode(), rows=told.rows)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        self._unchanged(layout)
        told = [_told(stage, shard) for shard in self.shards(layout)]
        home = Path(self.data_home)
        if any(own.halves for own in told):  # rare, and not for a table to hold: told by the reader
            load_collection(self.config, data_home=home)
        findings = _findings(told)
        raw = read_rest(self.config, home, findings)
        raw.broken = any(own.bad for own in told)
        found = _merge(stage, self.shards(layout), told, {row[1] for row in raw.qrels})
        faults = TextFaults(
            sum(own.rows for own in told),
            found.twice,
            sum(own.empty for own in told),
            [],
            list(dict.fromkeys(key for own in told for key in own.controls)),
            list(dict.fromkeys(key for own in told for key in own.long)),
            [],
        )
        name = self.config.name
        faults.report(f"{name} corpus", "document", findings)
        frames, counts = beside(raw, found.known, name, self.config.missing_relevant, findings)
        self._check_source(stage, layout)
        for table, frame in zip(BESIDE, frames, strict=True):
            write_table(stage.artifact, f"{table}.parquet", frame, BESIDE[table])
        blank = {"empty_documents": sum(own.blank for own in told)}
        sizes = {"documents": faults.rows, "queries": frames[0].height, "qrels": frames[1].height}
        hashes = {
            "corpus": found.content,
            "queries": rows_hash(frames[0].iter_rows()),
            "qrels": rows_hash(frames[1].iter_rows()),
        }
        total = {**sizes, **raw.counts, **counts, **blank}
        return Finished(stage.key.digest, total, {"tables": hashes})

    def _check_source(self, stage: Stage, layout: Mapping[str, Any]) -> None:
        """Refuses what was read where it is not of the source that the stage is named after."""
        self._unchanged(layout)
        now = fingerprint(self.config, data_home=Path(self.data_home))
        self._unchanged(layout)
        if now != stage.params["source"]:
            dropped(stage)
            raise changed_source(self.config)


def dropped(stage: Stage) -> None:
    """Removes all that is stored of a stage."""
    with stage.store.exclusive(stage.key):
        stage.artifact.discard()


def _told(stage: Stage, shard: Shard) -> PieceNotes:
    return PieceNotes(**json.loads(stage.artifact.read_part(shard.parts[1]).read_bytes()))


def _findings(told: Sequence[PieceNotes]) -> Findings:
    """The bad lines of all pieces, numbered as in their files.

    Raises:
        DesaError: a file could not be read to its end; the first one's reason.
    """
    findings, before, file = Findings(), 0, ""
    for own in told:
        before, file = (before if own.file == file else 0), own.file
        findings.retell(own.bad, before - own.shift)
        if own.stopped:
            what, where, hint = own.stopped
            place, _, number = where.rpartition(":")
            if place == own.file and number.isdecimal():
                where = f"{place}:{int(number) + before - own.shift}"
            raise DesaError(what, where=where, hint=hint)
        before += own.feeds
    return findings


@dataclass
class _Merged:
    """What merging found: the corpus's hash, ids that are listed twice, and of its ids those that
    are judged, with the least one.
    """

    content: str
    twice: list[str]
    known: set[str]


def _merge(
    stage: Stage, shards: Sequence[Shard], told: Sequence[PieceNotes], judged: set[str]
) -> _Merged:
    """Looks at all documents in the order of their ids, and notes where the parts begin."""
    rows, size = sum(own.rows for own in told), sum(own.size for own in told)
    starts = iter(part_bounds(rows, size)[1:-1])
    start, seen, digest = next(starts, None), 0, RowsDigest()
    edges: list[str] = []
    twice: list[str] = []
    known: set[str] = set()
    for piece in merged(runs_of(stage, shards), rows, size):
        ids = [key for key, _ in piece]
        if not known:
            known.add(ids[0])
        known.update(judged.intersection(ids))
        twice += [a for a, b in pairwise(ids) if a == b]
        digest.update(text_json(key, text) for key, text in piece)
        while start is not None and start < seen + len(ids):
            edges.append(ids[start - seen])
            start = next(starts, None)
        seen += len(ids)
    data = canonical_json({"edges": edges, "rows": rows, "size": size}).encode()
    stage.artifact.write_part(EDGES, data, rows=0)
    return _Merged(digest.hexdigest(), list(dict.fromkeys(twice)), known)


def runs_of(stage: Stage, shards: Sequence[Shard]) -> list[Run]:
    """The sorted runs of all pieces."""
    return open_runs(stage.artifact.read_part(shard.parts[0]) for shard in shards)


def part_bounds(rows: int, size: int) -> list[int]:
    """Bounds of the parts of a table of so many texts and bytes."""
    return bounds(rows, max(1, min(ROWS_A_PART, BYTES_A_PART * rows // max(1, size))))


def ingest_stage(record: Stage, config: DatasetConfig, data_home: Path, pool: Pool) -> Stage:
    """The stage that reads what `record` (of `record_stage`) is the record of."""
    work = IngestWork(config, str(data_home), pool)
    return Stage(record.store, "ingest", 1, record.params, work, label=record.label)


def large(config: DatasetConfig, data_home: Path) -> bool:
    """Whether a collection is read in pieces."""
    reader = piece_reader(config)
    return reader is not None and reader.corpus(config, data_home).size() >= LARGE
