"""Every verb and every flag: no way leads around the check of --config-dir, and nothing typed is
computed.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from desa_ray.errors import DesaError
from desa_ray.jobs.submit import main as submit
from tests.e2e.test_config_folder import MINE, SECRET, composed, surroundings, write

__all__ = ["surroundings"]

EVIL = "# @package _global_\nhydra: {job: {env_set: {DESA_TEST_MARK: made}}}\n"


@pytest.mark.parametrize("verb", ["run", "plan", "generate", "report", "verify", "submit"])
def test_every_verb_checks_the_folder_first(verb, refuse, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")  # never asked
    write("method/x.yaml", EVIL)
    refuse(["x.yaml:1: has a package header"], verb, "--config-dir", "my")
    refuse(["x.yaml:1: has a package header"], verb, "-cd=my", "--cfg", "job")
    assert "DESA_TEST_MARK" not in os.environ
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my"]


def test_what_arrives_from_a_submission_is_checked_again(refuse):
    write("method/x.yaml", EVIL)
    refuse(
        ["x.yaml:1: has a package header"],
        "run",
        "--config-name",
        "submitted",
        "--config-dir",
        "my",
    )


def test_a_submission_reads_the_folder_of_the_flag_however(monkeypatch):
    """A submission reads the folder of the flag however it is spelled."""
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")
    write("method/x.yaml", EVIL)
    for flag in (["--config-d=my"], ["-cd", "my"]):
        with pytest.raises(DesaError, match="package header"):
            submit([*flag, "submit.home=/shared"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config-path", "/tmp"], ["--config-path", "--config-dir"]),
        (["-cp=my"], ["--config-path", "--config-dir"]),
        (["--config-name", "method/mine"], ["--config-name method/mine"]),
        (["-cn", "hydra/config"], ["--config-name hydra/config"]),
        (["--experimental-rerun", "job.pickle"], ["--experimental-rerun", "loads objects"]),
        (["--exp", "job.pickle"], ["--experimental-rerun"]),
        (["--config-dir", ""], ["--config-dir", "no such folder"]),
        (["--config-dir", "my/method/mine.yaml"], ["--config-dir", "no such folder"]),
        (["hydra.searchpath=[file:///tmp]"], ["hydra.searchpath", "--config-dir"]),
        (["+hydra.searchpath=[pkg://os]"], ["hydra.searchpath"]),
        (["method@hydra.job=desa"], ["method@hydra.job", "leave out @hydra.job"]),
    ],
)
def test_other_ways_to_bring_files_are_refused(arguments: Sequence[str], words: list[str], refuse):
    write("method/mine.yaml", MINE)
    refuse(words, "run", *arguments)
    assert not Path("outputs").exists()


# What is typed on the command line


@pytest.mark.parametrize(
    "override",
    [
        "tracking.experiment=${oc.env:DESA_TEST_SECRET}",
        "tracking.experiment='x-${oc.env:DESA_TEST_SECRET}'",
        "tracking.experiment=$\\{oc.env:DESA_TEST_SECRET\\}",
        "tracking.experiment='${oc.decode:${oc.env:DESA_TEST_SECRET}}'",
        "tracking.experiment=${now:%Y}",
        "tracking.experiment=a,${oc.env:DESA_TEST_SECRET}",
        "+dataset.queries=['${oc.env:DESA_TEST_SECRET}']",
        "generator.map={hyde: '${oc.env:DESA_TEST_SECRET}'}",
        "hydra.run.dir=out/${oc.env:DESA_TEST_SECRET}",
        "hydra.job.name='${hydra:${oc.env:DESA_TEST_SECRET}}'",
    ],
)
@pytest.mark.parametrize("flags", [[], ["-m"], ["--cfg", "job", "--resolve"]])
def test_nothing_is_computed_from_the_environment(override, flags, refuse, capsys):
    name = override.partition("=")[0].lstrip("+")
    errors = refuse([f"{name}: ", f'{name}="$VARIABLE"'], "run", *flags, override)
    assert SECRET not in "".join(errors) + capsys.readouterr().out
    assert not Path("outputs").exists()


def test_references_and_names_of_output_folders_are_taken():
    folders = [
        "hydra.run.dir='${oc.env:DESA_OUTPUTS,out}/${now:%Y}/${hydra:job.name}'",
        "hydra.job.name=x",
    ]
    assert (
        composed("tracking.experiment='x-${dataset.name}'", *folders).config.tracking.experiment
        == "x-demo"
    )


def test_a_refused_sweep_leaves_nothing(refuse, tmp_path):
    refuse(["foo: no such setting"], "run", "-m", "foo=1,2")
    refuse(["no method 'nope'"], "run", "-m", "method=desa,nope", "hydra.sweep.dir=mine")
    refuse(["interval"], "run", "-m", "n_refs=interval(1,5)")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["draws=" + "9" * 5000], ["draws=999", "too long"]),
        (["method.channels=" + "[" * 1500 + "]" * 1500], ["method.channels=[[", "too deeply"]),
        (["-m", "draws=range(1,1000000000)"], ["1e+09 cells", "100000"]),
        (["-m", "draws=range(1,1e12)"], ["cells", "100000"]),
        (["-m", *(f"{name}=range(0,1000)" for name in ("draws", "n_refs"))], ["1e+06 cells"]),
        (["-m", *(f"{n}={','.join('1' * 400)}" for n in ("draws", "n_refs"))], ["1.6e+05 cells"]),
    ],
    ids=["digits", "nesting", "range", "float range", "product", "choices"],
)
def test_what_would_never_end_is_refused(overrides, words, refuse):
    refuse(words, "plan", *overrides)
