"""A small real collection (a slice of SciFact with recorded references), and the `desa` command as a user runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

DOCUMENTS, QUERIES = 500, 40


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _write(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture(scope="session")
def scifact_slice(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """500 documents and 40 queries of SciFact in BEIR layout: all relevant documents of the queries, then the first."""
    source = shared / "data" / "scifact"
    folder = tmp_path_factory.mktemp("slice")
    judged = [line.split("\t") for line in (source / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    queries = list(dict.fromkeys(row[0] for row in judged))[:QUERIES]
    judged = [row for row in judged if row[0] in queries]
    relevant = {row[1] for row in judged}
    corpus = _lines(source / "corpus.jsonl")
    rest = [row for row in corpus if row["_id"] not in relevant][: DOCUMENTS - len(relevant)]
    _write(folder / "corpus.jsonl", [row for row in corpus if row["_id"] in relevant] + rest)
    _write(folder / "queries.jsonl", [row for row in _lines(source / "queries.jsonl") if row["_id"] in queries])
    (folder / "qrels").mkdir()
    rows = ["query-id\tcorpus-id\tscore", *("\t".join(row) for row in judged)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows) + "\n")
    (folder / "generations").mkdir()
    for prompt in ("references", "query2doc"):
        recorded = _lines(source / "generations" / f"{prompt}.jsonl")
        _write(folder / "generations" / f"{prompt}.jsonl", [row for row in recorded if row["query_id"] in queries])
    return folder


@pytest.fixture
def desa(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Runs `desa ARGUMENTS` in an empty folder with its own home; `check=False` returns failures too."""

    def run(*arguments: str, check: bool = True, home: Path | None = None, timeout: float = 300):
        environment = {**os.environ, "DESA_HOME": str(home or tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "jobs", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def summaries(folder: Path) -> list[dict]:
    """The cells of the newest summary below a working folder (a sweep's own file where there is one)."""
    found = sorted(folder.glob("outputs/**/summary.json"), key=lambda path: (path.stat().st_mtime, -len(path.parts)))
    return json.loads(found[-1].read_text())["cells"]
