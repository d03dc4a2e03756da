"""A value that somebody types is used by a cell at least, or refused; cells that are equal in all
that they use are one.
"""

import json
from pathlib import Path

import polars as pl
import pytest

from desa_ray.config import GeneratorConfig
from desa_ray.experiment.unused import _of_generator
from tests.desa_fixtures import dataset

QUICK = ("cluster=serial", "tracking.enabled=false", "dataset=demo_small")
# overrides of `desa plan` -> places that are refused, and a word of the reason of each
REFUSED = {
    "kappa of a rule of scores": (
        ["fusion=combsum", "fusion.kappa=10"],
        {"fusion.kappa": "combsum"},
    ),
    "kappa of a rule of ranks": (["fusion=isr", "fusion.kappa=10"], {"fusion.kappa": "isr"}),
    "kappa of two rules without one": (
        ["fusion=zscore", "method=desa", "fusion.kappa=10"],
        {"fusion.kappa": "zscore"},
    ),
    "kappa of a rule set as a value": (
        ["fusion.rule=dbsf", "fusion.kappa=9"],
        {"fusion.kappa": "dbsf"},
    ),
    "a sweep that no cell uses": (
        ["-m", "fusion=combsum,isr", "fusion.kappa=10,60"],
        {"fusion.kappa": "no kappa"},
    ),
    "weights of a channel that is not there": (
        ["method=bm25", "fusion.weights={dense: 1/2}"],
        {"fusion.weights": "no dense channel"},
    ),
    "an encoder of a sparse method": (
        ["method=bm25", "encoder.pooling=cls", "encoder.max_tokens=100"],
        {"encoder.pooling": "no dense", "encoder.max_tokens": "no dense"},
    ),
    "BM25 of a dense method": (
        ["method=dense_original", "sparse.k1=2"],
        {"sparse.k1": "no sparse"},
    ),
    "BM25 of learned weights": (
        ["sparse=impact", "+sparse.k1=2", "+sparse.b=0.1"],
        {"sparse.k1": "no k1", "sparse.b": "no b"},
    ),
    "the analyzer beside a tokenizer": (
        ["sparse=impact", "sparse.tokenizer=t.json", "sparse.analyzer=de"],
        {"sparse.analyzer": "tokenizer"},
    ),
    "references of a method without": (
        ["method=original", "n_refs=3", "draws=2"],
        {"n_refs": "no generated text", "draws": "no generated text"},
    ),
    "references of another prompt": (["method=query2doc", "n_refs=2"], {"n_refs": "query2doc"}),
    "a live generator's of recorded text": (
        ["+generator.model=m", "+generator.concurrency=3"],
        {"generator.model": "recorded", "generator.concurrency": "recorded"},
    ),
    "a local engine's of a server": (
        ["generator=openai_server", "generator.model=m", "+generator.dtype=float32"],
        {"generator.dtype": "openai"},
    ),
    "a GPU's of a CPU": (
        ["generator=smollm2", "+generator.gpu_memory_utilization=0.5"],
        {"generator.gpu_memory_utilization": "cpu"},
    ),
    "a replacement of texts that nobody reads": (
        ["generator.map={hyde: references}"],
        {"generator.map": "references"},
    ),
    "decoding of a method without text": (
        ["method=original", "decoding.temperature=1"],
        {"decoding.temperature": "no generated text"},
    ),
    "a path of the built-in collection": (
        ["dataset.path=/data/mine"],
        {"dataset.path": "kind demo"},
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_cell_uses_is_refused(case, desa, tmp_path):
    overrides, places = REFUSED[case]
    done = desa("plan", *QUICK, *overrides, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(places), done.stderr
    for line, (place, why) in zip(lines, places.items(), strict=True):
        given = next(text for text in overrides if text.lstrip("+").startswith(f"{place}="))
        value = given.partition("=")[2]
        assert line.startswith(f"error: {place}: '{value}' has no effect: ")
        assert why in line
        assert line.endswith(")")  # a hint
    assert not list(tmp_path.rglob("summary.json"))


def test_one_draw_is_what_a_method_without_text_has(desa):
    assert "stored" in desa("plan", *QUICK, "method=bm25", "draws=1").stdout


@pytest.mark.long
def test_a_sweep_may_give_what_some_cells_use(demo_slice, warm_home, desa, tmp_path):
    """Cells of a rule without kappa are one cell, which has no kappa anywhere."""
    sweep = ("-m", *dataset(demo_slice), "cluster=serial", "method=original,desa")
    given = ("fusion=rrf,combsum", "fusion.kappa=10,60")
    done = desa("run", *sweep, *given, home=warm_home)
    (folder,) = tmp_path.glob("outputs/sweeps/*/*")
    cells = json.loads((folder / "summary.json").read_text())["cells"]
    found = [(cell["method"], cell.get("rule", "rrf"), cell["kappa"]) for cell in cells]
    assert found == [
        (method, rule, kappa)
        for method in ("original", "desa")
        for rule, kappa in (("rrf", 10), ("rrf", 60), ("combsum", None))
    ]
    assert "8 cells given, 6 of them different" in done.stderr
    assert "fusion.kappa" in done.stderr
    records = [pl.read_parquet(file) for file in sorted(folder.glob("*/records.parquet"))]
    assert len(records) == 6
    assert len({frame["config_hash"][0] for frame in records}) == 6
    assert [frame["kappa"][0] for frame in records].count(None) == 2
    report = tmp_path / "report"
    desa("report", f"hydra.run.dir={report}", "resamples=200", home=warm_home)
    rows = pl.read_csv(next(report.rglob("fusion_rules.csv")))
    assert rows["rule"].unique(maintain_order=True).to_list() == ["rrf", "rrf (κ 60)", "combsum"]


@pytest.mark.long
def test_a_search_may_repeat_equal_cells(demo_slice, warm_home, desa, tmp_path):
    """Every cell that was given has its summary, also where several are one."""
    sweep = ("-m", *dataset(demo_slice), "cluster=serial", "method=original,sparse_only")
    done = desa("run", *sweep, "n_refs=1,5", "hydra.sweeper.max_batch_size=3", home=warm_home)
    (folder,) = tmp_path.glob("outputs/sweeps/*/*")
    cells = json.loads(Path(folder / "summary.json").read_text())["cells"]
    found = [(cell["method"], cell["n_refs"]) for cell in cells]
    assert found == [("original", None), ("sparse_only", 1), ("sparse_only", 5)], done.stderr


def test_what_decides_the_reference_is_used(desa):
    """The original query's lists, with which cells are compared, are fused by the sweep's rule,
    constant and prefix, also where the method has its own.
    """
    for given in (["method=qudar_score", "fusion.kappa=20,60"], ["method=qudar_top1000"]):
        plan = desa("plan", "-m", *QUICK, *given, "fusion.prefix=200,600").stdout
        assert "4 cells" in plan or "2 cells" in plan, plan
        assert ("4 cells" in plan) == ("fusion.kappa=20,60" in given)


def test_settings_of_a_server_are_those_that_it_reads():
    config = GeneratorConfig("own", "openai", model="m")
    assert not any(own.covers("generator.seed_bits") for own in _of_generator(config))
