"""Two runs with store.repair=true at once both end, with a whole store: a short form of many rounds.

The long form, by hand: `python -m tests.store.test_two_repairs 500`.
"""

import random
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from two_repairs import round_of_two, run

ROUNDS = 12


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


def by_hand(rounds: int) -> None:
    """Many rounds; prints those that did not end well."""
    with tempfile.TemporaryDirectory(prefix="desa-") as name:
        folder, chance, bad = Path(name), random.Random(rounds), 0
        run(str(folder / "whole"))
        for number in range(rounds):
            hurt, said, wrong = round_of_two(folder / "whole", folder / "round", chance)
            shutil.rmtree(folder / "round")
            if said != ["done", "done"] or wrong:
                bad += 1
                print(number, hurt, said, wrong, flush=True)
        print(f"{rounds} rounds, {bad} did not end well", flush=True)


if __name__ == "__main__":
    by_hand(int(sys.argv[1]))
