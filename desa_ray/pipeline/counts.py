"""How much a piece of work produced, counted from the parts that it stored: numbers for progress
and metrics.
"""

from collections.abc import Iterator, Sequence

from desa_ray.pipeline.stage import Count, Stage


def part_counts(stage: Stage, parts: Sequence[str]) -> Iterator[Count]:
    """Rows and bytes of the stored parts of one shard, and what its kind of stage counts beside
    them.
    """
    artifact = stage.artifact
    found = [artifact.part(name) for name in parts]
    infos = [info for info in found if info is not None]
    labels = {"stage": stage.name}
    rows = max((info.rows for info in infos), default=0)  # parts of a shard hold the same rows
    yield Count("rows", rows, labels)
    yield Count("bytes_written", sum(info.bytes for info in infos), labels)
    yield from stage.work.metrics(stage, parts)
