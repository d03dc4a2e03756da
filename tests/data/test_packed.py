"""Packed and broken files of every reader: bounded, streamed, and one line that names the file and
a hint.
"""

import bz2
import gzip
import lzma
import os
import random
import struct
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from desa_ray import unpacking
from desa_ray.data.trec import read_qrels, read_run
from desa_ray.errors import DesaError
from desa_ray.unpacking import file_blocks
from tests.data.source_files import FILES, hashes, load, make_folder, make_zip, refusal
from tests.fuzz.changes import bytes_changed

RUN = b"q Q0 a 1 2 t\nq Q0 b 2 1 t\n"


def zstd(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data, asbytes=True)


def framed(data: bytes) -> bytes:
    """One zstd frame of unknown size, as a stream is packed."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(data)
    return sink.getvalue().to_pybytes()


def told(path: Path) -> str:
    with pytest.raises(DesaError) as caught:
        read_run(path)
    assert caught.value.where.startswith(str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


PACKED = {
    "run.gz": gzip.compress(RUN),
    "run": gzip.compress(RUN),
    "members.gz": gzip.compress(RUN[:13]) + gzip.compress(b"") + gzip.compress(RUN[13:]),
    "padded.gz": gzip.compress(RUN) + bytes(512),
    "run.zst": framed(RUN),
    "run.txt": zstd(RUN),
    "frames.zst": framed(RUN[:13]) + framed(RUN[13:]),
}


@pytest.mark.parametrize("name", PACKED)
def test_runs_and_judgments_are_unpacked_whatever_their_name(name, tmp_path):
    (tmp_path / name).write_bytes(PACKED[name])
    assert read_run(tmp_path / name) == {"q": ["a", "b"]}


BROKEN = {
    "cut.gz": (gzip.compress(RUN * 999)[:-9], "cannot be read"),
    "garbage.gz": (gzip.compress(RUN) + b"x" * 40, "cannot be read"),
    "flipped.gz": (
        gzip.compress(RUN)[:15] + b"\xff\xff\xff" + gzip.compress(RUN)[18:],
        "cannot be read",
    ),
    "plain.gz": (RUN, "not compressed with gzip"),
    "empty.gz": (b"", "not compressed with gzip"),
    "plain.zst": (RUN, "not compressed with zstd"),
    "cut.zst": (framed(os.urandom(9000))[:-40], "cannot be read"),
    "twice.gz": (gzip.compress(gzip.compress(RUN)), "compressed twice: gzip within gzip"),
    "within.gz": (gzip.compress(framed(RUN)), "compressed twice: zstd within gzip"),
    "run.bz2": (bz2.compress(RUN), "compressed with bzip2"),
    "run.xz": (lzma.compress(RUN), "compressed with xz"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_unpacked_is_one_line_with_a_hint(name, tmp_path):
    data, what = BROKEN[name]
    (tmp_path / name).write_bytes(data)
    text = told(tmp_path / name)
    assert what in text
    assert text.endswith(")")


def test_a_zip_in_place_of_a_run_is_named(tmp_path):
    assert "compressed with zip" in told(make_zip(tmp_path / "run.trec", members={"run": RUN}))


LIMITED = """
import resource, sys
from pathlib import Path
from desa_ray import unpacking
unpacking.SMALL = 2 << 20
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]) << 20,) * 2)
from desa_ray.data.trec import read_qrels, read_run
from desa_ray.errors import DesaError
for read in (read_run, read_qrels):
    try:
        read(Path(sys.argv[1]))
    except DesaError as error:
        print(error)
status = Path("/proc/self/status").read_text()  # getrusage knows the peak of who started this, too
print(int(status.split("VmHWM:")[1].split()[0]) >> 10)
"""


@pytest.mark.long
@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
@pytest.mark.parametrize(
    "text", [b"q Q0 a 1 2 t\n", b" ", b"x"], ids=["lines", "blanks", "one line"]
)
def test_a_bomb_ends_at_its_limit_in_little_memory(pack, text, tmp_path):
    """20 MB out of some 20 kB; read whole it took twenty times its unpacked size."""
    (tmp_path / "bomb").write_bytes(pack(text * (20_000_000 // len(text))))
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "bomb"), "8000"],
        capture_output=True,
        text=True,
        check=True,
    )
    *told, peak_mb = done.stdout.splitlines()
    assert len(told) == 2
    for line in told:
        assert f"{tmp_path}/bomb" in line
        assert "unpacks to more than" in line or "a line is longer than 1 MiB" in line
    assert int(peak_mb) < 250


@pytest.mark.parametrize(("blank", "limit_mb"), [("\t", 150), (" ", 230)])
def test_a_packed_run_takes_memory_for_its_ids_and_numbers_alone(tmp_path, blank, limit_mb):
    """A quarter of a million lines in 12 MB beside what the imports take; in some 100 MB where they
    are read by columns.
    """
    fields = ("q{0}", "Q0", "d{1}", "{1}", "-{1}", "t\n")
    line = blank.join(fields)
    lines = (line.format(q, d) for q in range(250) for d in range(1000))
    with gzip.open(tmp_path / "run.gz", "wt", compresslevel=1) as file:
        file.writelines(lines)
    program = LIMITED.replace("for read in (read_run, read_qrels)", "for read in (len, read_run)")
    program = program.replace("read(Path(sys.argv[1]))", "read is len or read(Path(sys.argv[1]))")
    program = program.replace("except DesaError", "except ZeroDivisionError")
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "run.gz"), "8000"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < limit_mb


# Folders and zips


def test_gzip_and_zstd_without_their_endings(tmp_path):
    """Gzip and zstd without their endings are the same collection."""
    plain, packed = make_folder(tmp_path / "plain"), make_folder(tmp_path / "packed")
    (packed / "corpus.jsonl").write_bytes(gzip.compress((plain / "corpus.jsonl").read_bytes()))
    (packed / "queries.jsonl").write_bytes(framed((plain / "queries.jsonl").read_bytes()))
    (packed / "qrels" / "test.tsv").unlink()
    (packed / "qrels" / "test.tsv.zst").write_bytes(
        framed((plain / "qrels" / "test.tsv").read_bytes())
    )
    assert hashes(load(plain)) == hashes(load(packed))


def test_what_desktops_leave_behind_is_passed_over(tmp_path):
    plain = hashes(load(make_folder(tmp_path / "plain")))
    folder = make_folder(tmp_path / "folder")
    for name in (".DS_Store", "qrels/._test.tsv", "qrels/.DS_Store", "._corpus.jsonl"):
        (folder / name).write_bytes(b"\x00\x05\x16\x07 no text \xff")
    assert hashes(load(folder)) == plain
    for wrapping in ("", "mine/"):
        members = {wrapping + name: text for name, text in FILES.items()}
        members |= {
            ".DS_Store": b"\0",
            f"{wrapping}.DS_Store": b"\0",
            f"{wrapping}qrels/._test.tsv": b"\xff",
        }
        members |= {f"__MACOSX/{wrapping}._corpus.jsonl": b"\0", "Thumbs.db": b"\0"}
        assert hashes(load(make_zip(tmp_path / "set.zip", members=members))) == plain


@pytest.mark.parametrize("wrapping", ["", "mine\\"])
def test_a_zip_with_backslashes_is_read(wrapping, tmp_path):
    members = {wrapping + name.replace("/", "\\"): text for name, text in FILES.items()}
    if wrapping:
        members |= {"mine\\": b"", "mine\\qrels\\": b""}
    path = make_zip(tmp_path / "set.zip", members=members)
    assert hashes(load(path)) == hashes(load(make_folder(tmp_path / "plain")))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED])
def test_a_corrupt_member_is_one_line(method, tmp_path):
    path = tmp_path / "set.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
        start = archive.getinfo("corpus.jsonl").header_offset + 30 + len("corpus.jsonl")
        size = archive.getinfo("corpus.jsonl").compress_size
    whole = path.read_bytes()
    right = load(path).corpus_hash
    refused = []
    for place in range(start, start + size, 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
        try:  # some bits say who packed it, or fill the last byte
            assert load(path).corpus_hash == right
        except DesaError as error:
            refused.append(str(error))
    assert len(refused) > size // 6
    assert all(
        "set.zip/corpus.jsonl: cannot be read: " in text and "\n" not in text for text in refused
    )


def patched(path: Path, central: int, local: int, value: bytes) -> Path:
    """The zip with a field of its first member's headers written anew."""
    data = bytearray(path.read_bytes())
    for magic, offset in ((b"PK\x01\x02", central), (b"PK\x03\x04", local)):
        place = data.index(magic) + offset
        data[place : place + len(value)] = value
    path.write_bytes(data)
    return path


LIES = {
    "method 99": (10, 8, struct.pack("<H", 99)),
    "zstd method": (10, 8, struct.pack("<H", 93)),
    "encrypted": (8, 6, struct.pack("<H", 1)),
    "strong encryption": (8, 6, struct.pack("<H", 0x41)),
    "no bytes": (20, 18, struct.pack("<L", 0)),
    "more bytes than there are": (20, 18, struct.pack("<L", 1 << 30)),
    "unpacked size of zip64": (24, 22, struct.pack("<L", 0xFFFFFFFF)),
    "smaller than it is": (24, 22, struct.pack("<L", 3)),
    "larger than it is": (24, 22, struct.pack("<L", 5000)),
}


@pytest.mark.parametrize("name", LIES)
def test_a_zip_that_lies_in_its_headers_is_one_line(name, tmp_path):
    text = refusal(patched(make_zip(tmp_path / "set.zip"), *LIES[name]))
    assert "set.zip" in text
    assert len(text.splitlines()) == 1


def test_a_gzip_within_a_zip_may_unpack_to_what_the_zip_may(tmp_path, monkeypatch):
    """Limits of two layers would multiply."""
    monkeypatch.setattr(unpacking, "SMALL", 1 << 14)
    bomb = gzip.compress(gzip.compress(b"\n" * (30 << 20))[:0] + b"\n" * (20 << 20))
    members = {name: text for name, text in FILES.items() if name != "corpus.jsonl"} | {
        "corpus.jsonl.gz": bomb
    }
    path = make_zip(tmp_path / "set.zip", members=members)
    with zipfile.ZipFile(path) as archive:
        packed = archive.getinfo("corpus.jsonl.gz").compress_size
    assert packed * unpacking.MAX_RATIO < 20 << 20
    assert "unpacks to more than" in refusal(path)


def _no_traceback(rounds: int, seed: int, folder: Path) -> None:
    draw = random.Random(seed)
    zips = [make_zip(folder / "a.zip").read_bytes()]
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_STORED):
        with zipfile.ZipFile(folder / "b.zip", "w", method) as archive:
            for name, text in FILES.items():
                archive.writestr(name, text)
        zips.append((folder / "b.zip").read_bytes())
    runs = [RUN, *PACKED.values()]
    for _ in range(rounds):
        (folder / "set.zip").write_bytes(bytes_changed(draw.choice(zips), draw))
        (folder / "run").write_bytes(bytes_changed(draw.choice(runs), draw))
        for read, name in ((load, "set.zip"), (read_run, "run"), (read_qrels, "run")):
            told = ""
            try:
                read(folder / name)
            except DesaError as error:
                told = str(error)
            assert not told or str(folder) in told or "mine " in told


def test_broken_archives_and_runs_never_end_in_a_traceback(tmp_path):
    _no_traceback(150, 1, tmp_path)


@pytest.mark.slow
def test_thousands_of_broken_archives_and_runs_never_end(tmp_path):
    """Thousands of broken archives and runs never end in a traceback."""
    _no_traceback(8000, 2, tmp_path)


# What is not a file


def test_folders_devices_and_files(tmp_path):
    """Folders devices and files that are not there are one line."""
    (tmp_path / "folder").mkdir()
    assert "is a folder (name a file)" in told(tmp_path / "folder")
    assert "is neither a file nor a pipe" in told(Path("/dev/zero"))
    assert "No such file" in told(tmp_path / "absent")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "cannot be read" in told(tmp_path / "loop")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_one_line(tmp_path):
    (tmp_path / "run").write_bytes(RUN)
    (tmp_path / "run").chmod(0)
    assert "Permission denied (give yourself permission to read it)" in told(tmp_path / "run")


def test_a_permission_error_names_its_hint(tmp_path, monkeypatch):
    def refused(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "run").write_bytes(RUN)
    monkeypatch.setattr(os, "open", refused)
    assert "Permission denied (give yourself permission to read it)" in told(tmp_path / "run")


@pytest.mark.parametrize("data", [RUN, gzip.compress(RUN)], ids=["plain", "gzip"])
def test_a_pipe_is_read_to_its_end(data, tmp_path):
    os.mkfifo(tmp_path / "pipe")

    def write() -> None:
        with (tmp_path / "pipe").open("wb") as pipe:
            pipe.write(data[:20])
            pipe.flush()
            pipe.write(data[20:])

    writer = threading.Thread(target=write)
    writer.start()
    assert read_run(tmp_path / "pipe") == {"q": ["a", "b"]}
    writer.join()


def test_a_pipe_that_nobody_writes_to_is_not_waited(tmp_path, monkeypatch):
    """A pipe that nobody writes to is not waited for without end."""
    monkeypatch.setattr(unpacking, "SILENCE_S", 0.2)
    os.mkfifo(tmp_path / "pipe")
    assert "sent nothing for 0.2 s" in told(tmp_path / "pipe")


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "run"
    path.write_bytes(RUN * 100_000)
    blocks = file_blocks(path)
    next(blocks)
    with path.open("ab") as file:
        file.write(RUN)
    with pytest.raises(DesaError, match=r"run: changed while it was read \(rerun"):
        list(blocks)
