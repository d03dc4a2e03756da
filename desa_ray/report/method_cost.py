"""What a query costs under each method, next to its effectiveness: tokens, encoded texts, seconds,
bytes.

A record's `fusion_key` leads to everything that its ranking was made from, and manifests in the
store record what each of those took. A method is charged for all of it, also where methods share
it, and for one draw: what a query costs when only this method runs. What is made once per corpus
(document vectors, postings) is left out, and so are rankings that diagnostics alone compare with.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from statistics import fmean

from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.cells import RecordedCell
from desa_ray.report.names import EFFECTIVENESS, method_name
from desa_ray.report.results import macro_of, outcome_column, over
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value
from desa_ray.store.artifacts import Store
from desa_ray.store.catalog import Entry
from desa_ray.store.makers import gpu_seconds

ONCE = ("collection", "selection", "corpus", "queries", "qrels")  # a corpus, not a query
ONCE += ("vectors", "snapshot_vectors", "postings")
COMPARED = "original_sparse"  # read by diagnostics of what the operators did
COSTS = (
    Column("prompt_tokens", "prompt tokens", "{:.1f}", help="of generated text, with retries"),
    Column("completion_tokens", "completion tokens", "{:.1f}", help="of generated text"),
    Column("generation_seconds", "generation s", "{:.3f}", help="seconds of generating workers"),
    Column("gpu_seconds", "GPU s", "{:.3f}", help="seconds of workers times their GPUs"),
    Column("encoded", "texts encoded", "{:.2f}", help="distinct texts given to the encoder"),
    Column("cpu_seconds", "CPU s", "{:.4f}", help="seconds of workers times their CPUs"),
    Column("bytes", "bytes stored", "{:.0f}", help="texts, vectors, rankings and fused runs"),
)
FRONTS = {"completion_tokens": "tokens", "cpu_seconds": "CPU", "bytes": "bytes"}
NEEDS = "needs the store that holds the runs: store.root"


@dataclass
class Cost:
    """What one draw of all queries of a cell took; None where a part of it is not known."""

    prompt_tokens: float | None = 0.0
    completion_tokens: float | None = 0.0
    generation_seconds: float | None = 0.0
    gpu_seconds: float | None = 0.0
    encoded: float | None = 0.0
    cpu_seconds: float | None = 0.0
    bytes: float | None = 0.0

    def add(self, **amounts: float | None) -> None:
        for name, amount in amounts.items():
            known = getattr(self, name)
            setattr(self, name, None if known is None or amount is None else known + amount)


@dataclass
class _Books:
    """The artifacts of a store by key, and what one query of each fused draw took."""

    store: Store
    entries: dict[str, Entry] = field(init=False)
    known: dict[str, Cost | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.entries = {entry.key.digest: entry for entry in self.store.list() if entry.key}

    def of_cell(self, cell: RecordedCell) -> Cost | None:
        """Means over draws, per query; None where the store lacks something."""
        draws = [self._of_draw(key) for key in cell.records["fusion_key"].unique()]
        if not draws or any(cost is None for cost in draws):
            return None
        return _mean([cost for cost in draws if cost])

    def _of_draw(self, digest: str) -> Cost | None:
        if digest not in self.known:
            self.known[digest] = self._counted(digest)
        return self.known[digest]

    def _counted(self, digest: str) -> Cost | None:
        total = Cost()
        for entry in self._made_from(digest):
            if entry is None:
                return None
            self._charge(total, entry)
        queries = self._counts(digest).get("rows", 0)
        return _per_query(total, queries) if queries else None

    def _made_from(self, digest: str) -> Iterator[Entry | None]:
        """The artifact and those that it needs, each once; None for one that is not there."""
        waiting, seen = [digest], {digest}
        while waiting:
            entry = self.entries.get(waiting.pop())
            if entry is None or entry.key is None:
                yield None
                continue
            if entry.stage in ONCE:
                continue
            yield entry
            inputs = (key for role, key in entry.key.inputs.items() if role != COMPARED)
            new = [key for key in inputs if key not in seen]
            seen.update(new)
            waiting += new

    def _counts(self, digest: str) -> Mapping[str, int]:
        key = self.entries[digest].key
        assert key
        return self.store.artifact(key).manifest()["counts"]

    def _charge(self, total: Cost, entry: Entry) -> None:
        assert entry.key
        artifact = self.store.artifact(entry.key)
        manifest = artifact.manifest()
        counts, meta = manifest["counts"], manifest["meta"]
        total.add(bytes=float(sum(part.bytes for part in artifact.parts().values())))
        seconds = _worker_seconds(meta)
        pool = meta.get("pool") or {"cpus": 1.0, "gpus": 0.0}
        if entry.stage == "generation":
            made = [maker for part in artifact.parts().values() for maker in part.made or ()]
            times = [maker["seconds"] for maker in made if maker.get("seconds") is not None]
            whole = bool(made) and not counts.get("reused") and len(times) == len(made)
            total.add(
                prompt_tokens=counts.get("prompt_tokens"),
                completion_tokens=counts.get("completion_tokens"),
                generation_seconds=sum(times) if whole else None,
                gpu_seconds=gpu_seconds(made) if whole else None,
            )
            return
        total.add(cpu_seconds=None if seconds is None else seconds * pool["cpus"])
        if pool["gpus"]:
            total.add(gpu_seconds=None if seconds is None else seconds * pool["gpus"])
        if entry.stage == "text_vectors":
            total.add(encoded=counts.get("distinct_texts"))


def _worker_seconds(meta: Mapping) -> float | None:
    """Seconds of all workers; extrapolated from the share that was computed."""
    share = meta.get("share_computed", 0.0)
    return meta["seconds"] * meta.get("workers", 1) / share if share else None


def _per_query(cost: Cost, queries: int) -> Cost:
    found = Cost()
    for part in fields(Cost):
        value = getattr(cost, part.name)
        setattr(found, part.name, None if value is None else value / queries)
    return found


def _mean(costs: Sequence[Cost]) -> Cost:
    found = Cost()
    for part in fields(Cost):
        values = [getattr(cost, part.name) for cost in costs]
        setattr(found, part.name, None if None in values else fmean(values))
    return found


def method_costs(store: Store, study: Study) -> dict[str, Cost]:
    """Costs of a query by method, macro over the data sets, for methods that are in all of them and
    in the store.
    """
    books = _Books(store)
    found = {}
    for method in study.methods:
        cells = [study.cell(dataset, method) for dataset in study.datasets]
        costs = [books.of_cell(cell) if cell else None for cell in cells]
        known = [cost for cost in costs if cost]
        if known and len(known) == len(costs):
            found[method] = _mean(known)
    return found


def method_cost_table(store: Store, study: Study, sampling: Sampling) -> Table | None:
    """A row per method: its effectiveness next to the cost of a query."""
    del sampling
    costs = method_costs(store, study)
    if not costs:
        return None
    rows = []
    for method, cost in costs.items():
        values: dict[str, Value] = {"method": method_name(method)}
        values |= {o.column: macro_of(study, method, o.column) for o in EFFECTIVENESS}
        values |= {part.name: getattr(cost, part.name) for part in fields(Cost)}
        values["front"] = _front(study, costs, method)
        rows.append(Row(values, {"method": method}))
    columns = (
        Column("method", "method"),
        *(outcome_column(outcome) for outcome in EFFECTIVENESS),
        *COSTS,
        Column(
            "front",
            "on the front of",
            help="no method has both more nDCG@10 and less of that cost",
        ),
    )
    return Table("method_cost", "Cost of a query", columns, rows, _notes(study, costs.values()))


def _front(study: Study, costs: Mapping[str, Cost], method: str) -> str | None:
    """The costs for which no other method is as cheap and better, or as good and cheaper; methods
    whose cost or effectiveness is not known are passed over.
    """
    found = []
    for name, title in FRONTS.items():
        points: dict[str, tuple[float, float]] = {}
        for other, cost in costs.items():
            amount, gain = getattr(cost, name), macro_of(study, other, "ndcg_at_10")
            if amount is not None and gain is not None:
                points[other] = amount, gain
        if method not in points or len(points) < 2:
            continue
        own = points[method]
        beaten = any(
            point[0] <= own[0] and point[1] >= own[1] and point != own for point in points.values()
        )
        if not beaten:
            found.append(title)
    return ", ".join(found) or None


def _notes(study: Study, costs: Iterable[Cost]) -> list[str]:
    known = list(costs)
    notes = [
        f"{over(study)}; per query and draw, as if only this method ran",
        "without what is made once per corpus: document vectors, postings",
    ]
    if any(cost.completion_tokens is None for cost in known):
        notes.append("tokens and generation s –: recorded texts carry none")
    if any(cost.cpu_seconds is None for cost in known):
        notes.append("CPU s –: a part was stored by another run, whose time is not recorded")
    notes.append(
        "CPU s counts the CPUs of a worker, busy or not; a run on a busy machine shows more"
    )
    return notes


def method_cost(store: Store) -> tuple[str, partial[Table | None], str]:
    """The table as a report takes it: name, builder, and what it needs."""
    return "cost of a query", partial(method_cost_table, store), NEEDS
