"""TREC files of a report: every method's top lists, and judgments."""

from collections.abc import Callable
from pathlib import Path

import polars as pl

from desa_ray.data.trec_writing import TAG, has_blanks, without_blanks, write_qrels, write_run
from desa_ray.path_names import path_names
from desa_ray.report.stored import StoredFusion
from desa_ray.report.study import Study
from desa_ray.store.artifacts import Store

RENAME = "rename it where the records are made, or leave out trec"


def export_trec(study: Study, store: Store, folder: Path, note: Callable[[str], None]) -> None:
    """Top lists as `DATASET/METHOD.drawN.trec`, judgments as `DATASET/qrels.txt`, of the main
    setting.
    """
    path_names(study.datasets, where="trec=true, column dataset", hint=RENAME)
    files = {method: method.replace(" ", "-") for method in study.methods}
    path_names(files.values(), where="trec=true, column method", hint=RENAME)
    for dataset in study.datasets:
        place = folder / dataset
        place.mkdir(parents=True, exist_ok=True)
        keys = {
            key
            for cell in study.cells
            if cell.dataset == dataset
            for key in cell.records["fusion_key"]
        }
        stored = [key for key in sorted(keys) if store.find("fusion", key)]
        qrels = StoredFusion(store, stored[0]).qrels if stored else None
        found = {method: study.cell(dataset, method) for method in study.methods}
        cells = {method: cell for method, cell in found.items() if cell}
        columns = [
            c
            for cell in cells.values()
            for c in (cell.records["query_id"], cell.records["top"].explode())
        ]
        odd = has_blanks(
            [*columns, *([] if qrels is None else [qrels["query_id"], qrels["doc_id"]])]
        )
        spelled = without_blanks if odd else str
        if odd:
            note(f"{dataset}: ids with blanks are percent-encoded in the TREC files")
        for method, cell in cells.items():
            for draw in cell.records.partition_by("draw", maintain_order=True):
                name = f"{files[method]}.draw{draw['draw'][0]}"
                rows = draw.sort("query_id").select("query_id", "top").iter_rows()
                rankings = {}
                for query_id, top in rows:
                    rankings[spelled(query_id)] = [spelled(document) for document in top]
                write_run(place / f"{name}.trec", rankings, tag=f"{TAG}-{name}")
        if qrels is None:
            note(
                f"{dataset}: no judgments written, the store {store.files.shown} does not have them"
            )
        else:
            names = pl.col("query_id", "doc_id").map_elements(spelled, return_dtype=pl.String)
            write_qrels(place / "qrels.txt", qrels.with_columns(names))
