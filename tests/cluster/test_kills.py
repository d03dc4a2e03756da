"""Kills of everything, at random moments: no record is lost, none changes. A dozen in one test; a
hundred in ten tests of ten (`-k "ten and 103"` is one of them).
"""

import random
from pathlib import Path

import pytest

from tests.cluster.kills import Campaign
from tests.cluster.sweeps import serial_hashes

pytestmark = pytest.mark.timeout(900)
KINDS = ["actor", "node", "driver", "head", "mlflow", "s3"]


@pytest.fixture(scope="module")
def undisturbed(small_slice, tmp_path_factory) -> dict:
    return serial_hashes(tmp_path_factory.mktemp("undisturbed"), small_slice)


def _play(folder: Path, small_slice: Path, expected: dict, seed: int, kinds: list[str]) -> Campaign:
    campaign = Campaign(folder, small_slice, seed, expected)
    with campaign.place():
        campaign.play(kinds)
    after = [kill for kill in campaign.kills if kill.shards]
    assert len(campaign.kills) == len(kinds)
    assert len(after) >= len(kinds) / 2, campaign.told()
    return campaign


@pytest.mark.slow
def test_a_dozen_kills_change_no_record(small_slice, undisturbed, tmp_path, record_property):
    kinds = ["actor", "node", "driver", "mlflow", "actor", "s3", "node", "driver", "actor", "s3"]
    campaign = _play(tmp_path, small_slice, undisturbed, 19, [*kinds, "head", "actor"])
    record_property("kills", str(campaign.kills))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_ten_random_kills(seed, small_slice, undisturbed, tmp_path, record_property):
    """Each of a kind drawn by the seed; ten such tests are a hundred kills."""
    kinds = random.Random(seed).choices(KINDS, [3, 2, 2, 1, 1, 2], k=10)
    campaign = _play(tmp_path, small_slice, undisturbed, seed, kinds)
    record_property("kills", str(campaign.kills))
