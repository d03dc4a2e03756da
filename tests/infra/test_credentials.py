"""Passwords in addresses never reach a file, a log or a message: they are refused at the door, and
shown as stars.
"""

import pytest
from hydra import compose, initialize_config_module

from desa_ray.credentials import has_credentials, redacted
from desa_ray.errors import DesaError
from desa_ray.jobs.cli.settings import spec_of
from desa_ray.jobs.run import main


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://ann:s3cr3t@host:5000/x", "http://***@host:5000/x"),
        ("http://ann:a@b/s3cr3t@host:5000", "http://***@host:5000"),
        ("s3://s3cr3t@bucket/key", "s3://***@bucket/key"),
        ("https://host/x?a=1&token=s3cr3t&b=2", "https://host/x?a=1&token=***&b=2"),
        ("postgresql+psycopg2://ann:s3cr3t@host/db", "postgresql+psycopg2://***@host/db"),
        ("tracking.uri='http://${oc.env:A}:${oc.env:B}@host'", "tracking.uri='http://***@host'"),
    ],
)
def test_credentials_are_found_and_hidden(address, shown):
    assert has_credentials(address)
    assert redacted(address) == shown


@pytest.mark.parametrize(
    "address",
    [
        "http://host:5000/a@b",
        "s3://bucket/a:b/c@d",
        "postgresql://ann@host/db",
        "sqlite:////folder/mlflow.db",
        "/folder/with@sign:and/colon",
        "ray://127.0.0.1:10001",
        "https://host/x?page=2",
    ],
)
def test_plain_addresses_pass(address):
    assert not has_credentials(address)
    assert redacted(address).count("*") <= 3


@pytest.mark.parametrize("where", ["tracking.uri", "store.root", "dataset.url", "cluster.address"])
def test_the_command_line_is_refused_before_anything_is_written(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DesaError, match="environment") as caught:
        main([f"{where}=http://ann:s3cr3t@host:5000"])
    assert "s3cr3t" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_interpolation_brings_in_is_refused_too(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_PART", "ann:s3cr3t@")
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        config = compose("config", overrides=["tracking.uri='http://${oc.env:SECRET_PART}host'"])
    with pytest.raises(DesaError, match=r"tracking\.uri") as caught:
        spec_of(config, tmp_path)
    assert "s3cr3t" not in str(caught.value)
