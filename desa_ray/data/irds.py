"""Any `ir_datasets` id as a collection. The package is an optional extra and is imported only here,
when asked for.

A document's title and text are its fields of these names where it has both; else the title is empty
and the text is what ir_datasets calls the default text. Queries likewise: the field `text`, else
the default text.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from desa_ray.config import DatasetConfig
from desa_ray.data.raw import RawCollection
from desa_ray.errors import DesaError
from desa_ray.memory import held


def read(config: DatasetConfig) -> RawCollection:
    """Rows of the data set `config.ir_datasets_id`, downloaded by ir_datasets where it must be.

    Raises:
        DesaError: the package is not installed, the id is unknown or has no documents, queries or
            qrels, or its files are not available.
    """
    dataset = _load(config)
    where = f"ir_datasets {config.ir_datasets_id}"
    parts = {
        "documents": dataset.has_docs,
        "queries": dataset.has_queries,
        "qrels": dataset.has_qrels,
    }
    if missing := [part for part, has in parts.items() if not has()]:
        raise DesaError(
            f"has no {', '.join(missing)}", where=where, hint="name a subset that has, e.g. …/test"
        )
    try:
        return RawCollection(
            list(held(_documents(dataset), where)),
            list(_queries(dataset)),
            list(_qrels(dataset)),
        )
    except DesaError:
        raise
    except Exception as error:  # each of its downloaders and parsers raises errors of its own
        raise DesaError(f"cannot be read: {type(error).__name__}: {error}", where=where) from error


def identity(config: DatasetConfig) -> str:
    """Hex SHA-256 over the rows: an id can be registered again, and its files' places are
    ir_datasets' own affair.
    """
    raw = read(config)
    digest = hashlib.sha256()
    for rows in (raw.documents, raw.queries, raw.qrels):
        digest.update(b"%d rows\n" % len(rows))
        for row in rows:
            # ASCII, as texts are not yet known to have a UTF-8 form
            digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()


def _load(config: DatasetConfig) -> Any:
    if config.ir_datasets_id is None:
        raise DesaError(
            "no id given", where="dataset.ir_datasets_id", hint="set it, e.g. to beir/nfcorpus/test"
        )
    try:
        import ir_datasets
    except ImportError:
        raise DesaError(
            "the package ir_datasets is not installed",
            where=f"dataset {config.name}",
            hint="pip install 'desa-ray[ir-datasets]'",
        ) from None
    try:
        return ir_datasets.load(config.ir_datasets_id)
    except KeyError:
        raise DesaError(
            f"ir_datasets knows no {config.ir_datasets_id!r}",
            where="dataset.ir_datasets_id",
            hint="`ir_datasets list` prints the ids",
        ) from None


def _documents(dataset: Any) -> Iterator[tuple[str, str, str]]:
    titled = {"title", "text"} <= set(dataset.docs_cls()._fields)
    for document in dataset.docs_iter():
        yield (
            document.doc_id,
            document.title if titled else "",
            document.text if titled else document.default_text(),
        )


def _queries(dataset: Any) -> Iterator[tuple[str, str]]:
    plain = "text" in dataset.queries_cls()._fields
    for query in dataset.queries_iter():
        yield query.query_id, query.text if plain else query.default_text()


def _qrels(dataset: Any) -> Iterator[tuple[str, str, int]]:
    for judgment in dataset.qrels_iter():
        yield judgment.query_id, judgment.doc_id, judgment.relevance
