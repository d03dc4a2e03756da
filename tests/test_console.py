"""Progress where no terminal is: few lines, true numbers, no stage lost."""

import pytest

from desa_ray.errors import counted
from desa_ray.jobs.cli import console
from desa_ray.jobs.cli.console import ConsoleListener
from desa_ray.pipeline.stage import Stage


def _stage(number: int) -> Stage:
    return Stage(None, "ranking", 1, {"number": number}, None, label=f"number {number}")  # pyright: ignore[reportArgumentType]


@pytest.fixture
def lines(capsys):
    """What stood on stderr since the last call."""

    def since() -> list[str]:
        return capsys.readouterr().err.splitlines()

    return since


def test_quick_stages_share_a_line_and_slow_ones_have_their_own(lines):
    progress = ConsoleListener()
    for number, seconds in enumerate((0.1, 0.2, 7.25, 0.3)):
        progress.begin(_stage(number), 3, 2)
        progress.advance(_stage(number))
        progress.end(_stage(number), seconds)
    progress.close()
    assert lines() == [
        "2 quick stages: done in 0.3 s",
        "ranking      number 2: done in 7.2 s, 1 shard, 2 stored before",
        "1 quick stage: done in 0.3 s",
    ]


def test_a_long_stage_speaks_now_and_then_with_the_time(lines, monkeypatch):
    """A long stage speaks now and then with the time that is left."""
    monkeypatch.setattr(console, "SAY_EVERY_S", 0.0)
    progress = ConsoleListener()
    progress.begin(_stage(0), 4, 0)
    assert lines() == []
    progress.advance(_stage(0))
    assert lines()[0].startswith("ranking      number 0: 1 of 4 shards, about ")


def test_nouns_agree_with_their_numbers():
    assert (counted(1, "shard"), counted(0, "shard"), counted(2, "shard")) == (
        "1 shard",
        "0 shards",
        "2 shards",
    )
