"""A plan as the user sees it: a table or a tree of its stages, grouped by kind, and the total that
is left.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from desa_ray.config import ClusterConfig
from desa_ray.errors import counted
from desa_ray.pipeline.estimates import Planned
from desa_ray.pipeline.feasible import GB, queries_per_shard
from desa_ray.pipeline.stage import Stage
from desa_ray.store.artifacts import Store
from desa_ray.terminal import PlainTable, PlainTree

COLUMNS = ("stage", "what", "stages", "items left", "time", "bytes", "workers")
ROUGH = "~~"
RIGHT = ("items left", "time", "bytes")
STATES = {
    "stored": "stored",
    "compute": "to compute",
    "resume": "half done",
    "not needed": "not needed",
}


@dataclass(frozen=True)
class Line:
    """Stages of one kind, shown together."""

    stages: Sequence[Planned]
    name: str
    what: str

    def cells(self, cluster: ClusterConfig, detail: bool) -> list[str]:
        """Texts of the columns."""
        counts = Counter(planned.state for planned in self.stages)
        if detail:
            (planned,) = self.stages
            done, shards = planned.shards
            state = STATES[planned.state] + (f" ({done} of {shards} shards)" if done else "")
            state += f" [{planned.stage.key.short}]"
        else:
            state = ", ".join(
                f"{counts[state]} {words}" for state, words in STATES.items() if counts[state]
            )
        left = [planned for planned in self.stages if planned.to_compute]
        if not left:
            return [self.name, self.what, state, "", "", "", ""]
        return [
            self.name,
            self.what,
            state,
            _items(left),
            _time(left),
            _bytes(left),
            _workers(cluster, left),
        ]


def plan_table(
    title: str, stages: Sequence[Planned], cluster: ClusterConfig, detail: bool
) -> PlainTable:
    """Inputs before users, a line per kind; with `detail`, a line per stage."""
    table = PlainTable(title=title, title_justify="left", title_style="")
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in RIGHT else "left", overflow="fold")
    for line in _lines(stages, detail):
        table.add_row(*line.cells(cluster, detail))
    return table


def plan_tree(
    title: str, stages: Sequence[Planned], cluster: ClusterConfig, detail: bool
) -> PlainTree:
    """Results at the top, below each what it is computed from; a kind that was shown before only by
    its name.
    """
    lines = _lines(stages, detail)
    line_of = {planned.stage.key.digest: line for line in lines for planned in line.stages}
    inputs = {}
    for line in lines:
        sources = [s for p in line.stages for s in p.stage.inputs.values()]
        feeding = [line_of[s.key.digest] for s in sources]
        inputs[id(line)] = list({id(own): own for own in feeding if own}.values())
    used = {id(own) for owns in inputs.values() for own in owns}
    shown: set[int] = set()
    root = PlainTree(title)

    def add(branch: PlainTree, line: Line) -> None:
        name, what, state, *rest = line.cells(cluster, detail)
        title = f"{name} {what}".strip()
        if id(line) in shown and inputs[id(line)]:
            branch.add(f"{title} (above)")
            return
        shown.add(id(line))
        own = branch.add(f"{title}: {state}" + "".join(f"; {text}" for text in rest if text))
        for source in inputs[id(line)]:
            if source is not line:
                add(own, source)

    for line in lines:
        if id(line) not in used:
            add(root, line)
    return root


def totals(store: Store, stages: Sequence[Planned]) -> list[str]:
    """What is left in all, and whether it fits the disk."""
    left = [planned for planned in stages if planned.to_compute]
    counts = Counter(planned.state for planned in stages)
    unneeded = f", {counts['not needed']} not needed" if counts["not needed"] else ""
    lines = [f"{len(stages)} stages: {counts['stored']} stored, {len(left)} to compute{unneeded}"]
    if not left:
        return [*lines, "nothing is left to compute"]
    seconds = [planned.seconds for planned in left if planned.seconds is not None]
    unknown = len(left) - len(seconds)
    more = f"; {unknown} of the stages have no similar one in this store" if unknown else ""
    lines.append(
        f"time left: {_about(duration(sum(seconds))) if seconds else '?'}, one stage after"
        f" another{more}"
    )
    sizes = [planned.bytes for planned in left if planned.bytes is not None]
    more = (
        f", and {len(left) - len(sizes)} stages of unknown size" if len(sizes) < len(left) else ""
    )
    line = f"to be written: {_about(size(sum(sizes))) if sizes else '?'}{more}"
    free = store.files.free_bytes()
    if free is not None:
        line += f"; free on the disk of the store: {size(free)}"
        line += " - TOO LITTLE" if sum(sizes) > free else ""
    lines.append(line)
    if any(planned.rough for planned in left):
        lines.append(f"{ROUGH}: estimated from another model, operator or template")
    return lines


def growth(cluster: ClusterConfig) -> list[str]:
    """How far a running cluster may grow for this run, and what the run may take of it."""
    if cluster.kind != "existing":
        return []
    lines = []
    if cluster.max_nodes:
        kind = f"with {cluster.node_cpus:g} CPUs and {cluster.node_gpus:g} GPUs each"
        lines.append(f"the cluster may grow to {counted(cluster.max_nodes, 'node')} {kind}")
    if cluster.max_workers is not None:
        lines.append(f"this run takes at most {counted(cluster.max_workers, 'worker')}")
    if cluster.max_gpus is not None:
        lines.append(f"this run takes at most {cluster.max_gpus:g} GPUs")
    return lines


def _about(text: str) -> str:
    return text if text.startswith("<") else f"about {text}"


def duration(seconds: float) -> str:
    """No more digits than an estimate is worth."""
    if seconds < 1:
        return "<1 s"
    for limit, unit, length in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86_400:.1f} days"


def size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if number >= 10 or unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def _lines(stages: Sequence[Planned], detail: bool) -> list[Line]:
    if detail:
        return [Line([planned], planned.stage.name, planned.stage.label) for planned in stages]
    groups: dict[tuple[str, str], list[Planned]] = {}
    for planned in stages:
        groups.setdefault(
            (planned.stage.name, planned.stage.work.plan_group(planned.stage)), []
        ).append(planned)
    return [Line(own, name, what) for (name, what), own in groups.items()]


def _items(left: Sequence[Planned]) -> str:
    known = [planned for planned in left if planned.items is not None]
    if not known:
        return "?"
    bound = "at most " if any(planned.at_most for planned in known) else ""
    more = " + ?" if len(known) < len(left) else ""
    return f"{bound}{sum(planned.items or 0 for planned in known):,} {known[0].unit}{more}"


def _time(left: Sequence[Planned]) -> str:
    known = [planned.seconds for planned in left if planned.seconds is not None]
    return _sum(duration(sum(known)), len(known), left) if known else "?"


def _bytes(left: Sequence[Planned]) -> str:
    known = [planned.bytes for planned in left if planned.bytes is not None]
    return _sum(size(sum(known)), len(known), left) if known else "?"


def _sum(text: str, known: int, left: Sequence[Planned]) -> str:
    rough = any(planned.rough for planned in left)
    return (
        ("" if text.startswith("<") else ROUGH if rough else "~")
        + text
        + (" + ?" if known < len(left) else "")
    )


def _held(stage: Stage, cluster: ClusterConfig) -> int | None:
    full = stage.work.worker_bytes(stage, queries_per_shard(stage, cluster))
    return None if full is None else min(full, int(cluster.memory_gb * GB))


def _workers(cluster: ClusterConfig, left: Sequence[Planned]) -> str:
    """Pool, workers, what each takes, and the memory that the largest of its matrices needs."""
    stage, workers = left[0].stage, max(planned.workers for planned in left)
    pool = stage.work.pool
    if pool is None:
        return "this process"
    takes = f"{pool.cpus:g} CPU" + (f", {pool.gpus:g} GPU" if pool.gpus else "")
    held = [_held(own.stage, cluster) for own in left]
    memory = max((one for one in held if one), default=None)
    return f"{workers} {pool.kind}: {takes}" + (f", {size(memory)}" if memory else "")
