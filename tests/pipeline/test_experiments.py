"""Experiments as config: every file composes and plans, every cell of it, with the stages it
promises to share.
"""

import math
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from desa_ray.config import RunConfig
from desa_ray.config_check import checked
from desa_ray.experiment.build import Builder, Cell
from desa_ray.experiment.prepare import prepare_cell
from desa_ray.experiment.run import plan as plan_cells
from desa_ray.experiment.spec import RUN_KEYS
from desa_ray.pipeline.stage import ancestors
from desa_ray.store.artifacts import Store
from hydra_plugins.desa_sweeper import union

CONF = Path(__file__).resolve().parents[2] / "conf"
EXPERIMENTS = sorted(file.stem for file in (CONF / "experiment").glob("*.yaml"))
# What the paper printed, and for which sets and methods
PAPER = OmegaConf.load(CONF / "compare" / "paper.yaml")
ROBUST = {"fiqa", "arguana", "webis-touche2020", "scidocs"}  # method.md section 11
BUILT_IN = ("demo", "demo_methods")  # they have their own collection
RECORDED = [
    "encoder=minilm_l6",
    "generator=recorded",
    "generator.map={hyde: references, mugi: references}",
]
ON_A_SLICE = {  # what a user without the paper's models would sweep instead
    "budget": ["generator.map={hyde: references, mugi: references, query2doc: references}"],
    "corpus_size": ["dataset.size=60,120,200,all"],
    "encoder": ["encoder=minilm_l6,minilm_l3"],
    "generator": ["dataset.sample=10"],
}
CELLS = {
    "ablations": 5,
    "controls": 12,
    "corpus_size": 8,
    "encoder": 4,
    "external": 7,
    "generator": 2,
    "kappa": 20,
    "operators": 17,
}


@pytest.fixture(scope="module", autouse=True)
def conf():
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("home")


@cache
def sweep(name: str, *given: str) -> list[list[str]]:
    """The overrides of every cell, as Hydra's sweeper makes them of the file and the
    command line.
    """
    sweeper = compose("config", [f"+experiment={name}"], return_hydra_config=True).hydra.sweeper
    grids = sweeper.grids or [sweeper.params]
    parsed = OverridesParser.create().parse_overrides([f"+experiment={name}", *given])
    return union([dict(grid) for grid in grids], parsed)


def typed(overrides: list[str]) -> RunConfig:
    plain = OmegaConf.to_container(compose("config", overrides), resolve=True)
    return checked(RunConfig, {key: plain[key] for key in RUN_KEYS if key in plain})


def choices(name: str) -> dict[str, set[str]]:
    """What the cells of an experiment choose, as it stands: axis -> values."""
    pairs = [override.split("=", 1) for cell in sweep(name) for override in cell]
    return {axis: {value for own, value in pairs if own == axis} for axis, _ in pairs}


@cache
def plan(name: str, folder: Path, home: Path) -> list[Cell]:
    """The cells of an experiment as a run plans them; the last are the same as planned alone."""
    on_slice = ["dataset=beir_folder", f"dataset.path={folder}", "dataset.name=slice", *RECORDED]
    given = [] if name in BUILT_IN else [*on_slice, *ON_A_SLICE.get(name, [])]
    store = Store(str(home / "store"))
    prepared = [prepare_cell(typed(cell), store, home) for cell in sweep(name, *given)]
    together, alone = plan_cells(prepared), [Builder(one).cell() for one in prepared[-4:]]
    for cell, same in zip(together[-4:], alone, strict=True):
        assert [s.key.digest for s in cell.targets] == [s.key.digest for s in same.targets]
    return together


def keys(cells: list[Cell], stage: str) -> set[str]:
    return {
        own.key.digest for cell in cells for own in ancestors(cell.targets) if own.name == stage
    }


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_composes_as_written(name):
    """Every experiment composes as written and says what it makes."""
    cells = sweep(name)
    assert len({frozenset(cell) for cell in cells}) == len(cells)
    product = math.prod(map(len, choices(name).values()))
    assert len(cells) == product or (name == "paper" and len(cells) < product)
    assert (
        compose("config", [f"+experiment={name}"], return_hydra_config=True).hydra.mode.name
        == "MULTIRUN"
    )
    for cell in (cells[0], cells[-1]):
        assert typed(cell).tracking.experiment == name
    for axis, values in choices(name).items():
        # The choices between are covered by those of their groups
        if (CONF / axis).is_dir():
            assert values <= {file.stem for file in (CONF / axis).glob("*.yaml")}
    assert (CONF / "experiment" / f"{name}.yaml").read_text().splitlines()[1].startswith("# ")


PARTS = (
    *("main", "external", "controls", "operators", "ablations"),
    *("kappa", "n_refs", "encoder", "generator"),
)


def test_the_papers_experiment_holds_all_others_once():
    """Every cell of its parts, by all that a cell is labelled with, and each of them once."""

    def cells(name: str) -> list[tuple]:
        found = []
        for cell in sweep(name):
            pairs = dict(override.split("=", 1) for override in cell)
            usual = {"encoder": "bge_small", "generator": "qwen2_5_7b", "method": "desa"}
            usual |= {"fusion.kappa": "60", "n_refs": "5", "dataset.size": "all"}
            usual |= {"dataset.sample": "100" if name == "generator" else "all"}
            usual |= {"dataset": "trec-covid"} if name == "corpus_size" else {}
            own = usual | {key: value for key, value in pairs.items() if key in (*usual, "dataset")}
            found.append(tuple(sorted(own.items())))
        return found

    whole = cells("paper")
    assert len(whole) == len(set(whole))
    for part in (*PARTS, "corpus_size"):
        assert set(cells(part)) <= set(whole), part


def test_what_is_given_holds_in_every_grid():
    """On one collection with one encoder and one generator, cells that became equal are one."""
    given = ["dataset=scifact", "encoder=minilm_l6", "generator=recorded"]
    cells = sweep("paper", *given)
    assert all(set(given) <= set(cell) for cell in cells)
    assert len({frozenset(cell) for cell in cells}) == len(cells)
    methods = choices("paper")["method"]
    # Every method, three more kappas of five, two numbers of references, a sample, three sizes.
    assert len(cells) == len(methods) + 15 + 2 + 2 + 6


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "paper"])
def test_every_experiment_plans_on_a_small_collection(name, demo_slice, home):
    cells = plan(name, demo_slice, home)
    assert len(cells) == CELLS.get(name, len(cells))
    stages = Counter(own.key.digest for cell in cells for own in ancestors(cell.targets))
    assert len(stages) < stages.total()  # cells share what they have in common


@pytest.mark.parametrize("name", ["main", "controls", "ablations", "external", "kappa", "n_refs"])
def test_the_papers_seven_sets_its_encoder_and_its_generator(name):
    assert choices(name)["dataset"] == set(PAPER.queries)
    config = typed(sweep(name)[0])
    assert (config.encoder.name, config.generator.name) == (
        PAPER.setting.encoder,
        PAPER.setting.generator,
    )
    assert (config.fusion.k, config.draws) == (PAPER.setting.k, PAPER.setting.draws)


def test_the_methods_are_those_of_the_papers_tables():
    """QuDAR's two depth comparisons are one Holm family, so both are in the experiment."""
    assert choices("main")["method"] == set(PAPER["main"])
    assert choices("external")["method"] == {*PAPER["external"], "qudar_weighted"}


def test_controls_hold_the_operator_pairs_and_qudars_weightings():
    assert choices("controls")["method"] >= {*PAPER.operator_controls, *PAPER.qudar_effects, "desa"}
    assert {"qudar_weighted", "qudar_top1000", "qudar_weighted_top1000"} <= choices("controls")[
        "method"
    ]


def test_robustness_uses_the_sets_and_values():
    """Robustness uses the sets and values of the specification."""
    assert choices("kappa")["fusion.kappa"] == {"2", "20", "60", "100"}
    assert choices("n_refs")["n_refs"] == {"1", "3", "5"}
    assert choices("corpus_size")["dataset.size"] == {"25000", "50000", "100000", "all"}
    assert typed(sweep("corpus_size")[0]).dataset.name == "trec-covid"
    assert choices("generator")["dataset"] == choices("encoder")["dataset"] == ROBUST
    assert choices("generator")["generator"] == {"qwen2_5_7b", "mistral_7b"}
    assert choices("encoder")["encoder"] == {"bge_small", "contriever"}
    assert {typed(cell).dataset.sample for cell in sweep("generator", "dataset=fiqa")} == {100}


def test_kappa_ranks_nothing_twice(demo_slice, home):
    cells = plan("kappa", demo_slice, home)
    sixty = [cell for cell in cells if cell.config.fusion.kappa == 60]
    assert keys(cells, "ranking") == keys(sixty, "ranking")
    assert len(keys(cells, "fusion")) == 4 * len(keys(sixty, "fusion"))


def test_corpus_sizes_share_vectors_and_texts(demo_slice, home):
    """Corpus sizes share vectors and texts and have their own postings."""
    cells = plan("corpus_size", demo_slice, home)
    assert [len(keys(cells, stage)) for stage in ("vectors", "postings", "snapshot_vectors")] == [
        1,
        4,
        3,
    ]
    for stage in ("generation", "text_vectors", "terms"):
        assert keys(cells, stage) == keys(cells[-2:], stage)
