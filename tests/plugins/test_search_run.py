"""`desa run -m objective=...`: batches of trials, failures that are told, searches that go on.

The encoder is a plug-in that cannot take one of the prefixes.
"""

import json
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from desa_ray.errors import DesaError
from desa_ray.experiment.summary import metric_names
from desa_ray.jobs.plan import main as plan
from desa_ray.jobs.run import main
from tests.desa_fixtures import dataset

MODULE = """
import numpy as np
from desa_ray.engines.plugged import EncoderEngine

class Lengths:
    dimension, block_size = 8, 1

    def encode(self, texts, names=None):
        if any(text.startswith("bad") for text in texts):
            raise ValueError("a prefix that it cannot take")
        return np.eye(8, dtype=np.float32)[[len(text) % 8 for text in texts]]

ENGINE = EncoderEngine(lambda config, home: {}, lambda config, **_: Lengths())
"""
ENCODER = "{name: lengths, backend: lengths, model: lengths, query_prefix: ''}"


@pytest.fixture
def search(offering, collection, tmp_path, monkeypatch):
    """Runs a search of the collection's kappa and prefix; returns what it wrote."""
    offering("lengths", MODULE, "[desa_ray.encoders]", "lengths = lengths:ENGINE")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    (tmp_path / "own" / "encoder").mkdir(parents=True)
    (tmp_path / "own" / "encoder" / "lengths.yaml").write_text(ENCODER)
    common = ["-m", "--config-dir", "own", *dataset(collection), "encoder=lengths"]
    common += ["method=dense_original", "cluster=serial", "tracking.enabled=false"]
    common += ["fusion.kappa=range(1,201)", "hydra.sweeper.max_batch_size=2", "trials=3"]

    def run(folder: str, *arguments: str, verb=main) -> dict:
        GlobalHydra.instance().clear()
        verb([*common, f"hydra.sweep.dir={folder}", *arguments])
        written = Path(folder) / "search.json"
        return json.loads(written.read_text()) if written.exists() else {}

    return run


@pytest.mark.slow  # seconds of Optuna, SQLAlchemy and three batches
def test_failed_cells_are_told_and_the_search_goes_on(search, capsys):
    chosen = ["objective=ndcg_at_10", "encoder.query_prefix=good,bad"]
    with pytest.raises(DesaError, match="a prefix that it cannot take"):
        search("one", *chosen)
    found = json.loads(Path("one/search.json").read_text())
    for row in found["trials"]:
        failed = row["settings"]["encoder.query_prefix"] == "bad"
        assert row["state"] == ("fail" if failed else "complete")
        summary = Path("one") / str(row["cell"]) / "summary.json"
        assert summary.exists() is not failed
        if not failed:
            (cell,) = json.loads(summary.read_text())["cells"]
            assert row["objectives"] == {"ndcg_at_10": cell["metrics"]["ndcg_at_10"]}
            assert int(cell["kappa"]) == row["settings"]["fusion.kappa"]
            assert set(cell["metrics"]) == set(metric_names(["nDCG@10", "R@20"]))
    states = [row["state"] for row in found["trials"]]
    assert len(states) == 3
    complete = states.count("complete")
    assert 0 < complete < 3
    cells = json.loads(Path("one/summary.json").read_text())["cells"]
    assert len(cells) == complete
    assert search("two", *chosen, f"trials={complete}") == {}  # nothing is left to try
    assert f"{complete} of {complete} trials are finished" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "verb", "words"),
    [
        (["objective=ndcg_at_1"], main, r"no metric 'ndcg_at_1' \(did you mean ndcg_at_10"),
        ([], main, r"trials: no objective \(name a metric"),
        (["objective=ndcg_at_10"], plan, "desa plan does not search"),
        (["objectiv=ndcg_at_10", "objective=ndcg_at_10"], main, "did you mean objective"),
    ],
)
def test_what_is_no_search_is_refused(search, arguments, verb, words):
    with pytest.raises(DesaError, match=words):
        search("no", *arguments, verb=verb)
    assert not Path("no").exists()
