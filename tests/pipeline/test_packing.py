"""Which workers fit on which nodes, by hand and by trying every way on small clusters."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from desa_ray.pipeline.packing import Node, Standing, arrange
from desa_ray.pipeline.stage import Pool

ONE_GPU = Pool("encoder", dict, cpus=1, gpus=1)
FOUR_GPUS = Pool("generator", dict, cpus=1, gpus=4)
SMALL = Pool("replayer", dict, cpus=1)


def test_idle_workers_end_on_one_node_for_one_that_takes_the_whole_of_it():
    """Four encoders stand two and two; a worker with four GPUs needs one of the nodes empty."""
    nodes = {"a": Node(8, 4), "b": Node(8, 4)}
    idle = [Standing(number, ONE_GPU, "ab"[number % 2]) for number in range(4)]
    found = arrange(nodes, FOUR_GPUS, 1, kept=[], idle=idle)
    assert found.placed == 1
    assert found.ended == (2, 0)  # both of one node, and none of the other


def test_nobody_ends_where_a_node_has_room():
    nodes = {"a": Node(8, 4), "b": Node(8, 4)}
    idle = [Standing(number, ONE_GPU, "a") for number in range(4)]
    found = arrange(nodes, FOUR_GPUS, 2, kept=[], idle=idle)
    assert found.placed == 2
    assert sorted(found.ended) == [0, 1, 2, 3]
    assert arrange(nodes, FOUR_GPUS, 1, kept=[], idle=idle).ended == ()


def test_workers_that_give_nothing_needed_stay():
    """Idle workers without a GPU are not in the way of one that takes GPUs."""
    idle = [Standing(1, SMALL, "a"), Standing(2, ONE_GPU, "a"), Standing(3, SMALL, "a")]
    found = arrange({"a": Node(8, 1)}, ONE_GPU, 1, kept=[], idle=idle)
    assert (found.placed, found.ended) == (1, (2,))


def test_memory_is_kept_to_like_devices():
    """Four CPUs, but memory for two; a worker that says nothing of memory fits beside them."""
    nodes, scorer = {"a": Node(4, 0, 5e9)}, Pool("scorer", dict, memory=2_000_000_000)
    assert arrange(nodes, scorer, 4, kept=[], idle=[]).placed == 2
    kept = [Standing(1, scorer, "a"), Standing(2, scorer, "a")]
    assert arrange(nodes, scorer, 1, kept=kept, idle=[]).placed == 0
    assert arrange(nodes, Pool("other", dict), 4, kept=kept, idle=[]).placed == 2
    assert arrange(nodes, scorer, 1, kept=kept[:1], idle=kept[1:]).ended == (2,)
    large = Pool("large", dict, memory=4_000_000_000)
    assert set(arrange(nodes, large, 1, kept=[], idle=kept).ended) == {1, 2}


def test_busy_workers_never_end():
    kept = [Standing(1, ONE_GPU, "a"), Standing(2, ONE_GPU, "b")]
    nodes = {"a": Node(8, 4), "b": Node(8, 4)}
    assert arrange(nodes, FOUR_GPUS, 1, kept=kept, idle=[]).placed == 0


def test_small_workers_fill_a_node_before_they_begin_another():
    """So that a worker which takes many devices still finds a whole node."""
    nodes = {"a": Node(8, 4), "b": Node(8, 4)}
    first = arrange(nodes, ONE_GPU, 4, kept=[], idle=[])
    assert first.placed == 4
    kept = [Standing(number, ONE_GPU, None) for number in range(4)]  # all still coming up
    assert arrange(nodes, FOUR_GPUS, 1, kept=kept, idle=[]).placed == 1


@pytest.mark.parametrize("share", [0.1, 0.3, 1 / 3])
def test_shares_of_a_gpu_add_up(share):
    pool = replace(ONE_GPU, cpus=0, gpus=share)
    assert Node(4, 1).holds(pool) == round(1 / share - 0.17)
    assert arrange({"a": Node(4, 1)}, pool, 20, kept=[], idle=[]).placed == Node(4, 1).holds(pool)


def _possible(nodes: Sequence[Node], pool: Pool, kept: Sequence[Standing]) -> int:
    """How many workers of the pool fit with `kept` where they are and all idle ones gone."""
    left = list(nodes)
    for one in kept:
        place = int(one.node or 0)
        left[place] = left[place].without(one.pool)
    return sum(max(0, node.holds(pool)) for node in left)


def test_as_many_are_placed_as_any_way_could_place():
    """On 2,000 random clusters: the most that fit, no node beyond what it has, no busy worker
    ended, and no single ended worker that could have stayed.
    """
    rng = random.Random(7)
    pools = [ONE_GPU, FOUR_GPUS, SMALL, Pool("wide", dict, cpus=3, gpus=2)]
    for _ in range(2000):
        nodes = [Node(rng.randint(0, 6), rng.randint(0, 4)) for _ in range(rng.randint(1, 3))]
        left, standing = list(nodes), list[Standing]()
        for number, place in product(range(4), range(len(nodes))):
            pool = rng.choice(pools)
            if rng.random() < 0.5 and left[place].holds(pool) > 0:
                left[place] = left[place].without(pool)
                standing.append(Standing(10 * number + place, pool, str(place)))
        cut = rng.randint(0, len(standing))
        kept, idle = standing[:cut], standing[cut:]
        pool, wanted = rng.choice(pools), rng.randint(1, 4)
        named = {str(place): node for place, node in enumerate(nodes)}
        found = arrange(named, pool, wanted, kept=kept, idle=idle)
        assert found.placed == min(wanted, _possible(nodes, pool, kept))
        assert set(found.ended) <= {one.worker for one in idle}
        staying = [*kept, *(one for one in idle if one.worker not in found.ended)]
        assert _possible(nodes, pool, staying) >= found.placed
        if found.placed and wanted == 1:
            for back in found.ended:
                more = [*staying, next(one for one in idle if one.worker == back)]
                assert _possible(nodes, pool, more) < 1
