"""What an actor does before its first shard; made in this process, without a cluster."""

import os

import pytest

from desa_ray.cluster.transport import _Actor
from desa_ray.errors import DesaError
from desa_ray.pipeline.stage import Pool


@pytest.mark.parametrize(("gpus", "seen"), [(0, ""), (0.5, "0,1"), (2, "0,1")])
def test_an_actor_without_a_gpu_sees_none(monkeypatch, gpus, seen):
    """Ray leaves it all devices of its node; what Ray gives to others stays as it is."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    _Actor(Pool("encoder", dict, gpus=gpus))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == seen


def test_an_engine_that_cannot_be_loaded_is_the_first_tasks_error(monkeypatch):
    """Preparing says nothing of it; loading again does."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    loads: list[int] = []

    def broken() -> None:
        loads.append(1)
        raise DesaError("no weights")

    actor = _Actor(Pool("encoder", broken))
    actor.prepare()
    with pytest.raises(DesaError, match="no weights"):
        actor.load()
    assert len(loads) == 2
