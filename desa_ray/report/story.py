"""One query's story as Markdown: its text, the generated passages, what moved in the fused top
list, and why.

"Why" is arithmetic: a document's place comes from weight/(kappa + rank) in each channel, so the
change of these terms between the reference and the method says which channel moved it.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from desa_ray.report.escapes import markdown
from desa_ray.report.names import dataset_name, method_name
from desa_ray.report.render import piped
from desa_ray.report.stored import Ranking, StoredFusion

SHOWN = 20
SNIPPET = 70
ABSENT = "–"
USED = (("κ", "kappa"), ("encoder", "encoder"), ("generator", "generator"))


class Story:
    """Two records of one query, the reference's and a method's, and what the store knows."""

    def __init__(
        self,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        stores: tuple[StoredFusion, StoredFusion],
    ):
        """`before` and `after` are rows of query records; `stores` belong to their fusion keys."""
        self.before, self.after = before, after
        self.base = markdown(method_name(str(before["method"])))
        self.query = str(after["query_id"])
        self.sources = stores
        self.rankings = tuple(source.rankings(self.query) for source in stores)
        self.grades = stores[1].grades(self.query)
        self.ids: list[str] = stores[1].corpus["id"].to_list()
        self.texts: list[str] = stores[1].corpus["text"].to_list()

    def markdown(self) -> str:
        """The whole story."""
        before, after = self.before, self.after
        method = markdown(method_name(str(after["method"])))
        dataset = markdown(dataset_name(str(after["dataset"])))
        source = self.sources[1]
        lines = [
            f"# Query {markdown(self.query)} of {dataset}: {method} against {self.base}",
            "",
            f"> {_line(source.queries['text'][source.row(self.query)])}",
            "",
            f"Draw {after['draw']}, "
            + ", ".join(
                f"{title} {markdown(after[n])}" for title, n in USED if after[n] is not None
            )
            + ".",
            "",
            *self._generated(),
            "## Before and after",
            "",
            *_table(["", self.base, method], self._facts()),
            "",
            f"## What moved in the fused top {after['k']}",
            "",
            *self._moved(),
            "",
        ]
        for kind in ("dense", "sparse"):
            own = []
            for side in self.rankings:
                own.append([ranking for ranking in side if ranking.kind == kind])
            if any(own):
                lines += [
                    f"## {kind.capitalize()} rankings, top {SHOWN}",
                    "",
                    *self._side_by_side(*own),
                    "",
                ]
        lines += [f"## Fused rankings, top {before['k']}", "", *self._fused(), "", *self._judged()]
        return "\n".join(lines).rstrip() + "\n"

    def _generated(self) -> list[str]:
        if self.after["fallback"]:
            return [
                "The generated text was invalid, so its channels use the query alone.",
                "",
            ]
        lines: list[str] = []
        for prompt, texts in self.sources[1].generated(self.query).items():
            used = self.after["n_refs"] if prompt == "references" else None
            part = f", of which the first {used} are used" if used and used < len(texts) else ""
            lines += [f"## Generated: {markdown(prompt)}{part}", ""]
            lines += [*(f"{n}. {_line(text)}" for n, text in enumerate(texts, 1)), ""]
        return lines

    def _facts(self) -> list[list[str]]:
        rows = []
        for title, column, form in (
            ("nDCG@10", "ndcg_at_10", "{:.4f}"),
            ("Recall@20", "recall_at_20", "{:.4f}"),
            ("depth of the dense ranking", "depth_dense", "{:d}"),
            ("depth of the sparse ranking", "depth_sparse", "{:d}"),
            ("documents in the sparse ranking", "sparse_support", "{:d}"),
            ("dense angle", "dense_angle_deg", "{:.2f}°"),
        ):
            values = (self.before[column], self.after[column])
            if any(value is not None for value in values):
                rows.append(
                    [title, *(ABSENT if value is None else form.format(value) for value in values)]
                )
        for kind in ("dense", "sparse"):
            ends = [self.before[f"{kind}_exhausted"], self.after[f"{kind}_exhausted"]]
            if any(ends):
                rows.append(
                    [f"{kind} ranking read to its end", *("yes" if end else "no" for end in ends)]
                )
        return rows

    def _moved(self) -> list[str]:
        before, after = list(self.before["top"]), list(self.after["top"])
        numbers = {document: number for number, document in enumerate(self.ids)}
        ranks = []
        for side in self.rankings:
            ranks.append([(ranking, ranking.ranks()) for ranking in side])
        rows = []
        for document in [*after, *(d for d in before if d not in after)]:
            places = [
                top.index(document) + 1 if document in top else None for top in (before, after)
            ]
            if places[0] == places[1]:
                continue
            at = [_places(side, numbers[document]) for side in ranks]
            rows.append(
                [
                    _place(places[0]),
                    _place(places[1]),
                    self._name(document),
                    self._grade(document),
                    *(
                        f"{_ranks(at[0], kind)} → {_ranks(at[1], kind)}"
                        for kind in ("dense", "sparse")
                    ),
                    self._why(at),
                    _line(self.texts[numbers[document]], SNIPPET),
                ]
            )
        if not rows:
            return ["Nothing: both top lists are the same."]
        return _table(
            ["before", "after", "document", "grade", "dense rank", "sparse rank", "why", "text"],
            rows,
        )

    def _why(self, at: Sequence[Sequence[tuple[Ranking, int | None]]]) -> str:
        """Each kind's change of weight/(kappa + rank), the largest first; only for plain reciprocal
        rank fusion.
        """
        if self.sources[1].key.params.get("fusion", "rrf") != "rrf":
            return ABSENT
        terms = [
            _terms(side, record, source)
            for side, record, source in zip(
                at, (self.before, self.after), self.sources, strict=True
            )
        ]
        changes = {
            kind: terms[1].get(kind, 0.0) - terms[0].get(kind, 0.0) for kind in ("dense", "sparse")
        }
        told = [
            f"{kind} {'lifts' if change > 0 else 'lowers'} it ({change:+.5f})".replace("-", "−")
            for kind, change in sorted(changes.items(), key=lambda item: -abs(item[1]))
            if abs(change) >= 5e-6
        ]
        return ", ".join(told) or "others moved around it"

    def _side_by_side(self, before: Sequence[Ranking], after: Sequence[Ranking]) -> list[str]:
        method = markdown(method_name(str(self.after["method"])))
        columns = [(f"{self.base}: {markdown(ranking.name)}", ranking) for ranking in before]
        columns += [(f"{method}: {markdown(ranking.name)}", ranking) for ranking in after]
        longest = max(len(ranking.docs) for _, ranking in columns)
        rows = []
        for place in range(min(SHOWN, longest)):
            row = [str(place + 1)]
            for _, ranking in columns:
                there = place < len(ranking.docs)
                row.append(self._name(self.ids[ranking.docs[place]]) if there else "")
            rows.append(row)
        return _table(
            ["rank", *(f"{title} ({len(ranking.docs)} documents)" for title, ranking in columns)],
            rows,
        )

    def _fused(self) -> list[str]:
        tops = [list(record["top"]) for record in (self.before, self.after)]
        rows = []
        for place in range(max(map(len, tops))):
            names = [self._name(top[place]) if place < len(top) else "" for top in tops]
            rows.append([str(place + 1), *names])
        return _table(["rank", self.base, markdown(method_name(str(self.after["method"])))], rows)

    def _judged(self) -> list[str]:
        if not self.grades:
            return ["No document is judged relevant."]
        lines = ["## Judged relevant", ""]
        texts = dict(zip(self.ids, self.texts, strict=True))
        for document, grade in sorted(self.grades.items(), key=lambda item: (-item[1], item[0])):
            text = _line(texts[document], 200) if document in texts else "not in the corpus"
            lines.append(f"- {markdown(document)} (grade {grade}): {text}")
        return lines

    def _name(self, document: str) -> str:
        """A document's id; bold where it is judged relevant."""
        return f"**{markdown(document)}**" if document in self.grades else markdown(document)

    def _grade(self, document: str) -> str:
        return str(self.grades.get(document, "")) or " "


def _places(
    side: Sequence[tuple[Ranking, Mapping[int, int]]], number: int
) -> list[tuple[Ranking, int | None]]:
    return [(ranking, ranks.get(number)) for ranking, ranks in side]


def _terms(
    at: Sequence[tuple[Ranking, int | None]], record: Mapping[str, Any], source: StoredFusion
) -> dict[str, float]:
    """Sum of weight/(kappa + rank) by kind of channel."""
    kappa, prefix = Fraction(str(record["kappa"])), source.key.params.get("prefix")
    weights = record.get("weights") or [ranking.weight for ranking, _ in at]
    sums: dict[str, float] = {}
    for (ranking, rank), weight in zip(at, weights, strict=True):
        if rank is not None and (prefix is None or rank <= prefix):
            sums[ranking.kind] = sums.get(ranking.kind, 0.0) + float(
                Fraction(str(weight)) / (kappa + rank)
            )
    return sums


def _ranks(at: Sequence[tuple[Ranking, int | None]], kind: str) -> str:
    return (
        "/".join(str(rank) if rank else "absent" for ranking, rank in at if ranking.kind == kind)
        or ABSENT
    )


def _place(place: int | None) -> str:
    return "out" if place is None else str(place)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of cells that are Markdown already."""
    return [piped(head), piped(["---"] * len(head)), *map(piped, rows)]


def _line(text: str, limit: int = 600) -> str:
    """Text as Markdown on one line, cut where it is long."""
    flat = " ".join(text.split())
    return markdown(flat if len(flat) <= limit else f"{flat[:limit].rstrip()} …")
