"""Two runs with store.repair=true at once both end, with a whole store: a short form of many
rounds.

The long form, by hand: `python tests/store/two_repairs.py 500`.
"""

import random
from pathlib import Path

import pytest
from two_repairs import round_of_two, run

ROUNDS = 8


@pytest.fixture
def whole(tmp_path) -> Path:
    run(str(tmp_path / "whole"))
    return tmp_path / "whole"


def test_two_repairs_at_once_both_end_well(whole, tmp_path):
    chance = random.Random(14)
    for number in range(ROUNDS):
        hurt, said, wrong = round_of_two(whole, tmp_path / f"round{number}", chance)
        assert said == ["done", "done"], hurt
        assert wrong == [], hurt
