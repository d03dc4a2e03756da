"""A small real collection (a slice of the demo with its recorded references), and the `desa`
command as a user runs it.
"""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock
from hydra.core.global_hydra import GlobalHydra

from desa_ray.data import demo
from desa_ray.jobs.__main__ import main
from tests.warm_start import WarmStart

DOCUMENTS, QUERIES = 240, 20
METHODS = "method=original,shared,dense_only,sparse_only,desa"


def _write(path: Path, rows: list[dict]) -> None:
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )


def once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object], wait_s: float = 500
) -> Path:
    """A folder that the first worker of a test run makes and all of them read."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder = root / f"once-{name}"
    with FileLock(root / f"once-{name}.lock", timeout=wait_s):
        if not folder.exists():
            folder.mkdir()
            make(folder)
            (folder / "made").touch()
        assert (folder / "made").exists(), f"{name}: another test could not make it"
    return folder


def _slice(folder: Path, documents: int, n_queries: int) -> None:
    """The demo's first needs with their best two documents, filled up with its first others.

    Judgments are binary. Texts are cut to 40 words, which encodes them in a fifth of the time.
    Query2doc passages are two references each: the demo has its own for a few needs only.
    """
    found = demo.load()
    needs = dict(sorted(found.queries)[:n_queries])
    judged: dict[str, list[str]] = {need: [] for need in needs}
    for need, document, grade in sorted(found.qrels, key=lambda row: (row[0], -row[2], row[1])):
        if need in judged and grade > 0 and len(judged[need]) < 2:
            judged[need].append(document)
    relevant = {document for own in judged.values() for document in own}
    others = [row[0] for row in found.documents if row[0] not in relevant]
    chosen = relevant | set(others[: documents - len(relevant)])
    _write(
        folder / "corpus.jsonl",
        [
            {"_id": name, "title": title, "text": " ".join(text.split()[:40])}
            for name, title, text in found.documents
            if name in chosen
        ],
    )
    _write(folder / "queries.jsonl", [{"_id": need, "text": text} for need, text in needs.items()])
    (folder / "qrels").mkdir()
    lines = ["query-id\tcorpus-id\tscore"]
    for need, own in judged.items():
        lines += [f"{need}\t{document}\t1" for document in own]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    (folder / "generations").mkdir()
    file = demo.generations_folder() / "references.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    references = [row for row in rows if row["query_id"] in needs]
    _write(folder / "generations" / "references.jsonl", references)
    passages = [
        {**row, "prompt": "query2doc", "texts": [" ".join(row["texts"][:2])]} for row in references
    ]
    _write(folder / "generations" / "query2doc.jsonl", passages)


@pytest.fixture(scope="session")
def demo_slice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 documents and 20 queries of the demo in BEIR layout, with references and query2doc
    passages.
    """
    return once(tmp_path_factory, "slice", lambda folder: _slice(folder, DOCUMENTS, QUERIES))


@pytest.fixture(scope="session")
def small_slice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 documents and 8 queries: for tests that must encode everything themselves."""
    return once(tmp_path_factory, "small", lambda folder: _slice(folder, 100, 8))


def dataset(folder: Path) -> list[str]:
    """The overrides that choose a slice."""
    return ["dataset=beir_folder", f"dataset.path={folder}", "dataset.name=slice"]


@cache
def _warm_start() -> WarmStart:
    warm = WarmStart()
    atexit.register(warm.end)
    return warm


BUSY = threading.Lock()  # one command at a time starts warm


def run_desa(
    cwd: Path, home: Path, *arguments: str, timeout: float = 500
) -> subprocess.CompletedProcess:
    """The command as a user runs it: a process of its own in the folder `cwd`.

    It starts from one that has imported everything, unless the environment asks for more.
    """
    environment = {**os.environ, "DESA_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    if _warm_start().serves(environment) and BUSY.acquire(blocking=False):
        try:
            return _run_warm(cwd, environment, arguments, timeout)
        finally:
            BUSY.release()
    command = [sys.executable, "-m", "desa_ray.jobs", *arguments]
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def _run_warm(
    cwd: Path, environment: dict[str, str], arguments: tuple[str, ...], timeout: float
) -> subprocess.CompletedProcess:
    with tempfile.TemporaryDirectory(prefix="desa-warm-") as name:
        out, err = Path(name) / "out", Path(name) / "err"
        started = _warm_start().run(list(arguments), str(cwd), environment, str(out), str(err))
        killed = threading.Event()

        def kill() -> None:
            killed.set()
            os.kill(started.pid, signal.SIGKILL)

        limit = threading.Timer(timeout, kill)
        limit.start()
        code = started.wait()
        limit.cancel()
        printed = out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")
    if killed.is_set():
        raise subprocess.TimeoutExpired(arguments, timeout, *printed)
    return subprocess.CompletedProcess(arguments, code, *printed)


@pytest.fixture(scope="session")
def serial_sweep(demo_slice: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the five methods ran on the slice without Ray; its home is `home`."""

    def sweep(folder: Path) -> None:
        arguments = ["-m", METHODS, *dataset(demo_slice), "cluster=serial"]
        done = run_desa(folder, folder / "home", "run", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr

    return once(tmp_path_factory, "sweep", sweep)


@pytest.fixture
def warm_home(serial_sweep: Path, tmp_path: Path) -> Path:
    """A home of the test's own whose store holds what the serial sweep computed."""
    return Path(shutil.copytree(serial_sweep / "home", tmp_path / "home"))


@pytest.fixture
def desa(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Runs `desa ARGUMENTS` in an empty folder with its own home; `check=False` returns failures
    too.
    """

    def run(*arguments: str, check: bool = True, home: Path | None = None, timeout: float = 500):
        done = run_desa(tmp_path, home or tmp_path / "home", *arguments, timeout=timeout)
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def summaries(folder: Path) -> list[dict]:
    """The cells of the newest summary below a working folder (a sweep's own file where there is
    one).
    """
    found = sorted(
        folder.glob("outputs/**/summary.json"),
        key=lambda path: (path.stat().st_mtime, -len(path.parts)),
    )
    return json.loads(found[-1].read_text())["cells"]


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """Three documents, two queries, references: small enough to break in every way."""
    folder = tmp_path / "tiny"
    (folder / "qrels").mkdir(parents=True)
    (folder / "generations").mkdir()
    texts = ["the cat sat on the mat", "dogs chase cats", "planets orbit the sun"]
    rows = [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries = [{"_id": "q1", "text": "cat"}, {"_id": "q2", "text": "sun"}]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td0\t1\nq2\td2\t1\n")
    references = [
        {
            "query_id": q,
            "prompt": "references",
            "draw": d,
            "texts": [f"{q} passage number {n} of {d}" for n in range(5)],
        }
        for q in ("q1", "q2")
        for d in range(3)
    ]
    (folder / "generations" / "references.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in references)
    )
    return folder


@pytest.fixture
def refuse(tmp_path: Path, monkeypatch, capsys):
    """Runs the command in this process, as a plan needs no other; it must end with code 2 and
    errors with `words`.
    """

    def run(words: list[str], *arguments: str) -> list[str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
        monkeypatch.setattr("sys.argv", ["desa", *arguments])
        GlobalHydra.instance().clear()
        with pytest.raises(SystemExit) as ended:
            main()
        return refused(int(ended.value.code or 0), capsys.readouterr().err, words)

    return run


def refused(code: int, printed: str, words: list[str]) -> list[str]:
    """The error lines of a command that ended as a refusal should; each word is in one of them."""
    assert code == 2, printed
    assert "Traceback" not in printed
    errors = [line for line in printed.splitlines() if line.startswith("error:")]
    assert errors, printed
    for word in words:
        assert any(word.lower() in line.lower() for line in errors), (word, errors)
    return errors
