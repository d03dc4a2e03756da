"""A cluster whose nodes have made-up GPUs: encoders reserve shares of them, and the vectors give
the records of a run on one machine.
"""

import json
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from tests.cluster.ray_nodes import token_in_this_process
from tests.desa_fixtures import dataset, run_desa, summaries
from tests.gpu_machine import gpu_environment, seen_gpus

OWN = ["encoder=minilm_l3", "draws=1", "cluster.shard_documents=32"]


@pytest.fixture(scope="module")
def gpus(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("gpus")


@pytest.fixture(scope="module")
def variables(gpus) -> dict[str, str]:
    return gpu_environment(gpus)


@pytest.fixture(scope="module")
def cluster(variables):
    """A head without CPUs for work, a node with CPUs and one with two GPUs."""
    memory = 100 << 20
    head = {"num_cpus": 0, "object_store_memory": memory, "include_dashboard": False}
    with token_in_this_process():
        nodes = Cluster(initialize_head=True, head_node_args=head)
        nodes.add_node(num_cpus=1, object_store_memory=memory)
        nodes.add_node(num_cpus=4, num_gpus=2, object_store_memory=memory, env_vars=variables)
        yield nodes
        nodes.shutdown()


def _desa(verb: str, folder: Path, small_slice: Path, *arguments: str):
    folder.mkdir(exist_ok=True)
    given = [*dataset(small_slice), "tracking.enabled=false", *OWN, *arguments]
    done = run_desa(folder, folder / "home", verb, *given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_encoders_take_shares_of_gpus(cluster, gpus, variables, small_slice, tmp_path, monkeypatch):
    """Encoders take shares of the GPUs by default, and see no other GPU; the records are those of a
    serial run on a machine with GPUs.
    """
    where = ["cluster=existing", f"cluster.address={cluster.address}"]
    told = _desa("plan", tmp_path / "ray", small_slice, *where)
    assert "minilm_l3: on GPUs by onnxruntime (2 GPUs on 1 node), 0.5 GPU each" in told
    assert "1 CPU, 0.5 GPU" in told
    _desa("run", tmp_path / "ray", small_slice, *where)
    assert seen_gpus(gpus)
    assert seen_gpus(gpus) <= {"0", "1"}
    (cell,) = summaries(tmp_path / "ray")
    assert cell["engine"] == "onnx_cuda"
    pools = [
        json.loads(file.read_text())["meta"].get("pool") or {}
        for file in (tmp_path / "ray" / "home" / "store").glob("*/*/manifest.json")
    ]
    shares = {pool["name"].partition(":")[0]: pool["gpus"] for pool in pools if pool}
    assert shares == {"encoder": 0.5, "lucene": 0, "scorer": 0, "replayer": 0}

    with monkeypatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        _desa("run", tmp_path / "serial", small_slice, "cluster=serial")
    (serial,) = summaries(tmp_path / "serial")
    assert serial["artifacts"]["records.parquet"] == cell["artifacts"]["records.parquet"]

    # What the nodes made is resumed where there is no GPU, and the cluster is not asked for it.
    told = _desa("run", tmp_path / "ray", small_slice, "cluster=serial")
    assert summaries(tmp_path / "ray")[0]["stages"]["computed"] == 0
    assert "vectors of slice are stored" in told
    elsewhere = ["cluster=existing", "cluster.address=127.0.0.1:9"]
    told = _desa("run", tmp_path / "ray", small_slice, *elsewhere)
    assert "everything is stored: the cluster is not used" in told
