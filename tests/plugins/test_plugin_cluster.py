"""The example plug-in on a live cluster of two nodes: they work with it where it is the plan's, and
the one that has another is named before anything runs.
"""

import os
import shutil
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from tests.cluster.ray_nodes import token_in_this_process
from tests.desa_fixtures import dataset, run_desa, summaries
from tests.plugins.test_plugin_run import METHOD

MEMORY = 100 << 20


def _run(folder: Path, small_slice: Path, *arguments: str):
    (folder / "own" / "method").mkdir(parents=True)
    (folder / "own" / "method" / "mine.yaml").write_text(METHOD)
    chosen = ["--config-dir", "own", "method=mine", "draws=1", *dataset(small_slice)]
    chosen += ["cluster.shard_documents=20", "tracking.enabled=false", *arguments]
    return run_desa(folder, folder / "home", "run", *chosen)


@pytest.mark.slow
def test_a_node_with_another_plugin_is_refused(built, small_slice, tmp_path, monkeypatch):
    """Driver and nodes with the same files give a serial run's records; a changed helper module on
    one of two nodes is refused, and only that node is named.
    """
    same = shutil.copytree(built, tmp_path / "same")
    other = shutil.copytree(built, tmp_path / "other")
    helper = other / "desa_example" / "numbers.py"
    helper.write_text(f"{helper.read_text()}\n# another\n")
    monkeypatch.setenv("PYTHONPATH", str(same))
    serial = _run(tmp_path / "serial", small_slice, "cluster=serial")
    assert serial.returncode == 0, serial.stderr
    with token_in_this_process():
        head = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
        nodes = Cluster(initialize_head=True, head_node_args=head)
        try:
            where = ["cluster=existing", f"cluster.address={nodes.address}", "cluster.encoders=2"]
            nodes.add_node(num_cpus=1, object_store_memory=MEMORY)
            first = nodes.add_node(num_cpus=1, object_store_memory=MEMORY)
            spread = _run(tmp_path / "spread", small_slice, *where)
            assert spread.returncode == 0, spread.stderr
            found = [summaries(tmp_path / name)[0]["artifacts"] for name in ("serial", "spread")]
            assert found[0]["records.parquet"] == found[1]["records.parquet"]
            nodes.remove_node(first)
            os.environ["PYTHONPATH"] = str(other)  # of the node that starts now
            odd = nodes.add_node(num_cpus=1, object_store_memory=MEMORY)
            os.environ["PYTHONPATH"] = str(same)
            refused = _run(tmp_path / "refused", small_slice, *where)
        finally:
            nodes.shutdown()
            if ray.is_initialized():
                ray.shutdown()
    assert refused.returncode == 2, refused.stderr
    lines = [line for line in refused.stderr.splitlines() if "plug-in operators" in line]
    assert len(lines) == 2, refused.stderr  # of its two operators
    assert all(odd.node_id[:8] in line for line in lines)
    assert not (tmp_path / "refused" / "home" / "store" / "postings").exists()
