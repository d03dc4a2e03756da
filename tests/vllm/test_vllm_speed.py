"""Our pool keeps an engine as busy as its own offline call does; the long form is
`tests.benchmarks.generation`.
"""

import statistics

import pytest

from tests.benchmarks.generation import configured, made_up_collection, measured, stages

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900), pytest.mark.xdist_group("engine")]
ENOUGH = 0.85


def test_the_pool_is_nearly_as_fast_as_one_offline_call(
    engine, model_home, tmp_path, record_property
):
    """The same tokens, and the median ratio of tokens per second: of three pairs of runs, or where
    others kept the machine busy, of nine.
    """
    collection = made_up_collection(tmp_path / "made_up", 24)
    config = configured("smollm2", collection, 12, 8)
    lines: list[str] = []
    made = stages(config, tmp_path, model_home.parent)
    ratios = measured(engine, made, 3, lines.append).ratios
    if statistics.median(ratios) < ENOUGH:
        ratios += measured(engine, made, 6, lines.append).ratios
    record_property("tokens per second", "; ".join(lines))
    assert statistics.median(ratios) >= ENOUGH, lines
