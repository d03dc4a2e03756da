"""Numbers, lists and folders that `desa fuse --rule`, `depth`, `tune` and `compare` cannot use."""

import random
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import desa_ray
from desa_ray.error_boundary import as_desa_error
from desa_ray.errors import Crashed, DesaError
from desa_ray.jobs.compare import main as compare
from desa_ray.jobs.depth import main as depth
from desa_ray.jobs.fuse import main as fuse
from desa_ray.jobs.tune import main as tune

MANY = "9" * 5000  # more digits than Python turns into a number
TINY = "1e-999,1e999"


def run(folder: Path, name: str, seed: int, documents: int = 12) -> str:
    chance = random.Random(seed)
    lines: list[str] = []
    for query in range(5):
        found = chance.sample(range(2 * documents), documents)
        for rank, document in enumerate(found, 1):
            lines.append(f"q{query} Q0 d{document} {rank} {documents - rank + 0.5} t\n")
    (folder / name).write_text("".join(lines))
    return str(folder / name)


@pytest.fixture
def files(tmp_path) -> tuple[list[str], str]:
    judged = "".join(f"q{n} 0 d{d} 1\n" for n in range(5) for d in range(4))
    (tmp_path / "q.txt").write_text(judged)
    return [run(tmp_path, f"{name}.trec", seed) for seed, name in enumerate("ab")], str(
        tmp_path / "q.txt"
    )


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--k", MANY], "--k: .* is not a whole number"),
        (["--k", "²"], "--k: '²' is not a whole number from 1 to 10000 .such as --k 10,20"),
        (["--shards", MANY], "--shards: .* is not a whole number"),
        (["--weights", TINY], "weight 1e-999 is out of range"),
        (["--kappa", "1e999"], "kappa 1e999 is out of range"),
        (["--measures", "P@5"], "--measures: needs judgments"),
    ],
)
def test_numbers_that_depth_cannot_use(options, what, files):
    with pytest.raises(DesaError, match=what):
        depth([*files[0], *options])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--depth", MANY], "--depth: .* is not a whole number"),
        (["--depth", "0"], "--depth: '0' is not a whole number from 1"),
        (["--kappa", "60,1e999"], "is out of range"),
        (["--weights", TINY], "is out of range"),
        (["--resamples", "0"], "--resamples: 0 is out of range .use from 1 to 1000000"),
        (["--seed", "-1"], "--seed: -1 is out of range .use 0 or more"),
    ],
)
def test_numbers_that_tune_cannot_use(options, what, files):
    with pytest.raises(DesaError, match=what):
        tune([*files[0], "--qrels", files[1], *options])


@pytest.mark.parametrize("number", ["1e100", "1e-100", "-1e-100"])
def test_the_largest_and_smallest_numbers_are_fused(number, files, tmp_path, capsys):
    """As long as products of them stay numbers."""
    kappa = number if not number.startswith("-") else "1e-100"
    given = f"1,{number.lstrip('-')}"
    assert fuse([*files[0], "--kappa", kappa, "--weights", given, "--out", str(tmp_path)]) == 0
    assert depth([*files[0], "--kappa", kappa, "--weights", given]) == 0
    options = ["--kappa", f"60,{kappa}", "--weights", given]
    assert tune([*files[0], "--qrels", files[1], *options, "--resamples", "10"]) == 0


def test_many_lists_are_fused_without_a_proof_that_never_ends(tmp_path, capsys):
    """A certificate looks at combinations of lists, whose number doubles with every list."""
    runs = [run(tmp_path, f"r{number}.trec", number, 6) for number in range(30)]
    out = tmp_path / "out"
    assert fuse([*runs, "--rule", "isr", "--k", "3", "--out", str(out)]) == 0
    told = capsys.readouterr()
    assert "no depths: a proof looks at every combination" in told.out + told.err
    assert "sorted_r0" not in pl.read_parquet(out / "depths.parquet").columns
    found = desa_ray.fuse_rule([["a", "b"]] * 30, "isr", k=1)
    assert found.documents == ("a",)
    assert found.sorted_depths is None
    assert found.refused


@pytest.mark.parametrize("name", ["depths.parquet", "depths.csv", "fused.trec", "scores.parquet"])
def test_a_full_disk_is_one_line(name, files, tmp_path, capsys):
    """Also where a library says so by errors of its own."""
    out = tmp_path / "out"
    out.mkdir()
    (out / name).symlink_to("/dev/full")
    with pytest.raises(DesaError, match="cannot be written: No space left on device") as caught:
        fuse([*files[0], "--rule", "isr", "--out", str(out)])
    assert not isinstance(caught.value, Crashed)


@pytest.mark.parametrize("command", [fuse, depth, tune, compare])
def test_a_folder_that_cannot_be_made_is_named(command: Callable[..., int], files, tmp_path):
    """Before anything is read or computed."""
    judged = [] if command is fuse else ["--qrels", files[1]]
    out = str(tmp_path / "q.txt" / "below")
    with pytest.raises(DesaError, match=r"cannot be written: Not a directory .*--out"):
        command(["nothing.trec", *judged, "--out", out])


def test_a_full_disk_is_no_crash_wherever_polars_writes():
    with pytest.raises(pl.exceptions.PolarsError) as caught:
        pl.DataFrame({"a": [1]}).write_parquet("/dev/full")
    told = as_desa_error(caught.value, "here")
    assert not isinstance(told, Crashed)
    assert str(told).startswith("here: No space left on device (free or fix the disk")


@pytest.mark.parametrize("verb", [fuse, depth, tune, compare])
def test_a_folder_whose_name_is_not_utf8_is_refused(verb: Callable[..., int], files, tmp_path):
    """Before anything is computed: parquet files cannot be written there."""
    runs, judged = files
    further = ["--qrels", judged] if verb in (tune, compare) else []
    odd = tmp_path / "out\udcff"
    with pytest.raises(DesaError) as found:
        verb([*runs, *further, "--out", str(odd)])
    assert (found.value.what, found.value.where) == ("the name is not UTF-8", str(odd))
    assert "--out" in found.value.hint
    assert not odd.exists()
