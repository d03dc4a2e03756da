"""Spoilt input at every door: it is read, or refused by a DesaError that is one printable line per
problem.

A few inputs per door run in every test run, the same ones each time; thousands in the slow suite.
"""

import random
import shutil
from pathlib import Path

import pytest

from desa_ray.errors import DesaError
from tests.fuzz.doors import Door, doors
from tests.hostile import odd

FEW, MANY = 20, 1000


@pytest.fixture(scope="module")
def all_doors(tmp_path_factory) -> list[Door]:
    return doors(tmp_path_factory.mktemp("good"))


def knock(door: Door, folder: Path, count: int, seed: int) -> int:
    """How many inputs were refused; raises for one that ends in any other way than a DesaError."""
    draw, refused = random.Random(f"{door.name} {seed}"), 0
    for number in range(count):
        data = door.spoilt(draw)
        folder.mkdir()
        try:
            door.read(folder, data)
        except (DesaError, SystemExit) as error:
            refused += 1
            for line in str(error).splitlines():
                assert odd(line, allowed="") == []
        except BaseException as error:  # a panic of a Rust library is no Exception
            error.add_note(f"{door.name}, input {number}: {data[:2000]!r}")
            raise
        finally:
            shutil.rmtree(folder)
    return refused


def test_good_input_passes_every_door(all_doors, tmp_path, monkeypatch):
    """Otherwise spoilt input would say nothing."""
    monkeypatch.chdir(tmp_path)
    for number, door in enumerate(all_doors):
        (tmp_path / str(number)).mkdir()
        door.read(tmp_path / str(number), door.good)


def test_a_few_spoilt_inputs_at_every_door(all_doors, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    refused = sum(knock(door, tmp_path / "in", FEW, 0) for door in all_doors)
    assert refused > 2 * len(all_doors)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_thousands_of_spoilt_inputs_at_every_door(all_doors, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for door in all_doors:
        knock(door, tmp_path / "in", MANY, 1)
        capsys.readouterr()
    assert MANY * len(all_doors) >= 20_000
