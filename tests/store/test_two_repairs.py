"""Two runs with store.repair=true at once both end, with a whole store: a short form of many
rounds.

The long form, by hand: `python tests/store/two_repairs.py 500`.
"""

import random
import time
from pathlib import Path

import pytest
from two_repairs import LIMIT_S, round_of_two, run

ROUNDS = 3  # fifty in the slow test below


@pytest.fixture
def whole(tmp_path) -> Path:
    run(str(tmp_path / "whole"))
    return tmp_path / "whole"


@pytest.mark.long
def test_two_repairs_at_once_both_end_well(whole, tmp_path):
    chance = random.Random(14)
    for number in range(ROUNDS):
        hurt, said, wrong = round_of_two(whole, tmp_path / f"round{number}", chance)
        assert said == ["done", "done"], hurt
        assert wrong == [], hurt


@pytest.mark.slow
@pytest.mark.busy
@pytest.mark.timeout(50 * 125)
def test_fifty_rounds_of_two_repairs_end_under_load(whole, tmp_path):
    """Each within its limit, which counts as hung, with two loops that keep the processors busy."""
    assert LIMIT_S == 120
    chance = random.Random(50)
    for number in range(50):
        started = time.monotonic()
        hurt, said, wrong = round_of_two(whole, tmp_path / f"round{number}", chance)
        assert said == ["done", "done"], hurt
        assert wrong == [], hurt
        assert time.monotonic() - started < LIMIT_S
