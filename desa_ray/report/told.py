"""One query's story from a study: which records it uses."""

from collections.abc import Sequence
from typing import Any

from desa_ray.errors import DesaError, listed
from desa_ray.report.cases import side_by_side
from desa_ray.report.stored import StoredFusion
from desa_ray.report.story import Story
from desa_ray.report.study import Study
from desa_ray.store.artifacts import Store


def told(
    study: Study,
    store: Store,
    query: str,
    *,
    method: str | None = None,
    dataset: str | None = None,
    draw: int = 0,
    beside: Sequence[str] = (),
) -> str:
    """The story of a query as Markdown.

    Args:
        store: what holds the fusions of the records.
        method: whose story, against the study's baseline; None for the study's own.
        dataset: where several have such a query.
        draw: of the method.
        beside: further methods, whose top lists are shown side by side.

    Raises:
        DesaError: no record or several fit; the store lacks a fusion.
    """
    method = method or study.roles.own
    known: list[str] = []
    for name in [dataset] if dataset else study.datasets:
        cell = study.cell(name, method)
        if cell and query in cell.queries:
            known.append(name)
    if len(known) != 1:
        what = (
            f"{listed(known)} have a query {query}"
            if known
            else f"no cell of {method} has a query {query}"
        )
        hint = "choose one with story.dataset=" if known else "see story.method= and story.dataset="
        raise DesaError(what, where="query", hint=hint)
    pair = (study.roles.base, 0), (method, draw)
    rows = [_record(study, known[0], name, query, own) for name, own in pair]
    stores = (
        StoredFusion(store, rows[0]["fusion_key"]),
        StoredFusion(store, rows[1]["fusion_key"]),
    )
    text = Story(rows[0], rows[1], stores).markdown()
    if beside:
        rows += [_record(study, known[0], name, query, draw) for name in beside]
        text += f"\n{side_by_side(rows, stores[1].grades(query))}"
    return text


def _record(study: Study, dataset: str, method: str, query: str, draw: int) -> dict[str, Any]:
    """A method's record of a query; a method with one draw has that one whatever is asked for."""
    cell = study.cell(dataset, method)
    wanted = 0 if cell is not None and cell.draws == 1 else draw
    found = [] if cell is None else cell.records.filter(query_id=query, draw=wanted).to_dicts()
    if cell is None or not found:
        what = f"no record of {method}, draw {wanted}"
        raise DesaError(what, where=f"query {query}", hint="add the run that has it")
    return {**found[0], "kappa": cell.kappa, "method": method, "dataset": dataset}
