"""Progress where no terminal is: few lines, true numbers, no stage lost; and on a terminal: few
rows.
"""

import io

import pytest
from rich.console import Console

from desa_ray.errors import counted
from desa_ray.jobs.cli import console, progress
from desa_ray.jobs.cli.console import ConsoleListener
from desa_ray.pipeline.estimates import Planned
from desa_ray.pipeline.stage import Stage


def _stage(number: int) -> Stage:
    return Stage(None, "ranking", 1, {"number": number}, None, label=f"number {number}")  # pyright: ignore[reportArgumentType]


@pytest.fixture
def lines(capsys):
    """What stood on stderr since the last call."""

    def since() -> list[str]:
        return capsys.readouterr().err.splitlines()

    return since


def test_rows_of_equal_labels_show_what_differs():
    """Another K, and settings that are no labels, have columns; what is the same has none."""
    same = {"dataset": "demo", "method": "mine", "encoder": "e", "generator": None, "kappa": "60"}
    same |= {"n_refs": None, "corpus_docs": 9, "n_queries": 2, "metrics": {"ndcg_at_10": 0.5}}
    cells = [
        {**same, "k": 10, "apart": {"sparse.k1": "0.9"}},
        {**same, "k": 10, "apart": {"sparse.k1": "1.2"}},
        {**same, "k": 20, "apart": {}},
    ]
    table = console.cells_table(cells)
    titles = [str(column.header) for column in table.columns]
    assert titles[:3] == ["method", "k", "sparse.k1"]
    shown = [" ".join(map(str, column.cells)) for column in table.columns[:3]]
    assert shown == ["mine mine mine", "10 10 20", "0.9 1.2 -"]
    alone = console.cells_table([{**same, "k": 10}, {**same, "k": 10, "method": "other"}])
    assert str(alone.columns[1].header) != "k"


def test_quick_stages_share_a_line_and_slow_ones_have_their_own(lines):
    listener = ConsoleListener()
    for number, seconds in enumerate((0.1, 0.2, 7.25, 0.3)):
        listener.begin(_stage(number), 3, 2)
        listener.advance(_stage(number))
        listener.end(_stage(number), seconds)
    listener.close()
    assert lines() == [
        "2 quick stages: done in 0.3 s",
        "ranking      number 2: done in 7.2 s, 1 shard, 2 stored before",
        "1 quick stage: done in 0.3 s",
    ]


def test_a_long_stage_speaks_now_and_then_with_the_time(lines, monkeypatch):
    """A long stage speaks now and then with the time that is left."""
    monkeypatch.setattr(console, "SAY_EVERY_S", 0.0)
    listener = ConsoleListener()
    listener.begin(_stage(0), 4, 0)
    assert lines() == []
    listener.advance(_stage(0))
    assert lines()[0].startswith("ranking      number 0: 1 of 4 shards, about ")


def test_nouns_agree_with_their_numbers():
    assert (counted(1, "shard"), counted(0, "shard"), counted(2, "shard")) == (
        "1 shard",
        "0 shards",
        "2 shards",
    )


class _OnTerminal:
    """A listener on a terminal of 30 lines, and what is on it now."""

    def __init__(self, monkeypatch):
        self.terminal = Console(file=io.StringIO(), force_terminal=True, width=120, height=30)
        monkeypatch.setattr(console, "screen", lambda **_: self.terminal)
        self.listener = ConsoleListener()

    def rows(self) -> list[str]:
        assert self.listener.bars is not None
        paper = Console(file=io.StringIO(), width=120)
        paper.print(self.listener.bars.bars.get_renderable())
        return paper.file.getvalue().splitlines()  # pyright: ignore[reportAttributeAccessIssue]


def test_206_stages_take_as_many_rows_as_are_at_work(monkeypatch):
    """Finished stages only count; the last row has the time left: 204 of 206 stages of 10 s."""
    shown, clock = _OnTerminal(monkeypatch), [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    stages = [_stage(number) for number in range(206)]
    plans = [Planned(s, "compute", "documents", 5000, seconds=10.0) for s in stages]
    shown.listener.planned(stages, lambda: plans)
    shown.listener.begin(stages[0], 4, 0)
    assert len(shown.rows()) == 2
    assert "0 of 206 stages, about 34 min left" in shown.rows()[-1]
    for number in range(204):
        if number:
            shown.listener.begin(stages[number], 4, 0)
        clock[0] += 5.0  # twice as fast as was expected
        shown.listener.end(stages[number], 5.0)
    shown.listener.begin(stages[204], 4, 2)
    shown.listener.begin(stages[205], 4, 0)
    shown.listener.advance(stages[205])
    rows = shown.rows()
    assert [row.split()[:3] for row in rows[:2]] == [
        ["ranking", "number", n] for n in ("204", "205")
    ]
    assert "0 of 5,000 documents" in rows[0]
    assert "1,250 of 5,000 documents" in rows[1]
    assert "204 of 206 stages, about 9 s left" in rows[2]
    shown.listener.close()


def test_rows_of_one_name_say_what_they_are_built_on():
    """Two data sets and two encoders; equal names without any difference get their keys."""
    named = {"sci": "scifact", "cov": "trec-covid"}
    queries = {n: Stage(None, "queries", 1, {"n": n}, None, label=own) for n, own in named.items()}  # pyright: ignore[reportArgumentType]
    rank = [
        Stage(None, "ranking", 1, {}, None, {"queries": queries[n]}, "sparse product")  # pyright: ignore[reportArgumentType]
        for n in named
    ]
    alike = [Stage(None, "terms", 1, {"n": n}, None, label="query") for n in named]  # pyright: ignore[reportArgumentType]
    titles = progress.titles_of([*rank, *alike, _stage(7)])
    assert [titles[stage.key.digest] for stage in rank] == [
        "ranking      sparse product (scifact)",
        "ranking      sparse product (trec-covid)",
    ]
    assert [titles[stage.key.digest] for stage in alike] == [
        f"terms        query ({stage.key.short})" for stage in alike
    ]
    assert titles[_stage(7).key.digest] == "ranking      number 7"
