"""The compose file: of the declared shape, healthy, local by default, without a secret,
and whole.
"""

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.infra.programs import REPOSITORY

FOLDER = REPOSITORY / "infra" / "compose"
TEXT = (FOLDER / "compose.yaml").read_text()
COMPOSE = yaml.safe_load(TEXT)
SERVICES = COMPOSE["services"]
ONCE = {"buckets"}
SECRET = re.compile(r"PASSWORD|SECRET|ACCESS|KEY", re.IGNORECASE)


def _validator() -> Draft202012Validator:
    schema = json.loads((Path(__file__).parent / "schemas" / "compose.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_it_has_the_declared_shape():
    assert [error.message for error in _validator().iter_errors(COMPOSE)] == []


@pytest.mark.parametrize(
    ("service", "change"),
    [
        ("mlflow", {"image": "registry.example/desa-mlflow"}),
        ("mlflow", {"ports": ["0.0.0.0:5000:5000"]}),
        ("postgres", {"privileged": True}),
        ("postgres", {"healthcheck": {"test": ["CMD", "true"]}}),
    ],
)
def test_the_shape_refuses_what_it_must(service, change):
    broken = {**COMPOSE, "services": {**SERVICES, service: {**SERVICES[service], **change}}}
    assert list(_validator().iter_errors(broken))


def test_every_service_that_stays_has_a_health_check():
    assert {name for name, service in SERVICES.items() if "healthcheck" not in service} == ONCE
    assert {name for name, service in SERVICES.items() if service["restart"] == "no"} == ONCE


def test_what_a_service_waits_for_can_come_true():
    for service in SERVICES.values():
        for name, wait in service.get("depends_on", {}).items():
            assert (wait["condition"] == "service_healthy") == ("healthcheck" in SERVICES[name])


def test_mounted_files_exist_and_volumes_are_declared():
    named = set()
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", volume).split(":")[0]
            if source.startswith("."):
                assert (FOLDER / source).exists(), source
            elif not source.startswith("/"):
                named.add(source)
    assert named == COMPOSE["volumes"].keys()


def test_secrets_come_from_the_env_file_and_it_shows_none():
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if SECRET.search(name):
                assert re.fullmatch(r"\$\{\w+:\?[^}]*\}", value), name
    example = dict(
        line.split("=", 1)
        for line in (FOLDER / ".env.example").read_text().splitlines()
        if re.match(r"\w+=", line)
    )
    required = set(re.findall(r"\$\{(\w+):\?", TEXT))
    assert required <= example.keys()
    assert {name for name in example if example[name] == ""} == required
    assert set(re.findall(r"\$\{(\w+)", TEXT)) == example.keys()


def test_the_env_file_is_ignored_by_git():
    assert "infra/compose/.env" in (REPOSITORY / ".gitignore").read_text().splitlines()


def test_grafana_is_provisioned_with_our_dashboards():
    mounts = dict(volume.split(":")[:2] for volume in SERVICES["grafana"]["volumes"])
    provider = yaml.safe_load((FOLDER / "grafana/dashboards.yaml").read_text())["providers"][0]
    assert mounts["../../dashboards/grafana"] == provider["options"]["path"]
    source = yaml.safe_load((FOLDER / "grafana/datasources.yaml").read_text())["datasources"][0]
    assert source["type"] == "prometheus"
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in SERVICES
