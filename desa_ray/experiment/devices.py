"""Decides at plan time what encodes and scores, CPUs or GPUs, and how much of a GPU a worker takes.

An encoder's engine changes the bits of its vectors, so it is resolved once for all cells of a run
that use the encoder: `encoder.engine` as given, else that of the vectors that are stored, else a
GPU's where every node with GPUs can use it, else the CPUs'. A stored engine that is not here is
taken where nothing is left to encode. Scores have the same bits on either device.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from desa_ray.cluster.devices import devices_of
from desa_ray.config import ClusterConfig, RunConfig
from desa_ray.engines.encoder import encoder_identity
from desa_ray.engines.gpu_engines import CPU, LIBRARIES, ONNX, OWN, SCORERS, TORCH, gpu_engines
from desa_ray.errors import DesaError, listed
from desa_ray.experiment.build import Builder, Cell
from desa_ray.experiment.channels import Channels
from desa_ray.experiment.pools import GB, encoder_bytes
from desa_ray.experiment.prepare import Prepared
from desa_ray.pipeline.devices import (
    ENCODER_BYTES,
    MOST_ENCODERS,
    MOST_SCORERS,
    SCORER_BYTES,
    Devices,
)
from desa_ray.pipeline.execute import missing, present
from desa_ray.pipeline.stage import Stage
from desa_ray.types import canonical_json

BY = {TORCH: " by sentence-transformers", ONNX: " by onnxruntime"}
GPU_HINT = "use encoder.engine=auto or cpu, or a cluster whose nodes with GPUs have"
GPU_HINT += " requirements/gpu.txt"


class Place:
    """What workers of a run can have; a running cluster is asked when it is first needed."""

    def __init__(self, config: ClusterConfig, ask: Callable[[ClusterConfig], Devices] = devices_of):
        self.config, self._ask = config, ask

    @property
    def known(self) -> bool:
        """Whether it is known without asking a cluster (again)."""
        return self.config.kind != "existing" or "devices" in vars(self)

    @cached_property
    def devices(self) -> Devices:
        return self._ask(self.config)


@dataclass(frozen=True)
class _Choice:
    """An engine for an encoder, the identity of its vectors, and the reason in words."""

    engine: str
    identity: dict[str, Any]
    why: str


def with_engines(
    prepared: Sequence[Prepared], place: Place, earlier: Mapping[str, str] | None = None
) -> list[Prepared]:
    """The same cells with the engine of each encoder resolved; see this module.

    Args:
        earlier: engines by encoder that earlier batches of the same sweep used.

    Raises:
        DesaError: `encoder.engine=gpu`, texts to encode, and no GPU for it.
    """
    groups: dict[str, list[Prepared]] = {}
    for own in prepared:
        groups.setdefault(_group(own), []).append(own)
    chosen = {
        name: _chosen(own, place, (earlier or {}).get(own[0].config.encoder.name))
        for name, own in groups.items()
        if own[0].encoder
    }
    return [_with(own, chosen.get(_group(own))) for own in prepared]


def _group(own: Prepared) -> str:
    """Cells that share an encoder, and so an engine."""
    encoder = own.config.encoder
    return canonical_json([encoder.name, encoder.engine, encoder.block_size, own.encoder])


def _with(own: Prepared, choice: _Choice | None) -> Prepared:
    """A cell under the chosen engine; one without dense channels has no engine."""
    engine = "cpu" if choice is None or choice.engine == CPU else "gpu"
    config = replace(own.config, encoder=replace(own.config.encoder, engine=engine))
    if choice is None:
        return replace(own, config=config)
    where = "CPUs" if choice.engine == CPU else f"GPUs{BY.get(choice.engine, '')}"
    told = f"encoder {config.encoder.name}: on {where} ({choice.why})"
    return replace(own, config=config, encoder=choice.identity, devices=(told,))


def _chosen(group: Sequence[Prepared], place: Place, earlier: str | None) -> _Choice:
    config, models = group[0].config, group[0].home / "models"
    encoder = config.encoder

    def choice(engine: str, why: str) -> _Choice:
        return _Choice(engine, encoder_identity(encoder, model_home=models, engine=engine), why)

    if encoder.engine == "cpu":
        return choice(CPU, "encoder.engine=cpu")
    if encoder.engine == "auto" and earlier is not None:
        return choice(earlier, "as in earlier batches of this sweep")
    names = gpu_engines(encoder, models)
    if not names:
        return choice(CPU, "static vectors")
    if encoder.engine == "auto" and names == (OWN,):
        return choice(CPU, "a plug-in's; encoder.engine=gpu would give it one")
    of_gpus = [choice(name, "") for name in names]
    known = of_gpus if encoder.engine == "gpu" else [choice(CPU, ""), *of_gpus]
    stored = {own.engine: _stored(group, own.identity) for own in known}
    unusable = ""
    for own in sorted(known, key=lambda own: -len(stored[own.engine])):  # of equals the first
        if sets := stored[own.engine]:
            why = f"vectors of {listed(sets, 3)} are stored"
            if own.engine == CPU or _complete(group, own.identity):
                return replace(own, why=why)
            lacks = _lacks(config, place.devices, own.engine)
            if not lacks:
                return replace(own, why=why)
            unusable = f"{why} from GPUs, but other texts are not, and {lacks}"
    lacks = ""
    for own in of_gpus:
        found = _lacks(config, place.devices, own.engine)
        if not found:
            given = "encoder.engine=gpu, " if encoder.engine == "gpu" else ""
            return replace(own, why=f"{given}{place.devices}")
        lacks = lacks or found
    if encoder.engine == "gpu":
        what = f"engine=gpu, but {unusable or lacks}"
        raise DesaError(what, where="encoder.engine", hint=GPU_HINT)
    return choice(CPU, unusable or lacks)


def _lacks(config: RunConfig, devices: Devices, engine: str) -> str:
    if config.cluster.encoder_gpus == 0:
        return "cluster.encoder_gpus=0"
    return devices.lacks(LIBRARIES[engine])


def _stored(group: Sequence[Prepared], identity: Mapping[str, Any]) -> list[str]:
    """The data sets whose document vectors, or whose results, are stored under an identity."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    for own in group:
        known = replace(own, encoder=dict(identity))
        vectors = Channels(known).encoded
        if vectors.key.digest in seen:
            continue
        seen.add(vectors.key.digest)
        if present(vectors) or not missing(Builder(known).cell().targets):
            found[vectors.key.digest] = own.config.dataset.name
    return [*found.values()]


def _complete(group: Sequence[Prepared], identity: Mapping[str, Any]) -> bool:
    """Whether nothing is left to encode for these cells under an identity."""
    rankings: dict[tuple[str, ...], Stage] = {}
    for own in group:
        cell = Builder(replace(own, encoder=dict(identity)), rankings).cell()
        if any(_is_of(stage, "encoder") for stage in missing(cell.targets)):
            return False
    return True


def _is_of(stage: Stage, kind: str) -> bool:
    return stage.work.pool is not None and stage.work.pool.kind == kind


def with_shares(own: Prepared, devices: Devices) -> Prepared:
    """The cell with the shares of a GPU of its encoders and scorers, where settings leave them
    open.
    """
    config, told = own.config, [*own.devices]
    cluster, gpus = config.cluster, config.cluster.encoder_gpus
    if own.encoder.get("engine", CPU) == CPU or not devices.with_gpus:
        gpus = gpus or 0.0
    elif gpus is None:
        needed = ENCODER_BYTES + 2 * encoder_bytes(config, own.encoder, own.home / "models")
        gpus = devices.share(needed, cluster.encoder_cpus, MOST_ENCODERS, cluster.max_gpus)
    if own.encoder.get("engine", CPU) != CPU and gpus:
        told[-1] += f", {_amount(gpus)} each"
    scorer, scorer_gpus = _scorer(own, devices)
    if scorer_gpus:
        told.append(f"dense scores: on GPUs by {scorer}, {_amount(scorer_gpus)} each")
    cluster = replace(cluster, encoder_gpus=gpus, scorer_gpus=scorer_gpus)
    return replace(own, config=replace(config, cluster=cluster), devices=tuple(told))


def _scorer(own: Prepared, devices: Devices) -> tuple[str, float]:
    """The library that dense scores are multiplied by, and the share of a GPU; 0 for CPUs."""
    encoder, cluster = own.config.encoder, own.config.cluster
    if not own.encoder or encoder.scorer == "cpu" or encoder.scoring == "float32":
        return "", cluster.scorer_gpus or 0.0
    wanted = [*SCORERS] if encoder.scorer == "auto" else [encoder.scorer]
    here = [name for name in wanted if not devices.lacks(SCORERS[name])]
    if cluster.scorer_gpus is not None or not here:
        return (here or wanted)[0], cluster.scorer_gpus or 0.0
    needed = SCORER_BYTES + int(cluster.memory_gb * GB)
    return here[0], devices.share(needed, 1, MOST_SCORERS, cluster.max_gpus)


def _amount(gpus: float) -> str:
    return f"{gpus:g} GPU{'s' * (gpus > 1)}"


def check_scorers(cells: Sequence[Cell], place: Place) -> None:
    """Raises DesaError where `encoder.scorer` names a GPU's and scores are to be computed without
    one.
    """
    for cell in cells:
        scorer, gpus = cell.config.encoder.scorer, cell.config.cluster.scorer_gpus
        if scorer not in SCORERS or gpus:
            continue
        lacks = place.devices.lacks(SCORERS[scorer])
        if not lacks:
            continue
        todo = missing(cell.targets)
        if any(stage.params.get("kind") == "dense" and _is_of(stage, "scorer") for stage in todo):
            what = f"scorer={scorer}, but {lacks}"
            hint = "use encoder.scorer=auto or cpu, or a cluster whose nodes with GPUs have"
            raise DesaError(what, where="encoder.scorer", hint=f"{hint} requirements/gpu.txt")
