"""The one entry point to collections: from a dataset configuration to a validated `Collection` or
its fingerprint.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from desa_ray.config import DatasetConfig
from desa_ray.data import beir_layout, beir_sets, demo, irds, msmarco, tables
from desa_ray.data.pieces import CorpusFiles
from desa_ray.data.raw import RawCollection
from desa_ray.data.source import holds_generations
from desa_ray.data.validate import validated
from desa_ray.errors import DesaError, listed
from desa_ray.lines import Findings
from desa_ray.plugins import plugin
from desa_ray.types import Collection, sha256_json

VERSION = 1  # raise it when the same source would become another collection


@dataclass(frozen=True)
class Reader:
    """How one kind of source is read and identified, and where recorded generations come with it,
    if they do.
    """

    read: Callable[[DatasetConfig, Path, Findings], RawCollection]
    identity: Callable[[DatasetConfig, Path], str]
    generations: Callable[[DatasetConfig, Path], Path | None]
    pieces: "PieceReader | None" = None


@dataclass(frozen=True)
class PieceReader:
    """How a source is read whose documents tasks can read piece by piece.

    Attributes:
        corpus: the files of its documents.
        rest: as `Reader.read`, without the documents.
    """

    corpus: Callable[[DatasetConfig, Path], CorpusFiles]
    rest: Callable[[DatasetConfig, Path, Findings], RawCollection]


def _layout_reader(place: Callable[[DatasetConfig, Path], Path]) -> Reader:
    """The reader of collections in BEIR layout, which `place` finds."""

    def generations(config: DatasetConfig, home: Path) -> Path | None:
        source = place(config, home)
        if source.is_file() and holds_generations(source):
            hint = "unpack its folder generations/, and set generator.folder= to it"
            raise DesaError(
                "recorded texts cannot be read from a zip", where=str(source), hint=hint
            )
        folder = source / "generations"
        return folder if folder.is_dir() else None

    return Reader(
        lambda config, home, findings: beir_layout.read(
            place(config, home), config.split, findings
        ),
        lambda config, home: beir_layout.identity(place(config, home), config.split),
        generations,
        PieceReader(
            lambda config, home: beir_layout.corpus_files(place(config, home), config.split),
            lambda config, home, findings: beir_layout.read(
                place(config, home), config.split, findings, corpus=False
            ),
        ),
    )


def _given_path(config: DatasetConfig, _home: Path) -> Path:
    if config.path is None:
        raise DesaError(
            "no folder or zip given", where="dataset.path", hint="set it to one in BEIR layout"
        )
    return Path(config.path).expanduser()


class _FolderFormat(Protocol):
    """A module that reads collections in a folder."""

    def read(
        self, place: Path, split: str, findings: Findings, *, corpus: bool = True
    ) -> RawCollection: ...

    def identity(self, place: Path, split: str) -> str: ...

    def corpus_files(self, place: Path, split: str) -> CorpusFiles: ...


def _folder_reader(form: _FolderFormat) -> Reader:
    """The reader of collections in a folder that `dataset.path` names."""

    def generations(config: DatasetConfig, home: Path) -> Path | None:
        folder = _given_folder(config) / "generations"
        return folder if folder.is_dir() else None

    return Reader(
        lambda config, home, findings: form.read(_given_folder(config), config.split, findings),
        lambda config, home: form.identity(_given_folder(config), config.split),
        generations,
        PieceReader(
            lambda config, home: form.corpus_files(_given_folder(config), config.split),
            lambda config, home, findings: form.read(
                _given_folder(config), config.split, findings, corpus=False
            ),
        ),
    )


def _given_folder(config: DatasetConfig) -> Path:
    if config.path is None:
        raise DesaError("no folder given", where="dataset.path", hint="set it to the files' folder")
    return Path(config.path).expanduser()


READERS = {
    "demo": Reader(
        lambda config, home, findings: demo.load(),
        lambda config, home: demo.fingerprint(),
        lambda config, home: demo.generations_folder(),
    ),
    "beir_folder": _layout_reader(_given_path),
    "beir": _layout_reader(beir_sets.locate),
    "msmarco": _folder_reader(msmarco),
    "tables": _folder_reader(tables),
    "ir_datasets": Reader(
        lambda config, home, findings: irds.read(config),
        lambda config, home: irds.identity(config),
        lambda config, home: None,
    ),
}


def reader_of(kind: str) -> Reader:
    """The reader that `dataset.kind` names; a plug-in's is held to what the others are.

    Raises:
        DesaError: there is none such, or a plug-in cannot be loaded.
    """
    if kind in READERS:
        return READERS[kind]
    own = plugin("readers", kind, READERS, "dataset.kind")
    loaded = own.load()
    if not isinstance(loaded, Reader):
        raise own.wrong(f"is a {type(loaded).__name__}, expected Reader", "correct the plug-in")

    def read(config: DatasetConfig, home: Path, findings: Findings) -> RawCollection:
        found = own.called(loaded.read, config, home, findings)
        if not isinstance(found, RawCollection):
            raise own.wrong("did not return a RawCollection", "correct the plug-in")
        return found

    def identity(config: DatasetConfig, home: Path) -> str:
        return sha256_json([own.called(loaded.identity, config, home), own.identity])

    def generations(config: DatasetConfig, home: Path) -> Path | None:
        return own.called(loaded.generations, config, home)

    return Reader(read, identity, generations)


def load_collection(config: DatasetConfig, *, data_home: Path) -> Collection:
    """Reads and validates a collection.

    Args:
        config: what to read.
        data_home: folder where the public BEIR sets lie, or are downloaded to.

    Raises:
        Problems: everything wrong with the rows, together (method.md section 1).
        DesaError: the source is missing or unreadable as a whole.
    """
    findings = Findings()
    raw = reader_of(config.kind).read(config, data_home, findings)
    if config.queries is not None:
        _keep_queries(raw, config.queries, findings)
    return validated(
        raw, name=config.name, missing_relevant=config.missing_relevant, findings=findings
    )


def read_rest(config: DatasetConfig, data_home: Path, findings: Findings) -> RawCollection:
    """Rows of a collection whose documents are read in pieces, without these."""
    reader = piece_reader(config)
    assert reader is not None, config.kind
    raw = reader.rest(config, data_home, findings)
    if config.queries is not None:
        _keep_queries(raw, config.queries, findings)
    return raw


def piece_reader(config: DatasetConfig) -> PieceReader | None:
    """How the documents of a source are read in pieces; None where its kind has no such reader."""
    return READERS[config.kind].pieces if config.kind in READERS else None


def fingerprint(config: DatasetConfig, *, data_home: Path) -> str:
    """Hex SHA-256 that changes whenever `load_collection` would give something else; parses
    nothing.

    It covers the source's contents, not its place, and the settings that decide what becomes of
    them. The errors are those of a missing or unreadable source.
    """
    source = reader_of(config.kind).identity(config, data_home)
    chosen = [] if config.queries is None else [sorted(set(config.queries))]
    return sha256_json(
        [VERSION, config.name, config.split, config.missing_relevant, source, *chosen]
    )


def _keep_queries(raw: RawCollection, chosen: tuple[str, ...], findings: Findings) -> None:
    """Leaves only the chosen queries and their judgments; ids that do not exist are
    complained of.
    """
    wanted = set(chosen)
    if unknown := sorted(wanted - {query for query, _ in raw.queries}):
        hint = "name ids of the queries file, or leave out dataset.queries"
        findings.add(
            DesaError(
                f"queries that do not exist: {listed(unknown)}", where="dataset.queries", hint=hint
            )
        )
    raw.queries = [row for row in raw.queries if row[0] in wanted]
    raw.qrels = [row for row in raw.qrels if row[0] in wanted]


def generations_folder(config: DatasetConfig, *, data_home: Path) -> Path | None:
    """The folder with the texts recorded for this data set (`generations/` beside its files); None
    if it has none.
    """
    return reader_of(config.kind).generations(config, data_home)
