"""Long counts are told on stderr, short ones are not."""

import sys
from io import StringIO

from desa_ray import counting as module
from desa_ray.counting import counting


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_what_takes_long_is_told(monkeypatch, capsys):
    assert [*counting(range(3), "planning cells")] == [0, 1, 2]
    assert capsys.readouterr().err == ""
    for name in ("AFTER_S", "ELSEWHERE_S", "TERMINAL_S"):
        monkeypatch.setattr(module, name, 0)
    assert len([*counting(range(1200), "planning cells")]) == 1200
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "planning cells: 0 of 1,200 (0 %)"
    assert lines[-1] == "planning cells: 1,199 of 1,200 (99 %)"


def test_a_terminals_line_replaces_itself_and_goes_away(monkeypatch):
    for name in ("AFTER_S", "TERMINAL_S"):
        monkeypatch.setattr(module, name, 0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert [*counting("ab", "composing cells")] == ["a", "b"]
    assert sys.stderr.getvalue() == (
        "\r\x1b[Kcomposing cells: 0 of 2 (0 %)\r\x1b[Kcomposing cells: 1 of 2 (50 %)\r\x1b[K"
    )
