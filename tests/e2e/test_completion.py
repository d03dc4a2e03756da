"""TAB in a real, interactive bash; and the scripts that are printed for it."""

import os
import pty
import select
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from desa_ray.errors import DesaError
from desa_ray.jobs import VERBS
from desa_ray.jobs.cli import completion


class Bash:
    """A bash in a terminal of its own."""

    def __init__(self, folder: Path):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PS1": "$ ", "TERM": "dumb", "PATH": path}
        environment["DESA_HOME"] = str(folder / "home")
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment)

    def type(self, keys: str, wanted: str) -> None:
        """Type, and wait until `wanted` is shown after that."""
        os.write(self.terminal, keys.encode())
        shown, deadline = "", time.monotonic() + 90
        while wanted not in shown:
            assert time.monotonic() < deadline, repr(shown)
            if select.select([self.terminal], [], [], 0.2)[0]:
                shown += os.read(self.terminal, 65536).decode(errors="replace")

    def end(self) -> None:
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[Bash]:
    if shutil.which("bash") is None:
        pytest.skip("no bash here")
    shell = Bash(tmp_path)
    yield shell
    shell.end()


def test_tab_completes_verbs_groups_choices_and_keys(bash):
    bash.type('eval "$(desa run -sc install=bash)"; echo rea""dy\n', "ready")
    bash.type("desa pl\t", "desa plan ")
    bash.type("meth\t", "od")
    bash.type("=relaxed_c\t", "ount")
    bash.type(" fusion.kap\t", "pa=")


def test_scripts_name_the_verbs():
    for shell in completion.SHELLS:
        text = completion.script([f"install={shell}"], VERBS)
        assert text is not None
        assert " ".join(VERBS) in text
        assert "complete -o nospace" in text
    assert completion.script(["query=bash"], VERBS) is None
    assert "complete -r desa" in (completion.script(["uninstall=bash"], VERBS) or "")


@pytest.mark.parametrize("overrides", [[], ["install"], ["install=fish"], ["method=desa"]])
def test_other_requests_are_refused(overrides):
    with pytest.raises(DesaError, match=r"^-sc: "):
        completion.script(overrides, VERBS)


def test_hydra_is_asked_about_the_line_without_the_verb(monkeypatch):
    monkeypatch.setenv("COMP_LINE", "desa  run method=desa fus and more")
    monkeypatch.setenv("COMP_POINT", "25")
    completion.leave_out_verb()
    assert os.environ["COMP_LINE"] == "desa method=desa fus"


def test_a_query_without_a_shell_is_about_an_empty_line(monkeypatch):
    monkeypatch.delenv("COMP_LINE", raising=False)
    completion.leave_out_verb()
    assert os.environ["COMP_LINE"] == "desa "


@pytest.mark.parametrize("point", ["²", "9" * 5000, "-1", ""])
def test_an_odd_place_of_the_cursor_is_no_fault(point, monkeypatch):
    monkeypatch.setenv("COMP_LINE", "desa run met")
    monkeypatch.setenv("COMP_POINT", point)
    completion.leave_out_verb()
    assert os.environ["COMP_LINE"].split() == ["desa", "met"]
