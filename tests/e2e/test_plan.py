"""`desa plan` as a user calls it: views, options of its own, and refusals with code 2."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from desa_ray.jobs.__main__ import main
from tests.desa_fixtures import dataset

Plan = Callable[..., tuple[int, str, str]]


@pytest.fixture
def plan(small_slice: Path, tmp_path: Path, monkeypatch, capsys) -> Plan:
    """Runs `desa VERB` on the small slice in this process; returns exit code, output and errors."""

    def run(*arguments: str, verb: str = "plan") -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
        monkeypatch.setattr("sys.argv", ["desa", verb, *arguments, *dataset(small_slice)])
        GlobalHydra.instance().clear()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def test_table_folds_equal_kinds_and_detail_shows_every_stage(plan):
    code, folded, _ = plan("-m", "method=original,desa,shared", "cluster=serial")
    assert code == 0
    assert "3 cells" in folded
    # Rankings: original once, two operators for each of three draws
    assert "7 to compute" in folded
    assert "37 stages: 3 stored, 34 to compute" in folded
    assert folded.count("fusion") == 1
    code, detailed, _ = plan("-m", "method=original,desa,shared", "cluster=serial", "detail=true")
    assert code == 0
    assert detailed.count("fusion") == 7
    assert "desa draw 2" in detailed


def test_tree_shows_what_is_computed_from_what(plan):
    code, tree, _ = plan("view=tree", "cluster=serial", "draws=1")
    assert code == 0
    lines = tree.splitlines()
    depth = {
        name: next(line.index(name) for line in lines if name in line)
        for name in ("fusion", "ranking", "vectors")
    }
    assert depth["fusion"] < depth["ranking"] < depth["vectors"]


def test_an_experiment_file_is_planned_as_it_would_run(plan):
    code, printed, errors = plan("+experiment=demo", "cluster=serial", "draws=1")
    assert code == 0, errors
    assert "5 cells" in printed


def test_explain_takes_the_number_of_a_cell(plan):
    code, printed, _ = plan("-m", "method=original,desa", "explain=1", "cluster=serial")
    assert code == 0
    assert "cell 1: slice desa" in printed
    assert "nothing of this kind is stored" in printed
    code, _, errors = plan("-m", "method=original,desa", "explain=2", "cluster=serial")
    assert (code, "explain: there is no cell 2 (cells are 0 to 1)" in errors) == (2, True)
    code, _, errors = plan("explain=first", "cluster=serial")
    assert code == 2
    assert "explain" in errors


def test_the_options_of_plan_are_not_those_of_run(plan):
    code, _, errors = plan("detail=true", verb="run")
    assert code == 2
    assert "detail" in errors


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_what_cannot_run_is_refused_before_anything_is_computed(verb, plan, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    code, _, errors = plan("generator=qwen2_5_7b", "cluster=serial", verb=verb)
    assert code == 2
    assert "error: generator.device: generator qwen2_5_7b needs 1 GPU, this machine has 0" in errors
    code, _, errors = plan(
        "cluster=serial", "cluster.memory_gb=0.000001", "tracking.enabled=false", verb=verb
    )
    assert code == 2
    assert "error: cluster.memory_gb: one query alone takes" in errors
    assert not list((tmp_path / "home" / "store").glob("*/*/*.npy"))
