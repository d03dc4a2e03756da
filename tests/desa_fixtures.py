"""A small real collection (a slice of SciFact with recorded references), and the `desa` command as
a user runs it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from desa_ray.jobs.__main__ import main

DOCUMENTS, QUERIES = 240, 20
METHODS = "method=original,shared,dense_only,sparse_only,desa"


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _write(path: Path, rows: list[dict]) -> None:
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )


def _slice(shared: Path, folder: Path, documents: int, n_queries: int) -> Path:
    """The first queries of SciFact with their relevant documents, filled up with its first other
    documents.
    """
    source = shared / "data" / "scifact"
    judged = [
        line.split("\t") for line in (source / "qrels" / "test.tsv").read_text().splitlines()[1:]
    ]
    queries = list(dict.fromkeys(row[0] for row in judged))[:n_queries]
    judged = [row for row in judged if row[0] in queries]
    relevant = {row[1] for row in judged}
    corpus = _lines(source / "corpus.jsonl")
    rest = [row for row in corpus if row["_id"] not in relevant][: documents - len(relevant)]
    _write(folder / "corpus.jsonl", [row for row in corpus if row["_id"] in relevant] + rest)
    _write(
        folder / "queries.jsonl",
        [row for row in _lines(source / "queries.jsonl") if row["_id"] in queries],
    )
    (folder / "qrels").mkdir()
    rows = ["query-id\tcorpus-id\tscore", *("\t".join(row) for row in judged)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows) + "\n")
    (folder / "generations").mkdir()
    for prompt in ("references", "query2doc"):
        recorded = _lines(source / "generations" / f"{prompt}.jsonl")
        _write(
            folder / "generations" / f"{prompt}.jsonl",
            [row for row in recorded if row["query_id"] in queries],
        )
    return folder


@pytest.fixture(scope="session")
def scifact_slice(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 documents and 20 queries of SciFact in BEIR layout, with recorded references and
    query2doc passages.
    """
    return _slice(shared, tmp_path_factory.mktemp("slice"), DOCUMENTS, QUERIES)


@pytest.fixture(scope="session")
def small_slice(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 documents and 8 queries: for tests that must encode everything themselves."""
    return _slice(shared, tmp_path_factory.mktemp("small"), 100, 8)


def dataset(folder: Path) -> list[str]:
    """The overrides that choose a slice."""
    return ["dataset=beir_folder", f"dataset.path={folder}", "dataset.name=slice"]


def run_desa(
    cwd: Path, home: Path, *arguments: str, timeout: float = 500
) -> subprocess.CompletedProcess:
    """The command as a user runs it: a process of its own in the folder `cwd`."""
    environment = {**os.environ, "DESA_HOME": str(home), "HF_HUB_OFFLINE": "1"}
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


@pytest.fixture(scope="session")
def serial_sweep(scifact_slice: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the five methods ran on the slice without Ray; its home is `home`."""
    folder = tmp_path_factory.mktemp("serial")
    done = run_desa(
        folder, folder / "home", "run", "-m", METHODS, *dataset(scifact_slice), "cluster=serial"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


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
