"""The families of fusion rules by name: how a list contributes, and which numbers and choices a
rule takes (method.md section 6.12).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

from desa_ray.core.rules import combine
from desa_ray.core.rules.combine import Combine
from desa_ray.core.rules.normalise import NORMALISERS, OPENSEARCH, Normaliser
from desa_ray.errors import DesaError

Share = Callable[[Fraction, Fraction, int], Fraction]
Named = TypeVar("Named")


@dataclass(frozen=True)
class RuleKind:
    """A family of rules.

    Attributes:
        share: weight, kappa and rank to a list's contribution; None where it is made of scores.
        combined: contributions to the fused score; None where a mean must be chosen.
        proportional: whether a contribution is proportional to the list's weight.
        wants_kappa: whether shares use kappa, which is above -1.
        kappa_name, least_kappa: what the rule's source calls it, and how small it may be there.
        normaliser: of scores, unless another is chosen; "" for rules of ranks.
        normalisers: those that can be chosen.
        fixed_normaliser: whether none can be chosen.
        sweep_normaliser: the default of experiments, where it is not `normaliser`.
        clips: whether scores beyond the declared bounds are allowed.
        weights_sum_to_one: whether they have to.
    """

    share: Share | None
    combined: Combine | None = combine.total
    proportional: bool = True
    wants_kappa: bool = False
    kappa_name: str = "kappa"
    least_kappa: Fraction | None = None
    normaliser: str = ""
    normalisers: Mapping[str, Normaliser] = field(default_factory=lambda: NORMALISERS, hash=False)
    fixed_normaliser: bool = False
    sweep_normaliser: str | None = None
    clips: bool = False
    weights_sum_to_one: bool = False

    @property
    def by_scores(self) -> bool:
        """Whether contributions are made of scores."""
        return self.share is None

    @property
    def takes_mean(self) -> bool:
        """Whether one of `MEANS` can be chosen."""
        return self.combined is None

    def fitted(self, weights: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """The weights, divided by their sum where they have to sum to 1."""
        whole = sum(weights, Fraction(0))
        if not self.weights_sum_to_one or whole <= 0:
            return tuple(weights)
        return tuple(weight / whole for weight in weights)

    def small_kappa(self, kappa: Fraction) -> bool:
        """Whether kappa is below what the rule's source takes."""
        return self.least_kappa is not None and kappa < self.least_kappa


KINDS: dict[str, RuleKind] = {
    "rrf": RuleKind(lambda w, kappa, rank: w / (kappa + rank), wants_kappa=True),
    "qdrant_rrf": RuleKind(
        lambda w, k, rank: w / (rank + w * (k - 1)),
        proportional=False,
        wants_kappa=True,
        kappa_name="Qdrant's k",
        least_kappa=Fraction(1),
    ),
    "isr": RuleKind(lambda w, _, rank: w / (rank * rank), combine.counted),
    "log_isr": RuleKind(lambda w, _, rank: w / (rank * rank), combine.log_counted),
    "convex": RuleKind(None, normaliser="theoretical", weights_sum_to_one=True),
    "combsum": RuleKind(None, normaliser="none", sweep_normaliser="min_max"),
    "combmnz": RuleKind(None, combine.counted, normaliser="none", sweep_normaliser="min_max"),
    "dbsf": RuleKind(None, normaliser="dbsf", fixed_normaliser=True),
    "zscore": RuleKind(None, normaliser="z_score", fixed_normaliser=True),
    "opensearch": RuleKind(None, None, normaliser="min_max", normalisers=OPENSEARCH, clips=True),
}
WITHOUT_KAPPA = ("score",)  # of the fusions outside this table (desa_ray/core/fusion/scores.py)
ALIASES = {"weighted_rrf": "rrf"}  # weights are those of lists either way
KINDS.update({alias: KINDS[name] for alias, name in ALIASES.items()})


def uses_kappa(name: str) -> bool:
    """Whether a fusion uses kappa: a rule of another name, a plug-in's or an older one, may."""
    kind = KINDS.get(name)
    return name not in WITHOUT_KAPPA and (kind is None or kind.wants_kappa)


def without_effect(name: str) -> dict[str, str]:
    """Settings of fusion that a rule does not read, and why."""
    return {} if uses_kappa(name) else {"kappa": f"rule {name!r} has no kappa"}


def kind_of(name: str) -> RuleKind:
    """The family of a rule.

    Raises:
        DesaError: there is no such rule.
    """
    return named(KINDS, name, "rule")


def named(table: Mapping[str, Named], name: str, what: str) -> Named:
    """The entry of a table.

    Raises:
        DesaError: there is none of that name; lists those that there are.
    """
    if name not in table:
        known = ", ".join(sorted(table))
        raise DesaError(f"unknown {what} {name!r}", where=what, hint=f"use one of {known}")
    return table[name]
