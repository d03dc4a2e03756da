"""What makes a node unfit: another platform, files that are not there or not the same."""

import os
import shutil
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from hydra import compose, initialize_config_module

from desa_ray.cluster.node_facts import facts, fingerprint
from desa_ray.cluster.preflight import differences, needs_of
from desa_ray.config import RunConfig
from desa_ray.jobs.cli.settings import spec_of
from desa_ray.pipeline.provenance import code_hash, installed, platform_facts
from desa_ray.store.files import Files


def _config(*overrides: str) -> RunConfig:
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        return spec_of(compose("config", overrides=list(overrides)), Path()).config


ONE = {
    "python": "3.12.1",
    "ray": "2.60.0",
    "desa-ray": "0.1.0",
    "code": "a" * 64,
    "environment": "e" * 64,
    "packages": {"numpy": "2.4.6", "polars": "2.1", "ray": "2.60.0"},
}


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({}, []),
        ({"python": "3.12.2"}, ["python is 3.12.2, not 3.12.1"]),
        ({"ray": "2.59.0"}, ["ray is 2.59.0, not 2.60.0"]),
        ({"code": "b" * 64}, [f"desa-ray 0.1.0 has different code ({'b' * 12}, not {'a' * 12})"]),
        # Tools that only one of two nodes has change nothing that both compute with.
        ({"environment": "f" * 64, "packages": {"numpy": "2.4.6", "pytest": "8"}}, []),
        (
            {"environment": "f" * 64, "packages": {"numpy": "2.3.5", "polars": "2.1"}},
            ["packages differ: numpy 2.3.5 (not 2.4.6)"],
        ),
    ],
)
def test_differences_name_what_was_found_and_what_was_expected(other, told):
    assert differences(ONE, ONE | other) == told


def test_what_is_not_expected_is_not_compared():
    assert differences({"desa-ray": "0.1.0"}, ONE) == []
    assert differences({"desa-ray": "0.2.0"}, ONE) == ["desa-ray is 0.1.0, not 0.2.0"]


def test_this_platform_equals_itself():
    assert differences(platform_facts(), platform_facts()) == []
    assert len(code_hash()) == 64


def test_a_copy_has_the_fingerprint_of_its_original_and_a_longer(tmp_path):
    """A copy has the fingerprint of its original and a longer file has not."""
    one = tmp_path / "one"
    (one / "qrels").mkdir(parents=True)
    (one / "corpus.jsonl").write_text("x" * 10_000)
    (one / "qrels" / "test.tsv").write_text("q\td\t1\n")
    two = Path(shutil.copytree(one, tmp_path / "two"))
    assert fingerprint(str(one)) == fingerprint(str(two))
    assert fingerprint(str(one / "corpus.jsonl")) == fingerprint(str(two / "corpus.jsonl"))
    (two / "corpus.jsonl").write_text("x" * 9_999 + "y")  # the same size, another end
    assert fingerprint(str(one / "corpus.jsonl")) != fingerprint(str(two / "corpus.jsonl"))
    (two / "qrels" / "test.tsv").write_text("q\td\t1\nq\te\t1\n")
    assert fingerprint(str(one)) != fingerprint(str(two))
    with pytest.raises(OSError, match="No such file"):
        fingerprint(str(tmp_path / "three"))


def test_a_node_tells_what_it_sees(tmp_path, monkeypatch):
    monkeypatch.setattr("desa_ray.cluster.node_facts.VISIBLE_TIMEOUT_S", 0.0)
    monkeypatch.setenv("KEY_THAT_IS_SET", "secret")
    probe = tmp_path / ".probe-1"
    probe.write_text("token")
    absent, other = tmp_path / "absent" / ".probe-2", tmp_path / ".probe-3"
    probes = {str(path): "token" for path in (probe, absent, other)}
    found = facts(probes, [str(tmp_path / "nothing")], ["KEY_THAT_IS_SET", "KEY_THAT_IS_NOT"])
    assert found["probes"] == {
        str(probe): "",
        str(absent): "has no such folder",
        str(other): "has a different folder of that name",
    }
    assert found["inputs"] == {str(tmp_path / "nothing"): f"error: {os.strerror(2)}"}
    assert found["unset"] == ["KEY_THAT_IS_NOT"]
    assert "secret" not in str(found)


def test_an_object_store_is_probed_by_reading_and_writing():
    files = Files(f"memory://{uuid4().hex}/store")
    files.publish("probe-1", b"probe-1")
    there, absent, other = (f"{files.root}/{name}" for name in ("probe-1", "probe-2", "probe-3"))
    files.publish("probe-3", b"else")
    found = facts({there: "probe-1", absent: "probe-2", other: "probe-3"}, [], [])["probes"]
    assert (found[there], found[other]) == ("", "finds other contents there")
    assert found[absent] == "does not see a file that was written there"
    assert sorted(files.list()) == ["probe-1", "probe-3"]


def test_needs_are_the_places_of_all_cells(tmp_path):
    base = _config("dataset=beir_folder", "dataset.path=/data/a", "encoder.path=/models/e")
    other = _config("generator=openai_server", "generator.model=m", "generator.api_key_env=THE_KEY")
    needs = needs_of([base, base, other], home=tmp_path, store_root="s3://bucket/store")
    assert dict(needs.shared) == {"DESA_HOME": str(tmp_path), "store.root": "s3://bucket/store"}
    assert dict(needs.inputs) == {
        "dataset.path=/data/a": "/data/a",
        "encoder.path=/models/e": "/models/e",
    }
    assert needs.variables == ("THE_KEY",)


def test_of_two_installed_versions_the_first_on_the_path_counts(tmp_path, monkeypatch):
    """Of two installed versions the first on the path counts as it is the one imported."""
    other = tmp_path / "polars-9999.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: polars\nVersion: 9999\n")
    own = installed.__wrapped__()["polars"]
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed.__wrapped__()["polars"] == "9999"
    monkeypatch.setattr("sys.path", [*sys.path[1:], str(tmp_path)])
    assert installed.__wrapped__()["polars"] == own
