"""Methods of a user's own, and settings of single methods, on a slice of the demo."""

import json
import shutil

import polars as pl
import pytest

from tests.desa_fixtures import dataset, run_desa, summaries
from tests.e2e.methods_sweep import MethodsSweep

pytestmark = pytest.mark.long


@pytest.fixture
def sweep(methods_sweep: MethodsSweep) -> MethodsSweep:
    return methods_sweep


MINE = """# The residual beside a half-weighted rewrite.
name: mine
prompt: references
channels:
  - {name: dense, kind: dense, operator: residual}
  - {name: sparse, kind: sparse, operator: rewrite, weight: "1/2"}
"""


def test_a_users_own_method_needs_one_file_in_a_folder_of_theirs(sweep, demo_slice, tmp_path):
    (tmp_path / "my" / "method").mkdir(parents=True)
    (tmp_path / "my" / "method" / "mine.yaml").write_text(MINE)
    common = [
        "--config-dir",
        "my",
        *dataset(demo_slice),
        "draws=1",
        "cluster=serial",
        "tracking.enabled=false",
    ]
    done = run_desa(
        tmp_path, sweep.folder / "home", "run", "-m", *common, "method=mine,relaxed_count,desa"
    )
    assert done.returncode == 0, done.stderr
    mine, _, desa = summaries(tmp_path)
    assert mine["method"] == "mine"
    assert mine["metrics"]["ndcg_at_10"] is not None
    assert mine["stages"]["computed"] == 1  # its rankings were there: only the fusion is new
    assert desa["stages"]["computed"] == 0


BROKEN = {
    "an unknown key": (
        "oprator: x, operator: residual",
        ["oprator", "known: name, kind, operator, weight"],
    ),
    "an unknown operator": (
        "operator: rotate",
        ["unknown dense operator 'rotate'", "known: original, residual"],
    ),
    "a weight of 0": ("operator: residual, weight: 0", ["weight 0 is not positive"]),
    "an impossible weight": (
        "operator: residual, weight: 1/0",
        ["method.channels.0.weight", "division by zero"],
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_users_broken_method_fails_at_plan_time(case, demo_slice, desa, tmp_path):
    """A users broken method fails at plan time with what is known."""
    channel, words = BROKEN[case]
    (tmp_path / "my" / "method").mkdir(parents=True)
    text = (
        f"name: mine\nprompt: references\nchannels:\n  - {{name: dense, kind: dense, {channel}}}\n"
    )
    (tmp_path / "my" / "method" / "mine.yaml").write_text(text)
    done = desa(
        "run",
        "--config-dir",
        "my",
        "method=mine",
        *dataset(demo_slice),
        "cluster=serial",
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, (word, done.stderr)
    assert not (tmp_path / "home" / "store" / "ranking").exists()


def test_nothing_admitted_is_desa_to_the_last_rank(sweep, demo_slice, tmp_path):
    common = [*dataset(demo_slice), "draws=1", "cluster=serial", "tracking.enabled=false"]
    for name, option in (("relaxed_count", "count=0"), ("relaxed_share", "share=1")):
        override = f"method.channels.1.options.{option}"
        done = run_desa(
            tmp_path,
            sweep.folder / "home",
            "run",
            *common,
            f"method={name}",
            override,
            f"hydra.run.dir={name}",
        )
        assert done.returncode == 0, done.stderr
        records = pl.read_parquet(tmp_path / name / "records.parquet")
        expected = sweep.records["desa"].filter(pl.col("draw") == 0)
        same = ["ranking_hashes", "depths", "top", "replay_hash", "ndcg_at_10"]
        assert records.select(same).rows() == expected.select(same).rows()


def test_each_channel_may_have_a_prompt_of_its_own(sweep, demo_slice, tmp_path):
    stand_ins = "generator.map={semantic_rewrite: query2doc, lexical_rewrite: references}"
    common = [
        *dataset(demo_slice),
        "draws=1",
        "cluster=serial",
        "tracking.enabled=false",
        "hydra.run.dir=out",
    ]
    done = run_desa(tmp_path, sweep.folder / "home", "run", *common, "method=dvcqr", stand_ins)
    assert done.returncode == 0, done.stderr
    records = pl.read_parquet(tmp_path / "out" / "records.parquet")
    label = "recorded:semantic_rewrite<-query2doc,lexical_rewrite<-references"
    assert set(records["generator"]) == {label}
    keys = set(records["generation_key"])
    assert keys == {
        f"{_one(sweep, 'query2doc', 'generation_key')},{_one(sweep, 'desa', 'generation_key')}"
    }
    assert records["generation_hash"].str.count_matches(",").to_list() == [1] * records.height
    assert records["support_retained"].min() < 1  # a rewrite drops words of the query


def _one(sweep: MethodsSweep, method: str, column: str) -> str:
    (value,) = set(sweep.records[method].filter(pl.col("draw") == 0)[column])
    return value


def test_a_fallback_is_original_in_every_channel(sweep, demo_slice, tmp_path):
    """A fallback is original in every channel and says nothing of mechanism."""
    shutil.copytree(demo_slice / "generations", tmp_path / "texts")
    file = tmp_path / "texts" / "references.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    broken = next(row for row in rows if row["draw"] == 0)
    broken["texts"] = [broken["texts"][0]] * 5
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = [*dataset(demo_slice), "draws=1", "cluster=serial", "tracking.enabled=false"]
    texts = [f"generator.folder={tmp_path / 'texts'}", "generator.strict=true"]
    done = run_desa(
        tmp_path, sweep.folder / "home", "run", "-m", *common, *texts, "method=desa,qudar_complete"
    )
    assert done.returncode == 0, done.stderr
    for cell in summaries(tmp_path):  # one draw: a query is a query-draw
        share = 100 * cell["fallbacks"] / cell["n_queries"]
        assert share > 0
        assert cell["fallback_pct_of_query_draws"] == pytest.approx(share)
        assert cell["fallback_pct_of_queries"] == pytest.approx(share)
    desa, qudar = (
        pl.read_parquet(path)
        for path in sorted(tmp_path.glob("outputs/sweeps/*/*/*/records.parquet"))
    )
    this = pl.col("query_id") == broken["query_id"]
    (own,), (original,) = (
        desa.filter(this).to_dicts(),
        sweep.records["original"].filter(this).to_dicts(),
    )
    assert own["fallback"]
    for column in (
        "top",
        "depths",
        "ranking_hashes",
        "ndcg_at_10",
        "cut_ndcg_at_10",
        "cut_same_top",
    ):
        assert own[column] == original[column], column
    assert {
        own[name] for name in ("turnover", "rr_change", "support_retained", "dense_angle_deg")
    } == {None}
    assert len(qudar.filter(this)["depths"][0]) == 4
    (four,) = qudar.filter(this)["ranking_hashes"].to_list()
    assert (four[0], four[1]) == (four[2], four[3])


def test_related_methods_run_on_the_demos_own_texts(desa, tmp_path):
    # Planned only: encoding the demo takes minutes. Every recording is read and checked by it.
    shown = desa("plan", "-m", "+experiment=demo_methods", "cluster=serial", "detail=true").stdout
    assert "9 cells" in shown
    for prompt in (
        "semantic_rewrite draw 2",
        "lexical_rewrite draw 2",
        "hyde draw 2",
        "mugi draw 2",
    ):
        assert prompt in shown, prompt
