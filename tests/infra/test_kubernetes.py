"""The Kubernetes manifests: valid pods, KubeRay's fields, non-root, limited, probed, on one shared
volume.
"""

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from string import Template
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hydra import compose, initialize_config_module
from jsonschema import Draft202012Validator

from desa_ray.cluster.placement import check_pools
from desa_ray.config import ClusterConfig, RunConfig
from desa_ray.errors import Problems
from desa_ray.experiment.methods import check_method, prompts
from desa_ray.experiment.pools import (
    encoder_pool,
    generator_pool,
    lucene_pool,
    replay_pool,
    scorer_pool,
)
from desa_ray.jobs.cli.settings import spec_of
from desa_ray.pipeline.packing import Node
from desa_ray.pipeline.stage import Pool
from tests.infra.programs import REPOSITORY

FOLDER = REPOSITORY / "infra" / "kubernetes"
KUBERNETES = "1.32"
IMAGE = f"registry.example/desa-ray@sha256:{'a' * 64}"


def _read(name: str) -> list[dict[str, Any]]:
    """The parts of a file, with the image put in as `envsubst '$DESA_IMAGE'` does."""
    text = (FOLDER / f"{name}.yaml").read_text()
    return list(yaml.safe_load_all(Template(text).safe_substitute(DESA_IMAGE=IMAGE)))


MANIFESTS = {name: _read(name)[0] for name in ("raycluster", "rayjob")}
SHARED = {part["kind"]: part for part in _read("shared")}
REDIS = {part["kind"]: part for part in _read("redis")}
POLICIES = {part["metadata"]["name"]: part for part in _read("network")}
SCHEMAS = json.loads((Path(__file__).parent / "schemas" / "kuberay.json").read_text())["kinds"]


def _cluster(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["spec"].get("rayClusterSpec", manifest["spec"])


def _templates(manifest: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    cluster = _cluster(manifest)
    yield "head", cluster["headGroupSpec"]["template"]
    for group in cluster["workerGroupSpecs"]:
        yield group["groupName"], group["template"]
    if "submitterPodTemplate" in manifest["spec"]:
        yield "submitter", manifest["spec"]["submitterPodTemplate"]


PODS = [
    pytest.param(name, role, template, id=f"{name}-{role}")
    for name, manifest in MANIFESTS.items()
    for role, template in _templates(manifest)
]


def _as_pod(template: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "pod", **template.get("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


@pytest.mark.parametrize(("name", "role", "template"), PODS)
def test_pod_templates_are_valid(name, role, template):
    kubernetes_validate.validate(_as_pod(template), KUBERNETES, strict=True)


def test_an_invalid_pod_is_noticed():
    broken = copy.deepcopy(_as_pod(PODS[0].values[2]))
    broken["spec"]["containers"][0]["imagePulPolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES, strict=True)


@pytest.mark.parametrize("part", [*SHARED.values(), *REDIS.values(), *POLICIES.values()])
def test_shared_parts_are_valid(part):
    kubernetes_validate.validate(part, KUBERNETES, strict=True)


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS.keys())
def test_the_manifests_have_kuberays_schema(manifest):
    """The schema of KubeRay's own definitions (its source stands in the file)."""
    validator = Draft202012Validator(SCHEMAS[manifest["kind"]])
    assert [error.message for error in validator.iter_errors(manifest)] == []


def _no_image(cluster: dict[str, Any]) -> None:
    del cluster["headGroupSpec"]["template"]


def _unknown(cluster: dict[str, Any]) -> None:
    cluster["headGroupSpec"]["replicas"] = 1


def _worded(cluster: dict[str, Any]) -> None:
    cluster["workerGroupSpecs"][0]["minReplicas"] = "one"


def _mistyped(cluster: dict[str, Any]) -> None:
    options = cluster["gcsFaultToleranceOptions"]
    options["redisAdress"] = options.pop("redisAddress")


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS.keys())
@pytest.mark.parametrize("change", [_no_image, _unknown, _worded, _mistyped])
def test_kuberays_schema_refuses_what_it_must(manifest, change):
    broken = copy.deepcopy(manifest)
    change(_cluster(broken))
    assert list(Draft202012Validator(SCHEMAS[broken["kind"]]).iter_errors(broken))


def test_one_variable_names_all_images():
    for name in MANIFESTS:
        text = (FOLDER / f"{name}.yaml").read_text()
        assert set(re.findall(r"^ +image: (\S+)", text, re.MULTILINE)) == {"${DESA_IMAGE}"}


def test_a_head_remembers_in_redis_with_a_password():
    (port,) = REDIS["Service"]["spec"]["ports"]
    service, redis = REDIS["Service"]["metadata"]["name"], REDIS["StatefulSet"]["spec"]
    (container,) = redis["template"]["spec"]["containers"]
    (password,) = container["env"]
    assert "requirepass" in container["command"][-1]
    assert REDIS["Service"]["spec"]["selector"] == redis["template"]["metadata"]["labels"]
    for manifest in MANIFESTS.values():
        options = _cluster(manifest)["gcsFaultToleranceOptions"]
        assert options["redisAddress"] == f"redis://{service}:{port['port']}"
        assert options["redisPassword"]["valueFrom"] == password["valueFrom"]


def test_policies_open_the_ports_that_are_there_and_no_others():
    def ports(name: str) -> set[int]:
        rules = POLICIES[name]["spec"]["ingress"]
        return {port["port"] for rule in rules for port in rule.get("ports", [])}

    head = _cluster(MANIFESTS["raycluster"])["headGroupSpec"]["template"]["spec"]["containers"][0]
    named = {port["name"]: port["containerPort"] for port in head["ports"]}
    assert ports("desa-ray") == {named["dashboard"], named["metrics"]}
    assert ports("desa-redis") == {REDIS["Service"]["spec"]["ports"][0]["port"]}
    chosen = POLICIES["desa-redis"]["spec"]["podSelector"]["matchLabels"]
    assert chosen == REDIS["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    # Without ports only Ray's own pods come in.
    (own,) = [rule for rule in POLICIES["desa-ray"]["spec"]["ingress"] if "ports" not in rule]
    assert own["from"] == [{"podSelector": POLICIES["desa-ray"]["spec"]["podSelector"]}]


@pytest.mark.parametrize(("name", "role", "template"), PODS)
def test_pods_are_not_root_and_limited(name, role, template):
    spec = template["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"].keys() >= {"cpu", "memory"}
        assert container["image"] == IMAGE


@pytest.mark.parametrize(
    ("name", "role", "template"), [pod for pod in PODS if "submitter" not in str(pod.id)]
)
def test_nodes_are_probed_share_the_volume_and_get_their_secrets(name, role, template):
    (container,) = template["spec"]["containers"]
    assert container.keys() >= {"startupProbe", "readinessProbe", "livenessProbe"}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert mounts.keys() == volumes.keys()
    claim = volumes["data"]["persistentVolumeClaim"]["claimName"]
    assert claim == SHARED["PersistentVolumeClaim"]["metadata"]["name"]
    assert SHARED["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]
    settings = SHARED["ConfigMap"]
    assert settings["data"]["DESA_HOME"].startswith(mounts["data"])
    assert {"configMapRef": {"name": settings["metadata"]["name"]}} in container["envFrom"]
    assert any("secretRef" in source for source in container["envFrom"])
    assert not any(re.search("PASSWORD|SECRET|TOKEN", key) for key in settings["data"])


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS.keys())
def test_the_cluster_scales_gpus_on_workers_only(manifest):
    cluster = _cluster(manifest)
    assert cluster["rayVersion"] == version("ray")
    assert cluster["enableInTreeAutoscaling"] is True
    assert cluster["authOptions"]["mode"] == "token"
    head = cluster["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    assert "nvidia.com/gpu" not in head["template"]["spec"]["containers"][0]["resources"]["limits"]
    groups = {group["groupName"]: group for group in cluster["workerGroupSpecs"]}
    gpu = groups["gpu"]["template"]["spec"]["containers"][0]
    assert (
        gpu["resources"]["limits"]["nvidia.com/gpu"]
        == gpu["resources"]["requests"]["nvidia.com/gpu"]
        == "1"
    )
    # One image for all: a run refuses nodes whose packages differ.
    assert {
        container["image"]
        for _, template in _templates(manifest)
        for container in template["spec"]["containers"]
    } == {IMAGE}
    for group in groups.values():
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_job_and_cluster_differ_in_nothing_but_their_frame():
    assert _cluster(MANIFESTS["raycluster"]) == _cluster(MANIFESTS["rayjob"])


def test_the_probes_ask_what_ray_answers():
    import ray

    # Served without a token
    source = (Path(ray.__file__).parent / "dashboard/http_server_head.py").read_text()
    for path in set(re.findall(r"/api/\w+healthz", (FOLDER / "raycluster.yaml").read_text())):
        assert f'"{path}"' in source


def _own_run(name: str) -> list[str]:
    """The overrides of the run that a manifest starts, or shows in its comment; `existing` is what
    they run on.
    """
    if name == "rayjob":
        command = MANIFESTS[name]["spec"]["entrypoint"].split("desa run -m ")[1].rstrip("'")
    else:
        command = re.findall(
            r"^#\s+desa submit (.+)$", (FOLDER / f"{name}.yaml").read_text(), re.MULTILINE
        )[0]
    words = [word for word in command.split() if "$" not in word and not word.startswith("submit.")]
    return [*words, "cluster=existing", "cluster.address=auto"]


def _configs(words: list[str]) -> list[RunConfig]:
    """One configuration per cell of a sweep."""
    choices = [
        [f"{name}={value}" for value in values.split(",")]
        for name, values in (w.split("=", 1) for w in words)
    ]
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        return [
            spec_of(compose("config", overrides=list(cell)), Path()).config
            for cell in product(*choices)
        ]


CLUSTER = ClusterConfig(kind="existing")


def _nodes(manifest: dict[str, Any], count: str) -> dict[str, Node]:
    """What every node has, as KubeRay hands the limits of a container to Ray."""
    cluster = _cluster(manifest)
    nodes = {"head": Node(float(cluster["headGroupSpec"]["rayStartParams"]["num-cpus"]))}
    for group in cluster["workerGroupSpecs"]:
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        memory = float(limits["memory"].removesuffix("Gi")) * 2**30
        kind = Node(float(limits["cpu"]), float(limits.get("nvidia.com/gpu", 0)), memory)
        nodes |= {f"{group['groupName']}-{number}": kind for number in range(group[count])}
    return nodes


def _pools(config: RunConfig) -> list[Pool]:
    text = [generator_pool(config, {}, Path())] if prompts(config.method) else []
    return [
        encoder_pool(config, {}, Path()),
        lucene_pool(config, 0),
        scorer_pool(config),
        replay_pool(config),
        *text,
    ]


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_nodes_that_stand_hold_every_pool_of_the_files(name):
    """The nodes that stand hold every pool of the files own run. The product's own check
    accepts the numbers of each file, at the start and after idle nodes are gone.
    """
    pools = [pool for config in _configs(_own_run(name)) for pool in _pools(config)]
    assert any(pool.gpus for pool in pools)
    for count in ("replicas", "minReplicas"):
        check_pools(pools, CLUSTER, _nodes(MANIFESTS[name], count))


def test_workers_for_which_no_node_has_the_memory_are_refused():
    """Scores of 64 GB, and half a GB for the process, on nodes with 32 and 64."""
    (config,) = _configs(["dataset=demo", "method=original", "cluster=existing"])
    large = replace(config, cluster=replace(config.cluster, address="auto", memory_gb=64))
    nodes = _nodes(MANIFESTS["raycluster"], "replicas")
    with pytest.raises(Problems, match=r"pool scorer needs .* 64.5 GB of memory") as caught:
        check_pools([scorer_pool(large)], CLUSTER, nodes)
    assert "8 CPUs and 0 GPUs and 32 GB of memory" in str(caught.value)
    assert "cluster.memory_gb" in str(caught.value)
    local = replace(large, cluster=replace(large.cluster, kind="local", address=None))
    assert scorer_pool(local).memory == 0  # judged with all others, by `feasible`


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_group_that_is_scaled_to_nothing_is_noticed(name):
    broken = copy.deepcopy(MANIFESTS[name])
    for group in _cluster(broken)["workerGroupSpecs"]:
        group["minReplicas"] *= group["groupName"] != "gpu"
    pools = [pool for config in _configs(_own_run(name)) for pool in _pools(config)]
    with pytest.raises(Problems, match=r"generator:qwen2_5_7b.* 1 GPUs"):
        check_pools(pools, CLUSTER, _nodes(broken, "minReplicas"))


def test_the_jobs_overrides_compose():
    for config in _configs(_own_run("rayjob")):
        assert config.cluster.kind == "existing"
        assert check_method(config.method, config.generator, config.n_refs) == []
