"""A search over settings with Optuna: what to try next and the results so far, kept in one
database.

Only Optuna's ask-and-tell interface is used: a batch of trials is proposed together, computed as
one graph, and reported together. The same search continues where it stopped: finished trials are
not proposed again, and those proposed but never reported (because the process was killed) come
first. The sampler of a batch is seeded by the search's seed and the number of trials before it, so
that an interrupted search proposes what it would have proposed.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from desa_ray.errors import DesaError, choices
from desa_ray.locks import SEARCH, holder, tried
from desa_ray.types import sha256_json

INSTALL = "install the optuna extra: pip install 'desa-ray[optuna]'"
# Objectives of which less is better; of all others, more.
LESS = ("depth_", "sparse_support", "support_ratio", "dense_exhausted", "sparse_exhausted")
Value = str | int | float | bool


@dataclass(frozen=True)
class Choices:
    """One of some values, without an order."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Numbers:
    """A number from `low` to `high`, both included; every `step`, or any for None.

    Attributes:
        log: equal ratios are equally likely, not equal differences.
    """

    low: float
    high: float
    step: float | None = None
    whole: bool = False
    log: bool = False


Space = Mapping[str, Choices | Numbers]


@dataclass(frozen=True)
class Trial:
    """One point to try: its number in the search, and a value per setting."""

    number: int
    values: Mapping[str, Value]


def minimised(objective: str) -> bool:
    """Whether less of an objective is better: depths and supports; more is, of anything else."""
    return objective.startswith(LESS)


class Search:
    """The trials of one space, its objectives and fixed settings.

    Args:
        space: what is searched.
        objectives: names of metrics; several give a Pareto front.
        fixed: what else decides the results, such as the fixed overrides and what the data hold;
            part of the identity.
        seed: of the sampler.
        storage: address of the database; None keeps the trials in memory.
        locks: folder of the locks that keep a search for one process; None takes none.

    Raises:
        DesaError: Optuna is not installed, another process is at this search, or the database
            cannot be used.
    """

    def __init__(
        self,
        space: Space,
        objectives: Sequence[str],
        *,
        fixed: Sequence[str] = (),
        seed: int = 0,
        storage: str | None = None,
        locks: Path | None = None,
    ):
        try:
            import optuna
        except ImportError:
            what = "a search needs Optuna, which is not installed"
            raise DesaError(what, where="objective", hint=INSTALL) from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        logging.getLogger("alembic").setLevel(logging.ERROR)
        self.space, self.objectives, self.seed = space, list(objectives), seed
        told = {name: repr(own) for name, own in space.items()}
        self.name = sha256_json([told, self.objectives, sorted(fixed), seed])[:16]
        self._optuna = optuna
        self._lock = None if locks is None else self._alone(locks)
        try:
            self._study = optuna.create_study(
                study_name=self.name,
                storage=storage,
                directions=["minimize" if minimised(own) else "maximize" for own in objectives],
                load_if_exists=True,
            )
        except Exception as error:  # of Optuna, SQLAlchemy, alembic or the disk
            said = " ".join(str(error).split())[:200]
            raise DesaError(
                f"cannot be used: {said}",
                where="the database of searches",
                hint="move it elsewhere",
            ) from error
        self._asked: dict[int, Any] = {}
        self._again()

    def _alone(self, folder: Path) -> FileLock:
        """The lock of this search: a second process would propose again what the first computes."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.name}.lock"
        lock = tried(SEARCH, file)
        if lock is None:
            what = f"search {self.name} is running in another command ({holder(file)})"
            hint = "wait until it has ended, or start another with hydra.sweeper.seed=1"
            raise DesaError(what, where="objective", hint=hint)
        return lock

    def close(self) -> None:
        """Let other processes continue the search."""
        if self._lock is not None:
            self._lock.release()

    def _again(self) -> None:
        """Puts trials first that an earlier process proposed but never reported."""
        states = self._optuna.trial.TrialState
        for trial in self._study.get_trials(deepcopy=False, states=(states.RUNNING,)):
            self._study.tell(trial.number, state=states.FAIL)
            self._study.enqueue_trial(trial.params)

    @property
    def finished(self) -> int:
        """How many trials have a value."""
        return len(self._complete())

    def _complete(self) -> list[Any]:
        state = self._optuna.trial.TrialState.COMPLETE
        return self._study.get_trials(deepcopy=False, states=(state,))

    def ask(self, count: int) -> list[Trial]:
        """The next trials, to be computed together."""
        # Of finished trials: those that failed, or were never told, count in no seed.
        seed = int(sha256_json([self.seed, self.finished])[:8], 16)
        self._study.sampler = self._optuna.samplers.TPESampler(
            seed=seed, constant_liar=True, multivariate=True
        )
        trials = []
        for _ in range(count):
            asked = self._study.ask()
            self._asked[asked.number] = asked
            values = {name: _suggested(asked, name, own) for name, own in self.space.items()}
            trials.append(Trial(asked.number, values))
        return trials

    def tell(self, trial: Trial, metrics: Mapping[str, Any] | None) -> None:
        """Report the result of a trial; None for one that failed.

        Raises:
            DesaError: an objective is not a metric of the cell.
        """
        state = self._optuna.trial.TrialState.FAIL
        if metrics is None:
            self._study.tell(self._asked.pop(trial.number), state=state)
            return
        for name in self.objectives:
            if name not in metrics:
                raise DesaError(
                    f"no metric {name!r}", where="objective", hint=choices(name, metrics, 40)
                )
        found = [metrics[name] for name in self.objectives]
        if any(value is None or not math.isfinite(value) for value in found):
            self._study.tell(self._asked.pop(trial.number), state=state)
            return
        self._study.tell(self._asked.pop(trial.number), found)

    def best(self) -> list[Trial]:
        """The best trial, or the Pareto front of several objectives, in the order of numbers."""
        if not self._complete():
            return []
        found = self._study.best_trials if len(self.objectives) > 1 else [self._study.best_trial]
        return [Trial(own.number, own.params) for own in sorted(found, key=lambda own: own.number)]

    def table(self) -> list[dict[str, Any]]:
        """Every trial that was reported: number, state, values of settings and objectives."""
        rows = []
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state.is_finished():
                values = trial.values or [None] * len(self.objectives)
                own = dict(zip(self.objectives, values, strict=True))
                rows.append(
                    {
                        "trial": trial.number,
                        "state": trial.state.name.lower(),
                        "settings": dict(trial.params),
                        "objectives": own,
                    }
                )
        return rows


def _suggested(trial: Any, name: str, own: Choices | Numbers) -> Value:
    if isinstance(own, Choices):
        return trial.suggest_categorical(name, own.values)
    if own.whole:
        step = 1 if own.step is None or own.log else int(own.step)
        return trial.suggest_int(name, int(own.low), int(own.high), step=step, log=own.log)
    step = None if own.log else own.step
    return trial.suggest_float(name, own.low, own.high, step=step, log=own.log)
