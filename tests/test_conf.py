"""The configuration: every file composes, becomes a typed configuration, and is part of the
package.
"""

import ast
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

import desa_ray
from desa_ray import notebook
from desa_ray.config import RunConfig
from desa_ray.config_check import checked
from desa_ray.errors import Problems
from desa_ray.experiment.spec import RUN_KEYS
from tests.api_page import PAGE, page
from tests.module_table import TABLE, table

REPOSITORY = Path(__file__).resolve().parent.parent
CONF = REPOSITORY / "conf"
GROUPS = (
    "dataset",
    "encoder",
    "generator",
    "sparse",
    "method",
    "fusion",
    "evaluation",
    "cluster",
    "tracking",
    "store",
)


def _typed(*overrides: str):
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        config = compose("config", overrides=list(overrides))
    plain = OmegaConf.to_container(config, resolve=True)
    return checked(RunConfig, {key: plain[key] for key in RUN_KEYS if key in plain})


@pytest.mark.parametrize(
    "choice", [f"{group}={file.stem}" for group in GROUPS for file in (CONF / group).glob("*.yaml")]
)
def test_every_choice_of_every_group_composes(choice):
    group, name = choice.split("=")
    part = getattr(_typed(choice), group)
    if hasattr(part, "name") and name not in ("beir_folder", "ir_datasets"):
        assert part.name == name


LOCAL = {
    "kind": "local",
    "address": None,
    "cpus": None,
    "encoders": None,
    "encoder_cpus": 1,
    "encoder_gpus": None,
    "generators": None,
    "generator_cpus": 1,
    "shard_generations": 32,
    "indexers": None,
    "scorers": None,
    "scorer_gpus": None,
    "replayers": None,
    "shard_documents": 1024,
    "range_documents": 131_072,
    "shard_queries": 64,
    "batch_size": 4,
    "max_failures": 3,
    "shard_timeout_s": 3600,
    "max_workers": None,
    "max_gpus": None,
    "wait_s": None,
    "idle_s": 60,
    "turn_s": 300,
    "max_nodes": 0,
    "node_cpus": 1,
    "node_gpus": 0,
    "memory_gb": 2,
}
CLUSTERS = {
    "local": {},
    "existing": {"kind": "existing"},
    "serial": {"kind": "serial", "encoder_cpus": 2},
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster_choice_states_only_what_differs_from_local(name):
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        composed = OmegaConf.to_container(compose("config", [f"cluster={name}"]).cluster)
    assert composed == {**LOCAL, **CLUSTERS[name]}
    stated = yaml.safe_load((CONF / "cluster" / f"{name}.yaml").read_text())
    stated.pop("defaults", None)
    assert stated == (LOCAL if name == "local" else CLUSTERS[name])


def test_all_wrong_values_are_reported_together():
    with pytest.raises(Problems) as caught:
        _typed("fusion.k=0", "draws=-1", "encoder.pooling=max", "dataset.name='../x'")
    text = str(caught.value)
    for where in ("fusion.k", "draws", "encoder.pooling", "dataset.name"):
        assert where in text


def test_every_package_is_listed_for_the_wheel():
    listed = set(
        tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    )
    found = {"desa_ray.conf", "desa_ray.requirements", "hydra_plugins"}
    found |= {
        ".".join(p.parent.relative_to(REPOSITORY).parts)
        for p in (REPOSITORY / "desa_ray").rglob("*.py")
    }
    found |= {
        ".".join(["desa_ray", *p.parent.relative_to(REPOSITORY).parts])
        for p in (REPOSITORY / "jobs").rglob("*.py")
    }
    assert listed == found


def imported(path: Path) -> set[str]:
    """The modules that a file imports by absolute name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_the_verbs_have_one_name_and_the_platform():
    """The verbs have one name and the platform does not import them. `jobs` is importable from
    the root of a checkout, as a second copy of `desa_ray.jobs`.
    """
    for folder in ("desa_ray", "hydra_plugins", "jobs", "tests"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            roots = {name.split(".")[0] for name in imported(path)}
            assert "jobs" not in roots, path
            if folder != "tests":
                assert not any(name.startswith("desa_ray.jobs") for name in imported(path)), path


def test_locks_hold_hashes_and_no_addresses():
    for lock in (REPOSITORY / "requirements").glob("*.txt"):
        text = lock.read_text()
        assert "--hash=sha256:" in text
        assert not re.search(r"https?://|--(extra-)?index-url|--find-links", text), lock.name


def test_the_pages_from_docstrings_are_up_to_date():
    """`make docs` writes them."""
    assert TABLE.read_text(encoding="utf-8") == table()
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_python_reference_has_what_the_package_offers():
    """Every public name of the package, and every public field and method of its results."""
    text = PAGE.read_text(encoding="utf-8")
    for name in desa_ray.__all__:
        if name != "__version__":
            assert f"\n### {name}\n" in text
    for kind in (notebook.Plan, notebook.Results, notebook.Progress):
        names = {*vars(kind), *kind.__dataclass_fields__}
        assert [n for n in names if not n.startswith("_") and n not in text] == []
