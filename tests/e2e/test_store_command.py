"""`desa store` on the store of a real sweep and its MLflow runs."""

import json
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from desa_ray.errors import DesaError
from desa_ray.jobs import store as command
from desa_ray.store.artifacts import Store
from tests.desa_fixtures import METHODS, dataset, summaries

NOW = ["--older-than", "0"]


@pytest.fixture
def home(warm_home, monkeypatch) -> Path:
    monkeypatch.setenv("DESA_HOME", str(warm_home))
    # It names the database that this home was copied from
    (warm_home / "last_tracking.json").unlink()
    return warm_home


@pytest.mark.long
def test_runs_keep_what_they_refer_to_and_a_deleted_run_lets_go(
    home, serial_sweep, demo_slice, desa, tmp_path, capsys
):
    sweep = [METHODS, *dataset(demo_slice), "cluster=serial", "tracking.enabled=false"]
    desa("run", "-m", *sweep[1:], "method=original,desa", "fusion.kappa=20")  # no run refers to it
    before = {(own.stage, own.short) for own in Store(home / "store").list()}
    assert command.main(["gc", *NOW]) == 0
    assert "dry run: 4 of" in capsys.readouterr().out  # three draws of DESA, and Original
    assert {(own.stage, own.short) for own in Store(home / "store").list()} == before

    assert command.main(["gc", *NOW, "--delete"]) == 0
    assert "4 artifacts removed" in capsys.readouterr().out
    assert {
        stage
        for stage, _ in before - {(own.stage, own.short) for own in Store(home / "store").list()}
    } == {"fusion"}
    desa("run", "-m", *sweep)
    assert all(cell["stages"]["computed"] == 0 for cell in summaries(tmp_path))

    # in the trash with the run of Shared: what it alone was built on goes
    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    (shared,) = [cell for cell in summaries(serial_sweep) if cell["method"] == "shared"]
    client.delete_run(shared["mlflow_run_id"])
    assert command.main(["gc", *NOW, "--delete"]) == 0
    left = [own.key for own in Store(home / "store").list() if own.key]
    assert not [key for key in left if key.params.get("operator") in ("contextual", "rewrite")]
    desa("run", "-m", "method=original,dense_only,sparse_only,desa", *sweep[1:])
    assert all(cell["stages"]["computed"] == 0 for cell in summaries(tmp_path))


def test_list_says_sizes_last_use_and_how_many_runs(home, capsys):
    assert command.main(["list", "--all"]) == 0
    shown = capsys.readouterr().out
    (vectors,) = [
        line for line in shown.splitlines() if "vectors/" in line and "text_vectors/" not in line
    ]
    assert vectors.split("│")[-2].strip() == "5"  # every method's run
    size = sum(
        path.stat().st_size
        for path in (home / "store").rglob("*")
        if path.is_file() and ".leases" not in str(path)
    )
    assert f"{size / 1e6:.1f} MB in {home / 'store'}" in shown
    assert command.main(["list", "--no-runs"]) == 0


def test_verify_names_a_flipped_byte_and_fails(home, capsys):
    assert command.main(["verify"]) == 0
    (file,) = (home / "store" / "vectors").glob("*/part-00000*.faiss")
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)
    assert command.main(["verify", "postings"]) == 0
    capsys.readouterr()
    assert (
        command.main(
            ["verify", "vectors", f"postings/{next((home / 'store' / 'postings').iterdir()).name}"]
        )
        == 1
    )
    told = capsys.readouterr()
    assert file.name in told.err
    assert "1 damaged" in told.out
    with pytest.raises(DesaError, match="not in the store: nonsense"):
        command.main(["verify", "nonsense"])


def test_a_store_that_others_may_use_is_not_cleaned_on_the_runs(
    home, tmp_path, monkeypatch, capsys
):
    """A store that others may use is not cleaned on the runs of one home."""
    elsewhere = (home / "store").rename(tmp_path / "shared")
    with pytest.raises(DesaError, match=r"name every tracking store.*--tracking"):
        command.main(["gc", "--store", str(elsewhere)])
    uri = f"sqlite:///{home / 'mlflow.db'}"
    assert command.main(["gc", "--store", str(elsewhere), "--tracking", uri, *NOW]) == 0
    assert "dry run: 0 of" in capsys.readouterr().out
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "empty"))
    with pytest.raises(DesaError, match="no store, or it is empty"):
        command.main(["list"])


def test_outputs_and_waiting_log_entries_keep_what_they_name(home, serial_sweep, capsys):
    (home / "mlflow.db").rename(home / "lost.db")
    count = len(list(Store(home / "store").list()))
    command.main(["gc", *NOW])
    assert f"dry run: {count} of {count}" in capsys.readouterr().out
    command.main(["gc", *NOW, "--keep", str(serial_sweep / "outputs")])
    assert f"dry run: 0 of {count}" in capsys.readouterr().out
    fusion = next(
        own.key for own in Store(home / "store").list() if own.key and own.stage == "fusion"
    )
    entry = home / "outbox" / "address" / "sweep" / "00001.json"
    entry.parent.mkdir(parents=True)
    entry.write_text(json.dumps({"tags": {"key.fusion.draw0": fusion.digest}}))
    command.main(["gc", *NOW, "--all"])
    shown = capsys.readouterr().out
    assert f"fusion/{fusion.short}" not in shown
    assert f"of {count} artifacts" in shown
