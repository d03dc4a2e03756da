"""Which rule fuses the channels of a method: its own, or that of the `fusion` group; and everything
that is wrong with the choice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from desa_ray.config import DEFAULT_RULE, FusionConfig, MethodConfig, RunConfig
from desa_ray.core.fusion.registry import FUSIONS
from desa_ray.core.fusion.weights import TOP_SCORES
from desa_ray.core.rules.kinds import ALIASES, KINDS, uses_kappa
from desa_ray.errors import DesaError, choices
from desa_ray.experiment.methods import BY_SCORES, ORIGINAL, SCORE, has_reference
from desa_ray.stages.plugged import rule_names
from desa_ray.stages.rule_fusion import SCORE_RULES, score_rule

LEAST = {"dense": "-1", "sparse": "0"}  # of a dot product of unit vectors, of BM25
OF_SCORES = ("normaliser", "mean", "least", "most")


def with_rule(method: MethodConfig, fusion: FusionConfig) -> MethodConfig:
    """The method as it is fused: with a rule, weights and a prefix that the group gives it."""
    name = method.fusion
    if name == DEFAULT_RULE:
        name = ALIASES.get(fusion.rule, fusion.rule)
    given = fusion.weights or {}
    weights = [given.get(channel.kind, channel.weight) for channel in method.channels]
    if name in KINDS and method.weighting == "fixed":
        weights = KINDS[name].fitted(weights)
    channels = tuple(
        replace(channel, weight=weight)
        for channel, weight in zip(method.channels, weights, strict=True)
    )
    prefix = method.prefix or fusion.prefix
    if name in BY_SCORES:
        prefix = prefix or TOP_SCORES
    return replace(method, fusion=name, channels=channels, prefix=prefix)


def fused_config(config: RunConfig) -> RunConfig:
    """The configuration with its method as it is fused."""
    return replace(config, method=with_rule(config.method, config.fusion))


def rule_params(method: MethodConfig, fusion: FusionConfig) -> dict[str, Any]:
    """What enters a fusion's parameters with a rule of scores; nothing with any other.

    Args:
        method: as it is fused (`with_rule`).
    """
    if method.fusion not in SCORE_RULES:
        return {}
    least = {**LEAST, **{kind: str(value) for kind, value in (fusion.least or {}).items()}}
    most = {kind: str(value) for kind, value in (fusion.most or {}).items()}
    used = _limits(method.fusion, fusion)
    bounds: list[list[str | None]] = []
    for channel in method.channels:
        own = {"least": least[channel.kind], "most": most.get(channel.kind)}
        bounds.append([own[name] if name in used else None for name in ("least", "most")])
    rule = {"normaliser": _normaliser(method.fusion, fusion), "mean": fusion.mean, "bounds": bounds}
    return {"rule": rule}


def kappa_of(fusion: FusionConfig, methods: Sequence[MethodConfig]) -> Fraction | None:
    """Kappa, where the rule that fuses one of the methods has one."""
    rules = [with_rule(method, fusion).fusion for method in methods]
    return fusion.kappa if any(map(uses_kappa, rules)) else None


def fused_methods(config: RunConfig) -> list[MethodConfig]:
    """What a cell fuses: its method, and the original query's lists where it is compared with
    them.
    """
    return [config.method, *([ORIGINAL] if has_reference(config.method) else [])]


def _normaliser(name: str, fusion: FusionConfig) -> str | None:
    return fusion.normaliser or KINDS[name].sweep_normaliser


def _limits(name: str, fusion: FusionConfig) -> tuple[str, ...]:
    """Which declared limits of scores a rule uses."""
    settings = {
        "normaliser": _normaliser(name, fusion),
        "mean": fusion.mean,
        "bounds": [["0", "1"]],
    }
    chosen = score_rule({"fusion": name, "rule": settings}, [Fraction(1)], [0]).normaliser
    assert chosen is not None
    return chosen.needs if chosen.whole or chosen.needs else ("least", "most")


def rule_problems(config: RunConfig) -> Iterator[DesaError]:
    """Everything wrong with the rule that fuses a method."""
    fusion, method = config.fusion, config.method
    known = [*rule_names(), *BY_SCORES, *ALIASES]
    if fusion.rule not in known:
        yield DesaError(
            f"unknown rule {fusion.rule!r}", where="fusion.rule", hint=choices(fusion.rule, known)
        )
        return
    own = with_rule(method, fusion)
    if method.fusion != DEFAULT_RULE and fusion.rule not in (DEFAULT_RULE, method.fusion):
        what = f"method {method.name} is fused by {method.fusion!r}, not by {fusion.rule!r}"
        yield DesaError(what, where="fusion.rule", hint="use fusion=rrf with it, or another method")
    yield from _setting_problems(own, fusion)
    if fusion.weights and method.weighting == "confidence":
        what = f"method {method.name} weighs its channels by confidence"
        yield DesaError(what, where="fusion.weights", hint="leave them out")
    if fusion.replay == "release" and own.fusion not in (SCORE, *FUSIONS):
        what = f"replay 'release' supports rrf and score, not {own.fusion!r}"
        yield DesaError(what, where="fusion.replay", hint="use replay=exact")


def _setting_problems(own: MethodConfig, fusion: FusionConfig) -> Iterator[DesaError]:
    """What is wrong with settings of rules of scores."""
    if own.fusion not in SCORE_RULES:
        for name in OF_SCORES:
            if getattr(fusion, name) is not None:
                what = f"rule {own.fusion!r} has no {name}"
                yield DesaError(what, where=f"fusion.{name}", hint="leave it out")
        return
    try:
        params = {"fusion": own.fusion, **rule_params(own, fusion)}
        weights = [channel.weight for channel in own.channels]
        if all(weight > 0 for weight in weights):
            score_rule(params, weights, range(len(weights)))
        for name in ("least", "most"):
            if getattr(fusion, name) is not None and name not in _limits(own.fusion, fusion):
                what = f"the normaliser of {own.fusion!r} does not use a declared {name}"
                yield DesaError(what, where=f"fusion.{name}", hint="leave it out")
    except DesaError as error:
        place = f"fusion.{error.where}".replace("fusion.bounds", "fusion.most")
        yield DesaError(error.what, where=place, hint=error.hint)
