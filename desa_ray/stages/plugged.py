"""Operators and fusion rules by name: those of the platform, and those of plug-ins, whose results
are checked.

Foreign code may return anything; what enters a ranking or a record has the right shape and values,
or the run ends with one line that names the plug-in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from desa_ray.config import RunConfig
from desa_ray.core.feedback import FEEDBACK
from desa_ray.core.fusion.depth import Replay
from desa_ray.core.fusion.registry import FUSIONS, Fusion, fusion_of
from desa_ray.core.operators import DENSE_OPERATORS, SPARSE_OPERATORS, DenseOperator, SparseOperator
from desa_ray.core.query_text import DENSE_TEXTS, SPARSE_TEXTS
from desa_ray.core.reweighting import SPARSE_TERMS
from desa_ray.data.load import READERS
from desa_ray.engines.plugged import ENCODERS, GENERATORS
from desa_ray.engines.prompts import shipped_prompts
from desa_ray.engines.vectors import check_unit_rows
from desa_ray.errors import DesaError, listed
from desa_ray.plugins import Identity, Plugin, known_names, plugin, plugins

OPERATORS: Mapping[str, Mapping[str, DenseOperator | SparseOperator]] = {
    "dense": DENSE_OPERATORS,
    "sparse": SPARSE_OPERATORS,
}
KINDS: Mapping[str, type] = {"dense": DenseOperator, "sparse": SparseOperator}
SOURCES = {"dense": [*DENSE_TEXTS], "sparse": [*SPARSE_TEXTS, *SPARSE_TERMS, *FEEDBACK]}
CORRECT = "correct the plug-in"


def operator_of(
    kind: str, name: str, expected: Identity | None = None
) -> DenseOperator | SparseOperator:
    """The operator that a channel names.

    Args:
        kind: of the channel, dense or sparse.
        expected: the plug-in's identity in the plan; None where this is the plan.

    Raises:
        DesaError: there is none such, or a plug-in is not what it should be.
    """
    if name in OPERATORS[kind] and expected is None:
        return OPERATORS[kind][name]
    return _operator(kind, name, tuple(sorted((expected or {}).items())))


def operator_names(kind: str) -> list[str]:
    """Every operator that a channel of this kind can name."""
    return known_names("operators", OPERATORS[kind])


def operator_plugin(kind: str, name: str) -> Identity | None:
    """The identity that enters keys with an operator's name; None for the platform's own."""
    return None if name in OPERATORS[kind] else _found("operators", name, OPERATORS[kind]).identity


def rule_of(name: str, replay: str = "exact", expected: Identity | None = None) -> Fusion:
    """The fusion rule that a method names; arguments and errors as for `operator_of`."""
    if name in FUSIONS and expected is None:
        return fusion_of(name, replay)
    return _rule(name, tuple(sorted((expected or {}).items())))


def rule_names() -> list[str]:
    """Every fusion rule that ranks are fused by."""
    return known_names("fusion", FUSIONS)


def rule_plugin(name: str) -> Identity | None:
    """The identity that enters keys with a fusion rule's name; None for the platform's own."""
    return None if name in FUSIONS else _found("fusion", name, FUSIONS).identity


def named_plugins(config: RunConfig) -> dict[str, Identity]:
    """`group: name` -> identity of every plug-in that a configuration names, for comparing with
    other machines. Prompts are not among them: their words travel with the work.
    """
    named: list[tuple[str, str, Mapping[str, Any]]] = []
    for channel in config.method.channels:
        named.append(("operators", channel.operator, OPERATORS[channel.kind]))
    if config.method.fusion in plugins("fusion"):
        named.append(("fusion", config.method.fusion, FUSIONS))
    for group, _, name, known in engines_named(config):
        named.append((group, name, known))
    return {
        f"{group}: {name}": plugins(group)[name].identity
        for group, name, known in named
        if name not in known
    }


def engines_named(config: RunConfig) -> list[tuple[str, str, str, Mapping[str, Any]]]:
    """Group, setting, name, and the platform's own names, of the engines and the reader that a
    configuration names.
    """
    encoders, generators = dict.fromkeys(ENCODERS), dict.fromkeys(GENERATORS)
    return [
        ("encoders", "encoder.backend", config.encoder.backend, encoders),
        ("generators", "generator.kind", config.generator.kind, generators),
        ("readers", "dataset.kind", config.dataset.kind, READERS),
    ]


def own_names() -> dict[str, list[str]]:
    """The platform's own names by group of plug-ins, which a plug-in must not take."""
    return {
        "operators": [*DENSE_OPERATORS, *SPARSE_OPERATORS],
        "fusion": [*FUSIONS],
        "encoders": [*ENCODERS],
        "generators": [*GENERATORS],
        "readers": [*READERS],
        "prompts": shipped_prompts(),
    }


def _found(group: str, name: str, known: Mapping[str, Any]) -> Plugin:
    where = "method.channels.operator" if group == "operators" else "method.fusion"
    return plugin(group, name, known, where)


@lru_cache(maxsize=256)
def _operator(kind: str, name: str, expected: tuple) -> DenseOperator | SparseOperator:
    own = _found("operators", name, OPERATORS[kind])
    loaded = own.load(dict(expected) or None)
    if not isinstance(loaded, KINDS[kind]):
        what = f"is a {type(loaded).__name__}, and a {kind} channel takes a {KINDS[kind].__name__}"
        raise own.wrong(what, "name another operator, or correct the plug-in")
    if unknown := [text for text in loaded.texts if text not in SOURCES[kind]]:
        hint = f"known: {listed(SOURCES[kind], 20)}"
        raise own.wrong(f"asks for unknown texts {listed(unknown)}", hint)
    guard = _dense if kind == "dense" else _sparse
    return replace(loaded, function=guard(own, loaded.function))  # type: ignore[type-var]


def _dense(own: Plugin, function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(vectors: Mapping[str, np.ndarray], **numbers: Any) -> Any:
        rows, dimension = vectors["query"].shape
        found = own.called(function, vectors, **numbers)
        try:
            expanded, diagnostics = found
            check_unit_rows(expanded, rows, dimension)
            angles = {name: np.asarray(values, np.float64) for name, values in diagnostics.items()}
        except DesaError as error:
            raise own.wrong(error.what, CORRECT) from None
        except (TypeError, ValueError, AttributeError):
            what = "did not return a pair of float32 vectors and diagnostics"
            raise own.wrong(what, CORRECT) from None
        if any(np.shares_memory(expanded, given) for given in vectors.values()):
            expanded = expanded.copy()  # fallbacks are written into it
        return expanded, angles

    return checked


def _sparse(own: Plugin, function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(hits: Mapping[str, Any], **numbers: Any) -> Any:
        found = own.called(function, hits, **numbers)
        scores = getattr(found, "scores", None)
        if not isinstance(scores, np.ndarray) or scores.dtype not in (np.float32, np.float64):
            raise own.wrong("did not return a hit list with float scores", CORRECT)
        if not np.isfinite(scores).all():
            raise own.wrong("returned scores that are not finite", CORRECT)
        return found

    return checked


@lru_cache(maxsize=64)
def _rule(name: str, expected: tuple) -> Fusion:
    own = _found("fusion", name, FUSIONS)
    loaded = own.load(dict(expected) or None)
    if not isinstance(loaded, Fusion):
        raise own.wrong(f"is a {type(loaded).__name__}, expected a Fusion", CORRECT)

    def order(channels: Sequence[np.ndarray], *given: Any) -> np.ndarray:
        found = own.called(loaded.order, channels, *given)
        return _documents(own, found, channels)

    def replayed(channels: Sequence[np.ndarray], *given: Any) -> Replay:
        found = own.called(loaded.replay, channels, *given)
        if not isinstance(found, Replay) or len(found.depths) != len(channels):
            raise own.wrong("did not return a Replay with a depth per channel", CORRECT)
        _documents(own, found.topk, channels)
        return found

    def tops(channels: Sequence[np.ndarray], *given: Any) -> list[np.ndarray]:
        found = own.called(loaded.tops, channels, *given)
        return [_documents(own, one, channels) for one in found]

    def both(channels: Sequence[np.ndarray], *given: Any) -> Any:
        head, below = own.called(loaded.both, channels, *given)
        return _documents(own, head, channels), [_documents(own, o, channels) for o in below]

    return Fusion(order, replayed, tops, both)


def _documents(own: Plugin, found: Any, channels: Sequence[np.ndarray]) -> np.ndarray:
    """Documents of the channels, each once."""
    if not isinstance(found, np.ndarray) or found.dtype != np.int32 or found.ndim != 1:
        raise own.wrong("did not return an int32 array of documents", CORRECT)
    if np.unique(found).size != found.size:
        raise own.wrong("returned a document twice", CORRECT)
    if not np.isin(found, np.concatenate([np.empty(0, np.int32), *channels])).all():
        raise own.wrong("returned a document that is in no channel", CORRECT)
    return found
