"""A fault of the program is one line, exit code 70 and a crash report that hides secrets."""

import os
import re
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from desa_ray import crash
from desa_ray.error_boundary import as_desa_error, error_boundary, exit_code, thread_hooks
from desa_ray.errors import Crashed, DesaError, Problems
from desa_ray.jobs.__main__ import main

PATH = re.compile(r"crash report: (/\S+?)[;)]")


def fails(error: BaseException | type[BaseException]):
    """A verb that raises."""

    def verb(_: list[str]) -> int:
        hidden = "value-of-a-local"
        assert hidden
        raise error

    return verb


@pytest.fixture
def command(tmp_path: Path, monkeypatch, capsys):
    """Runs `desa ARGUMENTS` in this process; returns exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["desa", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


def report_of(line: str) -> Path:
    found = PATH.search(line)
    assert found, line
    return Path(found[1])


# The command


def test_fault_is_one_line_and_a_private_report(command, monkeypatch):
    monkeypatch.setenv("SOME_SERVICE_TOKEN", "tok-5b1f99e02c")
    error = ValueError(
        "bad\x1b[31m thing tok-5b1f99e02c at https://me:hunter22@host/x?access_token=abcdef123"
    )
    monkeypatch.setattr("desa_ray.jobs.plan.main", fails(error))
    code, out, printed = command(
        "plan", "dataset.path=/secret/place", "fusion.kappa=17", "--config-dir", "/my/folder"
    )
    assert (code, out) == (70, "")
    [line] = printed.splitlines()
    assert line.startswith("error: unexpected ValueError: bad\\x1b[31m thing *** at ")
    path = report_of(line)
    assert path.parent == Path(os.environ["DESA_HOME"]) / "crashes"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    text = path.read_text()
    assert "verb: plan" in text
    assert "settings named: dataset.path, fusion.kappa, config-dir; other arguments: 1" in text
    assert re.search(r"desa-ray \d.*polars \d.*ray \d", text)
    assert "test_error_boundary.py" in text
    assert "in verb" in text
    for hidden in (
        "hunter22",
        "tok-5b1f",
        "abcdef123",
        "/secret/place",
        "/my/folder",
        "\x1b",
        os.environ["PATH"],
    ):
        assert hidden not in line + text
    assert "value-of-a-local" not in text.replace('hidden = "value-of-a-local"', "")


def test_a_panic_of_a_rust_library_is_caught(command, monkeypatch):
    class PanicException(BaseException): ...

    monkeypatch.setattr(
        "desa_ray.jobs.plan.main",
        fails(PanicException("called `Option::unwrap()` on a `None` value")),
    )
    code, _, printed = command("plan")
    assert code == 70
    assert "unexpected PanicException: called `Option::unwrap()`" in printed
    assert report_of(printed).exists()


@pytest.mark.parametrize(
    "error", [MemoryError(), RecursionError("too deep"), AssertionError(), OSError("no number")]
)
def test_every_other_error_is_one_line_too(command, monkeypatch, error):
    monkeypatch.setattr("desa_ray.jobs.plan.main", fails(error))
    code, _, printed = command("plan")
    assert code == 70
    assert len(printed.splitlines()) == 1
    assert type(error).__name__ in printed
    assert ("memory" in printed.split("report:")[1]) == isinstance(error, MemoryError)


def test_a_fault_inside_a_hydra_verb_shows_no_overrides(command, monkeypatch):
    monkeypatch.setattr("desa_ray.jobs.plan.show_plan", fails(TypeError("unexpected")))
    monkeypatch.setattr(
        "desa_ray.jobs.plan.spec_of", lambda *_: fails(ZeroDivisionError("division by zero"))([])
    )
    code, _, printed = command("plan", "dataset.name=quite_private")
    assert code == 70, printed
    [line] = printed.splitlines()
    assert "unexpected ZeroDivisionError: division by zero" in line
    assert "quite_private" not in line + report_of(line).read_text()


def test_user_errors_and_interrupts_are_no_faults(command, monkeypatch, tmp_path):
    expected = {
        KeyboardInterrupt(): (130, "interrupted"),
        SystemExit(3): (3, ""),
        DesaError("is wrong", where="here", hint="fix it"): (2, "error: here: is wrong (fix it)"),
        OSError(28, "No space left on device", "/x"): (
            2,
            "error: /x: No space left on device (free or fix the disk",
        ),
    }
    for error, (wanted, words) in expected.items():
        monkeypatch.setattr("desa_ray.jobs.plan.main", fails(error))
        code, _, printed = command("plan")
        assert code == wanted
        assert printed.startswith(words)
        assert "crash" not in printed
    assert not (tmp_path / "home").exists()


def desa(tmp_path: Path, *arguments: str, **options) -> subprocess.Popen:
    environment = {**os.environ, "DESA_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "desa_ray.jobs", *arguments]
    return subprocess.Popen(
        command, cwd=tmp_path, env=environment, text=True, stderr=subprocess.PIPE, **options
    )


UNREAD = {
    "usage": ("--help",),
    "completion": ("run", "-sc", "install=bash"),
    "settings": ("plan", "--cfg", "job"),
    "hydra": ("run", "--hydra-help"),
    "log lines": ("run", "--info"),
}


@pytest.mark.parametrize("kind", UNREAD)
def test_closed_output_pipe_ends_quietly(kind, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    process = desa(tmp_path, *UNREAD[kind], stdout=writing)
    os.close(writing)
    _, printed = process.communicate(timeout=300)
    assert (printed, process.returncode) == ("", 141)
    assert not (tmp_path / "home").exists()


def test_a_broken_pipe_of_something_else_is_a_fault(command, monkeypatch):
    monkeypatch.setattr("desa_ray.jobs.plan.main", fails(BrokenPipeError(32, "Broken pipe")))
    code, _, printed = command("plan")
    assert code == 70
    assert report_of(printed).exists()


def test_full_disk_at_stdout_is_one_line(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with Path("/dev/full").open("w") as full:
        process = desa(tmp_path, "--help", stdout=full)
        _, printed = process.communicate(timeout=300)
    assert process.returncode == 2
    assert printed.startswith("error:")
    assert "No space left" in printed
    assert len(printed.splitlines()) == 1


# Threads, finalizers and workers


def in_a_thread(name: str, error: BaseException) -> None:
    space = {"__name__": name, "error": error}
    exec("def work():\n    raise error", space)
    thread = threading.Thread(target=space["work"], name="a thread")
    thread.start()
    thread.join()


def test_errors_of_own_threads_decide_the_exit_code(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DESA_HOME", str(tmp_path))
    codes: list[int] = []
    monkeypatch.setattr("desa_ray.error_boundary._thread_codes", codes)
    with thread_hooks():
        in_a_thread("a_library.beat", KeyError("its own"))
        assert exit_code(0) == 0
        in_a_thread("desa_ray.store.beat", DesaError("the disk is gone"))
        assert exit_code(0) == 2
        in_a_thread("desa_ray.store.beat", KeyError("ours"))
    assert (exit_code(0), exit_code(2)) == (70, 2)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" (")[0] for line in lines] == [
        "error: unexpected KeyError: 'its own'",
        "error: the disk is gone",
        "error: unexpected KeyError: 'ours'",
    ]
    assert "thread a thread" in report_of(lines[2]).read_text()


def test_finalizer_error_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DESA_HOME", str(tmp_path))

    class Odd:
        def __del__(self):
            raise ValueError("in a finalizer")

    with thread_hooks():
        Odd()
    [line] = capsys.readouterr().err.splitlines()
    assert "in a finalizer" in report_of(line).read_text()


def test_faults_of_workers_decide_the_exit_code_of_a_sweep():
    user = DesaError("is wrong")
    assert Problems([user, user]).exit_code == 2
    assert Problems([user, Problems([Crashed("x"), user])]).exit_code == 70


def test_interrupts_pass_where_faults_are_caught(tmp_path, monkeypatch):
    monkeypatch.setenv("DESA_HOME", str(tmp_path))
    for signal in (KeyboardInterrupt, SystemExit):
        with pytest.raises(signal), error_boundary("a place"):
            raise signal
    with (
        pytest.raises(Crashed, match=r"a place: unexpected KeyError: 1 \(crash report") as first,
        error_boundary("a place"),
    ):
        raise KeyError(1)
    with pytest.raises(Crashed) as again, error_boundary("further out"):
        raise first.value
    assert again.value is first.value
    assert len(list((tmp_path / "crashes").iterdir())) == 1


# The file


def test_old_reports_are_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("DESA_HOME", str(tmp_path))
    folder = tmp_path / "crashes"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    written = [crash.write_report(what=f"number {n}") for n in range(crash.KEPT + 5)]
    assert sorted(path for path in folder.iterdir() if path.name != "notes.txt") == sorted(
        written[5:]
    )
    assert "number 24" in written[-1].read_text()


def test_threads_stacks_are_reported_for_locks(tmp_path, monkeypatch):
    monkeypatch.setenv("DESA_HOME", str(tmp_path))
    go = threading.Event()
    waiting = threading.Thread(target=go.wait, name="who-holds-it", daemon=True)
    waiting.start()
    path = crash.write_report(what="lock X was not given within 60 s", stacks=True)
    go.set()
    text = path.read_text()
    assert "what: lock X was not given within 60 s" in text
    assert "thread who-holds-it:" in text
    assert "in wait" in text
    assert "(this one)" in text


def test_report_goes_elsewhere_if_home_is_unusable(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "crashes").symlink_to(elsewhere)
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    for home in ("file", "linked", "nul\0byte"):
        monkeypatch.setattr("os.environ", {**os.environ, "DESA_HOME": str(tmp_path / home)})
        assert crash.write_report().parent == runtime / "desa-ray" / "crashes"
    assert list(elsewhere.iterdir()) == []


def test_folders_that_others_can_write_are_not_used(tmp_path, monkeypatch):
    runtime, temporary = tmp_path / "runtime", tmp_path / "tmp"
    runtime.mkdir(mode=0o755)
    temporary.mkdir()
    taken = temporary / f"desa-ray-{os.geteuid()}"
    taken.mkdir(mode=0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.delenv("DESA_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    path = crash.write_report()
    assert path.parent.parent == temporary
    assert path.parent != taken
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not (tmp_path / ".desa").exists()


def test_without_any_place_the_line_says_so(monkeypatch):
    monkeypatch.setattr("desa_ray.crash._folders", lambda: iter(()))
    assert "no crash report" in str(as_desa_error(KeyError("x")))


def test_odd_errors_are_reported_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("DESA_HOME", str(tmp_path))

    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    def deep(n: int) -> None:
        try:
            raise ValueError(n) if n else Odd
        except Exception as error:
            if n < 300:
                deep(n + 1)
            raise KeyError(n, "x" * 100_000) from error

    for error in (
        Odd(),
        ValueError("\ud800\u202e" * 10),
        ExceptionGroup("many", [ValueError(n) for n in range(500)]),
    ):
        printed = as_desa_error(error)
        assert len(str(printed).splitlines()) == 1
        assert str(printed).split(" (crash")[0].isprintable()
        assert report_of(str(printed)).read_text(encoding="utf-8")
    with pytest.raises(KeyError) as nested:
        deep(0)
    began = time.monotonic()
    assert crash.write_report(nested.value).stat().st_size < 1_000_000
    assert time.monotonic() - began < 20


def test_secrets_of_messages_are_replaced():
    for text in (
        "Authorization: Bearer abcdef123456",
        "{'api_key': 'abcdef123456'}",
        "password=abcdef123456&x=1",
        "my_token: abcdef123456",
        "key sk-abcdef123456",
        "https://user:abcdef123456@host/",
    ):
        assert "abcdef123456" not in crash.one_line(ValueError(text))
    assert crash.one_line(KeyError("max_tokens: 5")) == "KeyError: 'max_tokens: 5'"
