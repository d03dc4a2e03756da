"""Checks before work goes to a running cluster: every node must have this platform and see the same
files.

One small task per node collects the facts and reports them; they are compared here. Places are
checked two
ways: what workers write to (the home, the store, be it a folder or an object store) by a probe file
that this process puts there, inputs (data sets, models, recordings) by their file names and sizes.
All differences are reported together, with the nodes that they concern.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from desa_ray.cluster.node_facts import fingerprint
from desa_ray.config import RunConfig
from desa_ray.credentials import redacted
from desa_ray.errors import DesaError, Problems, listed
from desa_ray.pipeline.provenance import platform_facts
from desa_ray.plugins import Identity
from desa_ray.stages.plugged import named_plugins
from desa_ray.store.files import Files

NODE_TIMEOUT_S = 90.0
INSTALL = "install from the same lock file, or use the same image, on every node"
BUSY = "look at the node's load and at `ray status`, then rerun"
MEMORY = "end what fills the node's memory, or leave the node out, then rerun"
INPUTS = (
    ("dataset", "path"),
    ("encoder", "path"),
    ("generator", "folder"),
    ("generator", "path"),
    ("sparse", "java_home"),
)


@dataclass(frozen=True)
class Needs:
    """What every node must have: places to write to, inputs to read, environment variables to be
    set.

    Attributes:
        shared: folders, or addresses of object stores, by the setting that names them.
        inputs: local paths by the setting that names them.
        variables: names; their values never leave the node.
        plugins: identities of those that the work names, by `group: name`.
    """

    shared: Mapping[str, str]
    inputs: Mapping[str, str]
    variables: tuple[str, ...] = ()
    plugins: Mapping[str, Identity] = field(default_factory=dict)


def needs_of(configs: Iterable[RunConfig], *, home: Path, store_root: str) -> Needs:
    """The needs of some cells together; hub models are everybody's already."""
    shared = {"DESA_HOME": str(home), "store.root": store_root}
    inputs, variables = {}, []
    plugins: dict[str, Identity] = {}
    for config in configs:
        for group, name in INPUTS:
            value = getattr(getattr(config, group), name)
            if value is not None and "://" not in value:
                inputs[f"{group}.{name}={value}"] = value
        if config.generator.kind == "openai" and config.generator.api_key_env is not None:
            variables.append(config.generator.api_key_env)
        plugins |= named_plugins(config)
    return Needs(shared, inputs, tuple(dict.fromkeys(variables)), plugins)


def differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """How two platforms differ, in words; `packages` are compared by what both have, and only if
    `expected` has any.

    Args:
        expected, found: as `platform_facts` gives them; what `expected` lacks is not compared.
    """
    told = [
        f"{name} is {found.get(name)}, not {expected[name]}"
        for name in ("python", "ray", "desa-ray")
        if name in expected and expected[name] != found.get(name)
    ]
    if not told and expected.get("code", found.get("code")) != found.get("code"):
        told.append(
            f"desa-ray {found['desa-ray']} has different code ({found['code'][:12]}, not"
            f" {expected['code'][:12]})"
        )
    if expected.get("environment") != found.get("environment"):
        wanted, own = expected.get("packages", {}), found.get("packages", {})
        others = [
            f"{n} {own[n]} (not {wanted[n]})"
            for n in wanted
            if n in own and own[n] != wanted[n] and n != "ray"
        ]
        if others:
            told.append(f"packages differ: {listed(others, 5)}")
    return told


def check_nodes(
    needs: Needs, expected: Mapping[str, Any] | None = None, *, only: str | None = None
) -> int:
    """Look at every living node of the session that is open; returns how many there are.

    Args:
        needs: what the work reads and writes.
        expected: the platform each node must carry; None for this process's own.
        only: the id of the one node to look at.

    Raises:
        Problems: one line for everything that does not fit, naming the nodes.
    """
    problems: list[tuple[str, DesaError]] = []
    with ExitStack() as stack:
        probes = {_probe(stack, setting, path): setting for setting, path in needs.shared.items()}
        here = {path: fingerprint(path) for path in needs.inputs.values() if Path(path).exists()}
        tokens = {path: path.rpartition("/")[2] for path in probes}
        reports = _ask(tokens, needs, only)
    for node, report in reports.items():
        problems += [
            (node, problem) for problem in _complaints(report, needs, probes, here, expected)
        ]
    if problems:
        raise Problems(_grouped(problems))
    return len(reports)


def _probe(stack: ExitStack, setting: str, root: str) -> str:
    """Put a probe file there until the stack closes; its content is its name."""
    name = f"probe-{uuid4().hex}"
    if "://" in root:
        files = Files(root)
        files.publish(name, name.encode())
        stack.callback(files.delete, name)
        return f"{root.rstrip('/')}/{name}"
    path = Path(root) / f".{name}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name, encoding="utf-8")
    except OSError as error:
        raise DesaError(
            f"cannot write to {root}: {error.strerror}", where=setting, hint="choose another folder"
        ) from error
    stack.callback(path.unlink, missing_ok=True)
    return str(path)


def _task():
    """The task, made inside a function so that it travels by value: a node without the platform can
    answer too.
    """

    def look(*given):
        try:
            from desa_ray.cluster.node_facts import facts
        except ImportError as error:
            return f"the platform is not installed there: {error}"
        return facts(*given)

    return look


def _ask(
    probes: Mapping[str, str], needs: Needs, only: str | None
) -> dict[str, dict[str, Any] | str | DesaError]:
    """Each living node's facts, or what was wrong with asking, by the node's name."""
    import ray
    from ray.exceptions import GetTimeoutError, OutOfMemoryError, RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(_task())
    nodes = {
        node["NodeID"]: f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})"
        for node in _living()
        if only in (None, node["NodeID"])
    }
    pending = {}
    for identity in nodes:
        where = NodeAffinitySchedulingStrategy(identity, soft=False)
        task = look.options(num_cpus=0, max_retries=0, scheduling_strategy=where)
        given = [dict(probes), list(needs.inputs.values()), list(needs.variables)]
        # Only where there are some: a node with other code is told from its facts.
        pending[identity] = task.remote(*given, *([dict(needs.plugins)] if needs.plugins else []))
    ray.wait(list(pending.values()), num_returns=len(pending), timeout=NODE_TIMEOUT_S)
    reports: dict[str, dict[str, Any] | str | DesaError] = {}
    for identity, reference in pending.items():
        try:
            reports[nodes[identity]] = ray.get(reference, timeout=0.1)
        except GetTimeoutError:
            late = f"does not answer within {NODE_TIMEOUT_S:.0f} s"
            reports[nodes[identity]] = DesaError(late, hint=BUSY)
            with suppress(RayError):
                ray.cancel(reference, force=True)
        except OutOfMemoryError:
            full = "cannot answer: memory ran out on the node"
            reports[nodes[identity]] = DesaError(full, hint=MEMORY)
        except RayError as error:
            if identity in {node["NodeID"] for node in _living()}:
                # A node that left meanwhile is nobody's problem
                why = f"cannot answer: {str(error).strip().splitlines()[-1]}"
                reports[nodes[identity]] = DesaError(why, hint=INSTALL)
    return reports


def _living() -> list[dict[str, Any]]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def _complaints(
    report: dict[str, Any] | str | DesaError,
    needs: Needs,
    probes: Mapping[str, str],
    here: Mapping[str, str],
    expected: Mapping[str, Any] | None,
) -> list[DesaError]:
    """What is wrong with one node, not yet saying which."""
    if isinstance(report, DesaError):
        return [report]
    if isinstance(report, str):  # of `_task`
        return [DesaError(report, hint=INSTALL)]
    problems = [
        DesaError(what, hint=INSTALL)
        for what in differences(expected or platform_facts(), report["platform"])
    ]
    problems += [DesaError(what, hint=INSTALL) for what in report.get("plugins", ())]
    for probe, what in report["probes"].items():
        if what:
            setting = probes[probe]
            place = needs.shared[setting]
            hint = "put it on a path that all nodes share under the same name"
            hint = "give the node the same address and credentials" if "://" in place else hint
            problems.append(DesaError(f"{setting} {redacted(place)}: the node {what}", hint=hint))
    for setting, path in needs.inputs.items():
        found = report["inputs"][path]
        if found.startswith("error: "):
            what = f"{setting}: {found.removeprefix('error: ')}"
        elif found != here.get(path):
            what = f"{setting}: its files differ from those here"
        else:
            continue
        problems.append(DesaError(what, hint="put it on a path that all nodes share"))
    problems += [
        DesaError(
            f"the environment variable {name} is not set",
            hint="set it before the node's `ray start`",
        )
        for name in report["unset"]
    ]
    return problems


def _grouped(problems: Sequence[tuple[str, DesaError]]) -> list[DesaError]:
    """The same complaint of several nodes as one line that names them all."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for node, problem in problems:
        nodes.setdefault((problem.what, problem.hint), []).append(node)
    return [
        DesaError(what, where=f"node{'s' if len(names) > 1 else ''} {listed(names, 5)}", hint=hint)
        for (what, hint), names in nodes.items()
    ]
