"""Several runs on one cluster: what is told, how it is divided, and that everybody finishes."""

from collections.abc import Iterator
from itertools import pairwise
from math import inf

import pytest
from ray.cluster_utils import Cluster

from desa_ray.cluster.sharing import Claim, divided
from desa_ray.pipeline.transport import Share
from tests.cluster.ray_nodes import token_in_this_process
from tests.cluster.run_process import Run


def claim(user: str, **use: float) -> Claim:
    return Claim(user, 1, **({"cpus": 0.0, "gpus": 0.0} | use))


def test_a_run_alone_has_no_share_to_keep():
    assert divided(claim("anna", cpus=8), [], (8, 2)) == Share(cpus=inf, gpus=inf)


def test_users_divide_first_then_their_runs():
    """Anna's two runs have what Ben's one has."""
    others = [claim("anna", cpus=2), claim("ben", waits_cpus=1)]
    share = divided(claim("anna", cpus=6), others, (8, 4))
    assert (share.cpus, share.gpus) == (2, 1)
    assert share.others_wait
    assert (share.cpus_wanted, share.gpus_wanted) == (True, False)
    assert divided(claim("ben"), [claim("anna", cpus=2), claim("anna")], (8, 4)).cpus == 4


def test_a_share_binds_only_while_somebody_waits():
    share = divided(claim("anna", cpus=6), [claim("ben", cpus=2)], (8, 0))
    assert not share.others_wait
    assert share.cpus == 4


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A head without places and one node with two CPUs and a (made-up) GPU."""
    memory = 100 << 20
    head = {"num_cpus": 0, "object_store_memory": memory, "include_dashboard": False}
    with token_in_this_process():
        nodes = Cluster(initialize_head=True, head_node_args=head)
        nodes.add_node(num_cpus=2, num_gpus=1, object_store_memory=memory)
        yield nodes.address
        nodes.shutdown()


@pytest.mark.slow
def test_runs_that_hold_what_the_other_needs_both_finish(address, runs, tmp_path):
    """One holds the GPU and then needs both CPUs, the other the other way round. Idle workers would
    stay for a day; it is the waiting that gives them back.
    """
    forever = {"idle_s": 86400, "turn_s": 86400}
    gpu, cpu = ("gpu", 0, 1, 4, 2.0), ("cpu", 2, 0, 4, 2.0)
    runs.append(Run(tmp_path, "anna", address, gpu, cpu, **forever))
    runs.append(Run(tmp_path, "ben", address, cpu, gpu, **forever))
    for run in runs:
        run.end()
    assert all(len(run.when("done", name)) == 4 for run in runs for name in ("gpu", "cpu"))


@pytest.mark.slow
def test_a_second_user_gets_a_share_at_the_next_shard(address, runs, tmp_path):
    """The first run has both CPUs for two minutes of work; the second needs four seconds of one."""
    anna, ben = "anna", "ben"
    first = Run(tmp_path, anna, address, ("long", 1, 0, 60, 2.0))
    runs.append(first)
    first.wait_for("done", "long")
    second = Run(tmp_path, ben, address, ("short", 1, 0, 2, 2.0))
    runs.append(second)
    second.end()
    assert first.process.poll() is None  # long before the first run's end
    (told,) = [note for note in second.notes() if note.startswith("waiting")]
    assert "waiting for 1 CPU for short" in told
    assert "2 CPUs (0 free)" in told
    assert anna in told
    first.process.terminate()


@pytest.mark.slow
def test_the_last_worker_of_a_run_goes_when_its_turn_is_over(address, runs, tmp_path):
    """A worker that takes the whole node leaves after `turn_s`, and comes back to finish."""
    first = Run(tmp_path, "anna", address, ("whole", 2, 0, 20, 1.0), turn_s=3)
    runs.append(first)
    first.wait_for("done", "whole")
    second = Run(tmp_path, "ben", address, ("short", 2, 0, 2, 1.0))
    runs.append(second)
    second.end()
    assert len(first.when("done", "whole")) < 20
    first.end()
    assert len(first.when("done", "whole")) == 20


@pytest.mark.slow
def test_waiting_has_a_limit_where_one_is_set(address, runs, tmp_path):
    first = Run(tmp_path, "anna", address, ("whole", 2, 0, 60, 1.0))
    runs.append(first)
    first.wait_for("done", "whole")
    second = Run(tmp_path, "ben", address, ("short", 2, 0, 2, 1.0), wait_s=8)
    runs.append(second)
    assert second.process.wait(120) != 0
    assert "cluster.wait_s: no worker of pool short started within 8 s" in second.out.read_text()
    first.process.terminate()


@pytest.mark.slow
def test_idle_workers_are_given_back_after_a_time(address, runs, tmp_path):
    """The pool of the first stage is idle during the second, and its GPU is free before the end."""
    first = Run(tmp_path, "anna", address, ("gpu", 0, 1, 1, 0.5), ("cpu", 1, 0, 40, 1.0), idle_s=2)
    runs.append(first)
    first.wait_for("done", "cpu")
    second = Run(tmp_path, "ben", address, ("gpu", 0, 1, 1, 0.5))
    runs.append(second)
    second.end()
    assert first.process.poll() is None
    first.process.terminate()


@pytest.mark.slow
def test_a_run_keeps_to_its_own_limits(address, runs, tmp_path):
    """`cluster.max_workers=1` on a node with two CPUs: shards never overlap."""
    run = Run(tmp_path, "anna", address, ("one", 1, 0, 6, 1.0), max_workers=1)
    runs.append(run)
    run.end()
    ends = sorted(run.when("done", "one"))
    assert min(later - earlier for earlier, later in pairwise(ends)) > 0.9
