"""Measuring: CPU time of this process, ours and the baseline's in turns, medians, one ratio."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Target:
    """What a number must reach: at least (or, with `most`, at most) the bound."""

    bound: float
    most: bool = False

    def met(self, value: float) -> bool:
        return value <= self.bound if self.most else value >= self.bound

    def __str__(self) -> str:
        return f"{'≤' if self.most else '≥'} {self.bound:g}"


@dataclass(frozen=True)
class Measured:
    """One line of the table.

    Attributes:
        name: the benchmark's letter and what it is.
        ours, baseline: what is compared, in words.
        ours_s, baseline_s: medians, in seconds (CPU time unless the words say otherwise); None
            without a baseline.
        value: the number that the target is about; `unit` says what it is (× for a ratio baseline /
            ours).
        target: None where a number is only reported.
        more: anything else worth keeping.
    """

    name: str
    ours: str
    baseline: str
    ours_s: float
    baseline_s: float | None
    value: float
    unit: str
    target: Target | None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.target.met(self.value)

    def document(self) -> dict[str, Any]:
        target = None if self.target is None else str(self.target)
        return {**asdict(self), "target": target, "met": self.met}


def cpu_s(work: Callable[[], Any]) -> float:
    """CPU seconds of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def in_turns(
    ours: Callable[[], Any], baseline: Callable[[], Any], repeats: int
) -> tuple[float, float]:
    """Median CPU seconds of both, each called `repeats` times, alternating."""
    pairs = [(cpu_s(ours), cpu_s(baseline)) for _ in range(repeats)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def ratio(
    name: str,
    ours: str,
    baseline: str,
    seconds: tuple[float, float],
    bound: float | None,
    **more: Any,
) -> Measured:
    """A line whose number is how many times faster we are."""
    ours_s, baseline_s = seconds
    target = None if bound is None else Target(bound)
    return Measured(
        name, ours, baseline, ours_s, baseline_s, baseline_s / ours_s, "×", target, more
    )
