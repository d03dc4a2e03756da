"""A log that survives failures of its server: every document goes to disk first and is sent from
there, in order.

    <outbox>/<address12>/<sweep12>-<attempt>/
        target.json       where it goes: address, experiment, sweep, attempt
        00003/            the artifacts of document 3
        00003.json        document 3, written after them
        00002.refused     document 2, which MLflow refuses; 00002.why says why
        lock              held by the sweep while it lives

A document is removed once MLflow has all of it; sending is repeatable (`delivery.py`), so a process
killed between the two loses and doubles nothing. Threads of one process take turns. A folder whose
lock is free belongs to a sweep that is dead or done: the next run, `desa sync` or the sweep's own
watchdog sends what it holds, and marks its runs KILLED where it never said `end`
(`left_behind.py`).
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import RLock
from typing import Any

from filelock import FileLock
from mlflow.exceptions import MlflowException

from desa_ray.errors import DesaError
from desa_ray.files import whole
from desa_ray.locks import ENTRIES, OUTBOX, SENDING, inside, tried
from desa_ray.tracking.delivery import Delivery
from desa_ray.tracking.entry_shapes import ENTRY as ENTRY_SHAPE
from desa_ray.tracking.entry_shapes import check_artifacts, read_json
from desa_ray.tracking.failures import told
from desa_ray.tracking.runs import Tracker, tracker_lock
from desa_ray.writing import not_written

RETRY_S = 30.0
ENTRY = "{:05d}.json"


@dataclass(frozen=True)
class Target:
    """Where a sweep's documents go. `artifacts` is the folder for artifacts of sqlite stores."""

    uri: str
    artifacts: str
    experiment: str
    sweep: str
    attempt: str


class Outbox:
    """The documents of one sweep on their way to MLflow. Any thread may put and send: an interrupt
    ends the log while another thread still logs a cell.
    """

    def __init__(self, folder: Path, target: Target, lock: FileLock):
        self.folder, self.target = folder, target
        self.number = 0
        self.delivery: Delivery | None = None
        self.repeats = False  # whether something may have been sent before, without an answer
        self.sent: dict[int, str] = {}
        self.refusals: dict[int, str] = {}
        self.trouble: str | None = None
        self.quiet_until = 0.0
        self.lock = lock
        self.closed = False
        self._entries, self._sending = RLock(), RLock()

    @classmethod
    def create(cls, root: Path, target: Target) -> "Outbox":
        """A new outbox below `root`, locked by this process."""
        folder = address_folder(root, target.uri) / f"{target.sweep[:12]}-{target.attempt}"
        with kept_on_disk(folder):
            folder.mkdir(parents=True)
            lock = tried(OUTBOX, folder / "lock")
            assert lock is not None, folder  # its name is new
            _write(folder / "target.json", asdict(target))
        return cls(folder, target, lock)

    def put(
        self, document: Mapping[str, Any], artifacts: Sequence[Path] = (), *, linked: bool = False
    ) -> int:
        """Write a document and copies of its artifacts; returns its number. From here on it cannot
        be lost.

        Args:
            document: plain data.
            artifacts: files.
            linked: have links instead of copies, where the disk can: for what is sent at once, or
                else gets its copies from `keep`.

        Raises:
            DesaError: the disk cannot hold it; nothing of it is left there. Or the log was ended by
                another thread.
        """
        with inside(ENTRIES, self._entries):
            if self.closed:
                raise DesaError(
                    "the log of this sweep has already ended", where=str(self.folder), hint="rerun"
                )
            number, self.number = self.number, self.number + 1
            place = self.folder / f"{number:05d}"
            try:
                with kept_on_disk(self.folder):
                    if artifacts:
                        place.mkdir()
                        for path in artifacts:
                            _take(path, place / path.name, linked=linked)
                    _write(self.folder / ENTRY.format(number), document)
            except DesaError:
                shutil.rmtree(place, ignore_errors=True)
                raise
        return number

    def keep(self, number: int) -> None:
        """Make copies of what a document that was not sent has links to: who edits the files must
        not edit the log.

        Raises:
            DesaError: the disk cannot hold them.
        """
        place = self.folder / f"{number:05d}"
        with kept_on_disk(self.folder):
            for path in list(place.glob("[!.]*")):
                copy = path.with_name(f".{path.name}")
                try:
                    if path.stat().st_nlink > 1:
                        shutil.copyfile(path, copy)
                        copy.replace(path)
                except FileNotFoundError:
                    if number in self.waiting():
                        raise
                    shutil.rmtree(place, ignore_errors=True)  # another thread sent it meanwhile

    def waiting(self) -> list[int]:
        """Numbers of the documents that are not sent yet, in order."""
        return sorted(int(path.stem) for path in self.folder.glob("[0-9]*.json"))

    def send(self, connect: Callable[[], Tracker], *, now: bool = False) -> dict[int, str]:
        """Send what waits, in order, until something fails; returns the run id of each document
        sent by this call.

        After a failure nothing is tried for half a minute, unless `now`. `trouble` says what failed
        last. A document that MLflow refuses for what it holds, or that is damaged, is set aside as
        `.refused`, and `refusals` says why; the rest is sent. Of several threads one sends, and the
        others wait for it; `sent` has what all of them sent.
        """
        sent: dict[int, str] = {}
        with inside(SENDING, self._sending):
            if not now and time.monotonic() < self.quiet_until:
                return sent
            for number in self.waiting():
                folder = self.folder / f"{number:05d}"
                try:
                    document = read_json(self.folder / ENTRY.format(number), ENTRY_SHAPE)
                    check_artifacts(document, folder)
                except (OSError, ValueError) as error:
                    self._refuse(number, f"log entry {number} is damaged: {error}")
                    continue
                try:
                    with tracker_lock(self.target.uri, Path(self.target.artifacts)):
                        sent[number] = self._delivery(connect).send(document, folder)
                except Exception as error:
                    # Whatever it is, the document is safe on disk; only a refusal of its content is
                    # final.
                    self.delivery, self.repeats = None, True
                    if _refused(error):
                        name = document.get("name", document["kind"])
                        self._refuse(number, f"log of {name}: {told(error)}")
                        continue
                    self.trouble = told(error)
                    self.quiet_until = time.monotonic() + RETRY_S
                    return sent
                self.trouble = None
                self.sent[number] = sent[number]
                self._remove(number)
        return sent

    def _delivery(self, connect: Callable[[], Tracker]) -> Delivery:
        if self.delivery is None:
            target = self.target
            names = target.experiment, target.sweep, target.attempt
            self.delivery = Delivery(connect(), *names, repeats=self.repeats)
        return self.delivery

    def refused(self) -> list[Path]:
        """Documents that MLflow refused; each has the reason next to it, in a `.why` file."""
        return sorted(self.folder.glob("[0-9]*.refused"))

    def ended(self) -> bool:
        """Whether the sweep said `end`; only a dead sweep did not."""
        return (self.folder / "ended").exists()

    def say_ended(self) -> None:
        (self.folder / "ended").touch()

    def close(self) -> None:
        """Let go; an outbox of an ended sweep from which everything was sent is removed."""
        try:
            with inside(ENTRIES, self._entries), inside(SENDING, self._sending):
                self.closed = True
                if self.ended() and not self.waiting() and not self.refused():
                    shutil.rmtree(self.folder)
                    with suppress(OSError):  # others have theirs there
                        self.folder.parent.rmdir()
        finally:
            self.lock.release()

    def _refuse(self, number: int, why: str) -> None:
        """Set a document aside, with the reason."""
        self.refusals[number] = why
        entry = self.folder / ENTRY.format(number)
        with suppress(OSError):  # a full disk: what counts is that the document stays
            entry.with_suffix(".why").write_text(why, encoding="utf-8")
        entry.rename(entry.with_suffix(".refused"))

    def _remove(self, number: int) -> None:
        (self.folder / ENTRY.format(number)).unlink()
        shutil.rmtree(self.folder / f"{number:05d}", ignore_errors=True)


def address_folder(root: Path, uri: str) -> Path:
    """The folder of a tracking store's outboxes."""
    return root / hashlib.sha256(uri.encode()).hexdigest()[:12]


def _take(path: Path, place: Path, *, linked: bool) -> None:
    if linked:
        with suppress(OSError):  # another disk, or one without links
            place.hardlink_to(path)
            return
    shutil.copyfile(path, place)


@contextmanager
def kept_on_disk(folder: Path) -> Iterator[None]:
    """Turns a failure to write there into an error for the user."""
    try:
        yield
    except OSError as error:
        hint = "free that disk or move DESA_HOME, then rerun"
        raise not_written(error, where=str(folder), hint=hint, whose="a log entry") from error


def _write(path: Path, value: Any) -> None:
    with whole(path, durable=True) as temporary, temporary.open("w", encoding="utf-8") as stream:
        json.dump(value, stream, ensure_ascii=False, allow_nan=False)


def _refused(error: Exception) -> bool:
    """Whether the server answered that the content is wrong; anything else may be better later."""
    if not isinstance(error, MlflowException):
        return False
    status = error.get_http_status_code()
    return 400 <= status < 500 and status not in (401, 403, 404, 408, 409, 429)
