"""Engines and shares of GPUs are resolved at plan time, from made-up nodes; runs encode and resume
with a stand-in behind onnxruntime's CUDA provider.
"""

import json
from pathlib import Path

import polars as pl
import pytest

from desa_ray.config import ClusterConfig, RunConfig
from desa_ray.engines.gpu_engines import CPU, ONNX, TORCH
from desa_ray.errors import DesaError
from desa_ray.experiment.build import Builder, Cell
from desa_ray.experiment.devices import Place, check_scorers, with_engines, with_shares
from desa_ray.experiment.prepare import Prepared, prepare
from desa_ray.pipeline.devices import GB, THIS_MACHINE, DeviceNode, Devices
from desa_ray.pipeline.stage import ancestors
from desa_ray.store.artifacts import Store
from tests.desa_fixtures import dataset, run_desa, summaries
from tests.experiment.test_prepare import config
from tests.gpu_machine import gpu_environment, seen_gpus

TORCH_LIBRARIES = frozenset({"", "torch", "sentence-transformers"})
ONNX_LIBRARIES = frozenset({"", "onnxruntime-gpu"})
L3 = ("encoder=minilm_l3", "draws=1")


def devices(
    *nodes: tuple[float, float, int, frozenset[str]], place: str = "the cluster"
) -> Devices:
    """Nodes of (CPUs, GPUs, GB of a GPU, libraries)."""
    made = [
        DeviceNode(f"n{number}", cpus, gpus, memory * GB, libraries)
        for number, (cpus, gpus, memory, libraries) in enumerate(nodes)
    ]
    return Devices(place, made)


NO_GPU = devices((8, 0, 0, frozenset()))
WITH_TORCH = devices((8, 0, 0, frozenset()), (16, 4, 80, TORCH_LIBRARIES))
WITH_ONNX = devices((16, 4, 80, ONNX_LIBRARIES))


@pytest.mark.parametrize(
    ("nodes", "needed", "cpus", "most", "share"),
    [
        ([(16, 4, 80)], 3, 1, 4, 1 / 4),  # four CPUs for each GPU
        ([(8, 4, 80)], 3, 1, 4, 1 / 2),  # two CPUs for each GPU
        ([(16, 4, 8)], 3, 1, 4, 1 / 2),  # two times 3 GB of 8
        ([(16, 4, 80), (64, 8, 4)], 3, 1, 4, 1),  # the smallest GPU counts
        ([(16, 4, 0)], 5, 1, 4, 1 / 2),  # one that does not say has 16 GB: three, so two
        ([(64, 8, 80)], 3, 1, 2, 1 / 2),
        ([(2, 4, 80)], 3, 4, 4, 1),  # fewer CPUs than GPUs
    ],
)
def test_as_many_workers_share_a_gpu_as_fit(nodes, needed, cpus, most, share):
    place = devices(*((*node, TORCH_LIBRARIES) for node in nodes))
    assert place.share(needed * GB, cpus, most) == share
    assert place.share(needed * GB, cpus, most, limit=0.1) == 0.1


def test_all_nodes_with_gpus_need_the_library():
    assert NO_GPU.lacks("torch") == "the cluster has no GPU"
    assert WITH_TORCH.lacks("torch") == ""
    mixed = devices((8, 1, 16, TORCH_LIBRARIES), (8, 1, 16, frozenset({""})))
    assert mixed.lacks("torch") == "torch for GPUs is not installed on n1"
    assert devices((8, 1, 16, frozenset()), place=THIS_MACHINE).lacks("torch").endswith("installed")


def existing(collection: Path, *overrides: str) -> RunConfig:
    where = ("cluster.kind=existing", "cluster.address=a:1")
    return config(collection, *where, *overrides)


def prepared(config: RunConfig, home: Path) -> Prepared:
    return prepare([config], Store(str(home / "store")), home)[0]


def resolved(own: Prepared, found: Devices) -> Prepared:
    place = Place(own.config.cluster, lambda _: found)
    return with_shares(with_engines([own], place)[0], place.devices)


def pools(cell: Cell) -> dict[str, float]:
    """GPUs of a worker by pool, without what tells encoders apart."""
    used = [stage.work.pool for stage in ancestors(cell.targets) if stage.work.pool]
    return {pool.name.partition(":")[0] + str(pool.gpus): pool.gpus for pool in used}


def test_without_gpus_every_key_is_that_of_a_cpu(collection, tmp_path):
    own = prepared(existing(collection), tmp_path)
    auto = resolved(own, NO_GPU)
    assert auto.encoder == own.encoder
    assert auto.config.encoder.engine == "cpu"
    assert [s.key for s in Builder(auto).cell().fused] == [s.key for s in Builder(own).cell().fused]
    assert auto.devices == ("encoder minilm_l6: on CPUs (the cluster has no GPU)",)
    pinned = resolved(prepared(existing(collection, "encoder.engine=cpu"), tmp_path), WITH_TORCH)
    assert pinned.encoder == own.encoder


@pytest.mark.parametrize(
    ("encoder", "found", "engine"),
    [
        ("minilm_l6", WITH_TORCH, TORCH),
        ("minilm_l6", WITH_ONNX, ONNX),
        ("minilm_l3", WITH_ONNX, ONNX),
        ("minilm_l3", WITH_TORCH, CPU),  # a ready-made graph needs onnxruntime
        ("minilm_l6", devices((16, 4, 80, frozenset({""}))), CPU),
    ],
)
def test_encoders_take_gpus_with_a_library_for_them(encoder, found, engine, collection, tmp_path):
    own = prepared(existing(collection, f"encoder={encoder}"), tmp_path)
    cell = Builder(resolved(own, found)).cell()
    assert cell.engine == engine
    told = cell.devices[0]
    if engine == CPU:
        assert "is not installed on n" in told
    else:
        assert "4 GPUs on 1 node), 0.5 GPU each" in told
        assert [s.key for s in cell.fused] != [s.key for s in Builder(own).cell().fused]


def test_workers_take_shares_only_where_they_use_gpus(collection, tmp_path):
    """Encoders and dense scores on GPUs; Lucene, sparse scores and fusion on CPUs."""
    own = prepared(existing(collection), tmp_path)
    taken = pools(Builder(resolved(own, WITH_TORCH)).cell())
    assert taken == {
        "encoder0.5": 0.5,
        "scorer0.25": 0.25,
        "scorer0": 0,
        "lucene0": 0,
        "replayer0": 0,
    }
    for scorer in ("encoder.scorer=cpu", "encoder.scoring=float32", "cluster.scorer_gpus=0"):
        own = prepared(existing(collection, scorer), tmp_path)
        assert "scorer0.25" not in pools(Builder(resolved(own, WITH_TORCH)).cell())
    own = prepared(
        existing(collection, "cluster.encoder_gpus=1", "cluster.scorer_gpus=2"), tmp_path
    )
    assert {"encoder1.0", "scorer2.0"} <= pools(Builder(resolved(own, WITH_TORCH)).cell()).keys()


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("encoder.engine=gpu", NO_GPU),
        ("encoder.engine=gpu", devices((8, 1, 16, frozenset({""})))),
        ("encoder.scorer=torch", NO_GPU),
        ("encoder.scorer=faiss_gpu", WITH_TORCH),
    ],
)
def test_a_gpu_that_is_not_there_is_refused(setting, found, collection, tmp_path):
    own = prepared(existing(collection, setting), tmp_path)
    where = setting.partition("=")[0]
    with pytest.raises(DesaError, match=r"no GPU|not installed on n") as caught:
        check_scorers(
            [Builder(resolved(own, found)).cell()], Place(own.config.cluster, lambda _: found)
        )
    assert caught.value.where == where
    assert "auto or cpu" in caught.value.hint


def test_cells_of_one_encoder_share_an_engine_and_ask_once(collection, tmp_path):
    """Later batches of a sweep keep to the first one's."""
    configs = [existing(collection, f"method={name}") for name in ("original", "desa", "bm25")]
    cells = prepare(configs, Store(str(tmp_path / "store")), tmp_path)
    asked: list[ClusterConfig] = []

    def ask(cluster: ClusterConfig) -> Devices:
        asked.append(cluster)
        return WITH_TORCH

    place = Place(configs[0].cluster, ask)
    engines = [own.encoder.get("engine") for own in with_engines(cells, place)]
    assert engines == [TORCH, TORCH, None]
    assert len(asked) == 1
    later = with_engines(cells, place, {"minilm_l6": CPU})
    assert [own.config.encoder.engine for own in later] == ["cpu"] * 3


# -- runs, with the stand-in


def run(folder: Path, home: Path, small_slice: Path, *arguments: str):
    folder.mkdir(exist_ok=True)
    common = [*dataset(small_slice), "cluster=serial", "tracking.enabled=false", *L3]
    return run_desa(folder, home, "run", *common, *arguments)


def records(folder: Path) -> pl.DataFrame:
    """The records of the newest run."""
    return pl.read_parquet(max(folder.rglob("records.parquet"), key=lambda p: p.stat().st_mtime_ns))


def engines(home: Path) -> list[str]:
    """What made the stored document vectors."""
    keys = [
        json.loads(file.read_text()) for file in (home / "store").glob("vectors/*/manifest.json")
    ]
    return sorted((str(found).count("onnx_cuda") and "gpu") or "cpu" for found in keys)


@pytest.fixture
def gpu_machine(tmp_path, monkeypatch):
    """Commands run on a machine with GPUs between `on()` and `off()`."""
    variables = gpu_environment(tmp_path / "gpus")

    class Machine:
        def on(self) -> None:
            for name, value in variables.items():
                monkeypatch.setenv(name, value)

        def off(self) -> None:
            monkeypatch.undo()

        def seen(self) -> set[str]:
            return seen_gpus(tmp_path / "gpus")

    return Machine()


@pytest.mark.slow
def test_a_resume_elsewhere_recomputes_nothing(gpu_machine, small_slice, tmp_path):
    """What a GPU began is continued on CPUs as long as nothing is left to encode, and what CPUs
    began on GPUs; engines never mix.
    """
    home, out = tmp_path / "home", tmp_path / "out"
    gpu_machine.on()
    done = run(out, home, small_slice)
    assert done.returncode == 0, done.stderr
    assert "encoder minilm_l3: on GPUs by onnxruntime (2 GPUs here), 1 GPU each" in done.stderr
    assert gpu_machine.seen() == {"all"}
    made = records(out)
    assert json.loads(made["settings"][0])["encoder.engine"] == ONNX

    gpu_machine.off()
    done = run(out, home, small_slice)
    assert done.returncode == 0, done.stderr
    assert "vectors of slice are stored" in done.stderr
    assert summaries(out)[-1]["stages"]["computed"] == 0
    assert records(out).equals(made)
    done = run(out, home, small_slice, "fusion.kappa=20")  # nothing to encode
    assert done.returncode == 0, done.stderr
    assert summaries(out)[-1]["engine"] == ONNX

    other = run(out, home, small_slice, "encoder.query_prefix='query: '")
    assert other.returncode == 0, other.stderr
    assert "from GPUs, but other texts are not, and this machine has no GPU" in other.stderr
    assert engines(home) == ["cpu", "gpu"]
    refused = run(out, home, small_slice, "encoder.engine=gpu", "encoder.query_prefix='q: '")
    assert refused.returncode == 2
    assert "encoder.engine: engine=gpu, but" in refused.stderr
    pinned = run(out, home, small_slice, "encoder.engine=cpu")
    assert pinned.returncode == 0, pinned.stderr
    on_cpu = records(out)
    assert on_cpu["config_hash"][0] != made["config_hash"][0]
    assert "encoder.engine" not in json.loads(on_cpu["settings"][0])

    fresh = tmp_path / "fresh"
    assert run(out, fresh, small_slice).returncode == 0
    assert records(out).equals(on_cpu)
    gpu_machine.on()
    done = run(out, fresh, small_slice, "encoder.query_prefix='query: '")
    assert done.returncode == 0, done.stderr
    assert "on CPUs (vectors of slice are stored)" in done.stderr
    assert engines(fresh) == ["cpu"]
