"""Two threads of one process use one outbox: an interrupt ends the log while another thread
finishes a cell.
"""

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from desa_ray.errors import DesaError
from desa_ray.tracking import outbox as outbox_module
from desa_ray.tracking.entries import cell_document
from desa_ray.tracking.outbox import Outbox, Target
from tests.tracking.entries_made_up import SWEEP, made_cell, open_log, runs_in

ROUNDS = 1000


class Recorder:
    """Notes what is delivered, slowly enough for the other thread to come in between."""

    def __init__(self, seed: int):
        self.random, self.delivered = random.Random(seed), Counter[str]()

    def send(self, document: Mapping[str, Any], folder: Path) -> str:
        assert [path.read_text() for path in folder.iterdir() if path.name[0] != "."] == [
            document["name"]
        ]
        time.sleep(self.random.choice((0, 0, 1e-5, 2e-4)))
        self.delivered[document["name"]] += 1
        return f"run of {document['name']}"


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """The interpreter changes threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def outbox(tmp_path, monkeypatch) -> Outbox:
    monkeypatch.setattr("os.fsync", lambda _: None)
    return Outbox.create(
        tmp_path / "outbox",
        Target(f"sqlite:///{tmp_path}/x.db", str(tmp_path / "a"), "tested", SWEEP, "attempt"),
    )


@pytest.mark.long
def test_two_threads_send_each_entry_once(outbox, tmp_path, eager_threads):
    """A thousand interleavings of put, send and keep."""
    outbox.delivery = recorder = Recorder(1)  # type: ignore[assignment]
    document = {
        **cell_document(made_cell(tmp_path / "out", "one")),
        "artifacts": [],
        "child": False,
    }
    sent: Counter[int] = Counter()
    failures: list[BaseException] = []
    barrier = threading.Barrier(2, timeout=60)

    def work(thread: int) -> None:
        try:
            for number in range(ROUNDS):
                name = f"{thread}-{number}"
                file = tmp_path / f"{thread}.txt"
                file.write_text(name)
                barrier.wait()
                own = outbox.put({**document, "name": name}, [file])
                sent.update(outbox.send(lambda: pytest.fail("no connection is needed")).keys())
                outbox.keep(own)
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert failures == []
    assert outbox.waiting() == []
    assert set(sent.values()) == set(recorder.delivered.values()) == {1}
    assert len(sent) == len(recorder.delivered) == 2 * ROUNDS
    assert set(outbox.sent.values()) == {f"run of {name}" for name in recorder.delivered}
    outbox.say_ended()
    outbox.close()
    assert not outbox.folder.exists()


def test_an_entry_after_the_end_is_refused_by_name(outbox):
    outbox.say_ended()
    outbox.close()
    with pytest.raises(DesaError, match="has already ended") as told:
        outbox.put({"kind": "cell"})
    assert told.value.where == str(outbox.folder)


def test_a_log_ended_while_a_cell_is_logged_has_both_once(uri, tmp_path, monkeypatch):
    """With a real store: the cell's thread sends, the main thread ends the log in the
    middle of it.
    """
    log = open_log(uri, tmp_path / "home")
    entered = threading.Event()
    whole = outbox_module._write

    def slowly(*arguments: Any) -> None:
        entered.set()
        time.sleep(0.05)
        whole(*arguments)

    monkeypatch.setattr(outbox_module, "_write", slowly)
    ids: list[str | None] = []
    thread = threading.Thread(
        target=lambda: ids.append(log.cell(made_cell(tmp_path / "out", "one")))
    )
    thread.start()
    assert entered.wait(60)
    log.end("KILLED", {}, [], [])
    thread.join(60)
    runs = runs_in(uri)
    assert [run.info.status for run in runs["a sweep"]] == ["KILLED"]
    assert [run.info.run_id for run in runs["one"]] == ids
    assert not list((tmp_path / "home" / "outbox").glob("*/*"))
