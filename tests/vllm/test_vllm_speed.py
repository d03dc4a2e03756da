"""Our pool keeps an engine as busy as its own offline call does; the long form is
`tests.benchmarks.generation`.
"""

import pytest

from tests.benchmarks.generation import configured, made_up_collection, measured, stages

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900), pytest.mark.xdist_group("engine")]


def test_the_pool_is_nearly_as_fast_as_one_offline_call(
    engine, model_home, tmp_path, record_property
):
    """The same tokens, and the median of three ratios of tokens per second."""
    collection = made_up_collection(tmp_path / "made_up", 24)
    config = configured("smollm2", collection, 12, 8)
    lines: list[str] = []
    found = measured(engine, stages(config, tmp_path, model_home.parent), 3, lines.append)
    record_property("tokens per second", "; ".join(lines))
    assert found.ratio >= 0.85, lines
