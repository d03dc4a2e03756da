"""The benchmarks run, at a size that takes seconds; their targets hold, with `-m bench` at full
size.
"""

import json
import os
from pathlib import Path

import pytest

from desa_ray.engines.gemm import DigitsGemm

from . import counted, gpu, kernels
from .__main__ import suite
from .harness import Measured, Target, ratio
from .table import END, START, put_into_page


def test_targets_and_ratios_mean_what_they_say():
    line = ratio("x", "ours", "theirs", (0.5, 2.0), 3)
    assert (line.value, line.met) == (4.0, True)
    assert not Target(5).met(4.0)
    assert Target(5, most=True).met(4.0)
    assert ratio("x", "ours", "theirs", (0.5, 2.0), None).met is None


def test_the_kernels_benchmarks_run_on_small_data_and_agree():
    """The kernels benchmarks run on small data and agree with their baselines."""
    lines = [
        *kernels.dense(3000, 3, 1),
        *kernels.replays(3000, 60, 0.3, 3),
        *kernels.lazy(40_000, 3, 0.5),
        *kernels.statistic(70, 7, 50, 5),
    ]
    assert [line.name[0] for line in lines] == list("bbcccef")
    assert all(line.value > 0 for line in lines)


def test_counted_lazy_and_complete_agree_in_four_regimes():
    """And what a query moves stays within 16 KB, whatever the lists."""
    lines = counted.counted(10_000, 1)
    assert [line.ours.split(",")[1].strip() for line in lines] == [
        "equal lists",
        "half-shared lists",
        "independent lists",
        "opposed lists",
    ]
    assert all(0 < line.more["bytes_a_query"] <= 16 * 1024 for line in lines)


def test_the_gpu_script_compares_rankings_and_times():
    """With a device of float32 digits that numpy multiplies, as FAISS would on a GPU; a wrong one
    is found out.
    """
    exact = DigitsGemm("digits", lambda left, right: left @ right.T)
    wrong = DigitsGemm("wrong", lambda left, right: -(left @ right.T))
    right_line, wrong_line = gpu.compared([exact, wrong], 10_000, 3, 1)
    assert (right_line["device"], right_line["same_as_cpu"], wrong_line["same_as_cpu"]) == (
        "digits",
        True,
        False,
    )
    assert right_line["scores_ratio"] > 0


def test_the_table_goes_between_the_marks_of_the_page(tmp_path):
    results, page = tmp_path / "results.json", tmp_path / "benchmarks.md"
    lines = [
        ratio("a", "this", "that", (0.5, 2.0), 9),
        Measured("c", "own", "-", 1e-5, None, 10.0, "µs", Target(60, most=True)),
    ]
    results.write_text(json.dumps({"results": [line.document() for line in lines]}))
    page.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    put_into_page(results, page)
    text = page.read_text()
    assert "| this | that | 4 × | ≥ 9 (missed) |" in text
    assert "| own | (its own time) | 10 µs | ≤ 60 |" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text


def test_the_page_has_the_marks():
    text = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
    assert text.index(START) < text.index(END)


@pytest.mark.bench
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("letter", suite(None))
def test_targets_are_met(letter):
    """Whole runs on SciFact where it is there: the demo's take less than a minute."""
    scifact = (
        Path(os.environ.get("DESA_SHARED", Path(__file__).parents[3] / "shared")).resolve()
        / "data"
        / "scifact"
    )
    missed = [
        line
        for line in suite(str(scifact) if scifact.is_dir() else None)[letter]()
        if line.met is False
    ]
    assert not missed, "\n".join(
        f"{own.name}: {own.value:.3g} {own.unit}, target {own.target}" for own in missed
    )
