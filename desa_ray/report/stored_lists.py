"""The lists of a method in a sweep, with judgments, as tuning reads them: the first 1,000 documents
of every channel from the store, with their scores if a score-based rule was run.
"""

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl

from desa_ray.core.fusion.weights import TOP_SCORES
from desa_ray.core.variants import Judged
from desa_ray.errors import DesaError, listed
from desa_ray.report.load import read_records
from desa_ray.report.stored import StoredFusion
from desa_ray.store.artifacts import Store
from desa_ray.store.tables import read_array

Lists = list[tuple[np.ndarray, list[Fraction]]]  # by query row: documents, scores


def stored_queries(
    folder: Path, method: str, dataset: str | None, store: Store
) -> tuple[list[str], dict[str, list[Judged]], list[str]]:
    """Names of the channels, the draws of every judged query, and the kinds of the channels.

    Raises:
        DesaError: no such method or data set, several data sets, or rankings that are not stored.
    """
    records = read_records(folder)
    rows = records.filter(pl.col("method") == method)
    if not rows.height:
        known = listed(sorted(set(records["method"])), 20)
        raise DesaError(f"no records of method {method!r}", where="--method", hint=f"use {known}")
    known = sorted(set(rows["dataset"]))
    if dataset is None and len(known) > 1:
        raise DesaError("several data sets", where="--dataset", hint=f"use one of {listed(known)}")
    rows = rows.filter(pl.col("dataset") == (dataset or known[0]))
    if not rows.height:
        what = f"no records of data set {dataset!r}"
        raise DesaError(what, where="--dataset", hint=f"use one of {listed(known)}")
    fusions = _cell(rows, store)
    channels = fusions[0].key.params["channels"]
    names = [channel["name"] for channel in channels]
    grades = _grades(fusions[0])
    rows_of = {query: row for row, query in enumerate(fusions[0].queries["id"])}
    found: dict[str, list[Judged]] = {query: [] for query in sorted(grades) if query in rows_of}
    for fusion in fusions:
        lists = [_lists(fusion, name) for name in names]
        for query, draws in found.items():
            own = [channel[rows_of[query]] for channel in lists]
            scores = [scores for _, scores in own]
            draws.append(Judged([docs for docs, _ in own], scores, grades[query]))
    return names, found, [channel["kind"] for channel in channels]


def _cell(rows: pl.DataFrame, store: Store) -> list[StoredFusion]:
    """The draws of the first cell that has scores; of the first cell where none has."""
    cells: list[list[StoredFusion]] = []
    for _, cell in rows.group_by("config_hash", maintain_order=True):
        keys = cell.sort("draw")["fusion_key"].unique(maintain_order=True)
        cells.append([StoredFusion(store, digest) for digest in keys])
    scored = [own for own in cells if "scores:" in " ".join(own[0].key.inputs)]
    return (scored or cells)[0]


def _grades(fusion: StoredFusion) -> dict[str, dict[int, int]]:
    """Positive judgments by document number; below 0 for documents that the corpus lacks."""
    numbers = {document: n for n, document in enumerate(fusion.corpus["id"])}
    found: dict[str, dict[int, int]] = {}
    positive = fusion.qrels.filter(pl.col("grade") > 0)
    judged = positive.select("query_id", "doc_id", "grade").sort("query_id", "doc_id")
    for query, document, grade in judged.iter_rows():
        own = found.setdefault(query, {})
        own[numbers.get(document, -1 - len(own))] = grade
    return found


def _lists(fusion: StoredFusion, name: str) -> Lists:
    inputs: Mapping[str, str] = fusion.key.inputs
    if digest := inputs.get(f"scores:{name}"):
        artifact = fusion.artifact("top_scores", digest)
        parts = sorted(part for part in artifact.parts() if part.startswith("scores-"))
        table = pl.concat(pl.read_parquet(artifact.read_part(p), glob=False) for p in parts)
        found: Lists = []
        for docs, scores in zip(table["docs"], table["scores"], strict=True):
            found.append((docs.to_numpy(), [Fraction(score) for score in scores.to_list()]))
        return found
    artifact = fusion.artifact("ranking", inputs[f"channel:{name}"])
    found = []
    for part in sorted(own for own in artifact.parts() if own.startswith("docs-")):
        beside = part.replace("docs-", "queries-").replace(".npy", ".parquet")
        lengths = pl.read_parquet(artifact.read_part(beside), glob=False)["length"].to_numpy()
        docs, start = read_array(artifact, part), 0
        for length in lengths.tolist():
            found.append((np.asarray(docs[start : start + min(length, TOP_SCORES)]), []))
            start += length
    return found
