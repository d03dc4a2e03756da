"""Cells of a sweep are composed once per combination of groups: what comes out is what Hydra's own
composition gives.
"""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode
from omegaconf.errors import MissingMandatoryValue

from desa_ray.jobs.cli.composition import Composer, plain_of

GROUPS = {
    "dataset": ["demo", "demo_small", "scifact", "arguana"],
    "method": ["original", "desa", "shared", "hyde", "bm25", "exp4fuse_hybrid"],
    "encoder": ["minilm_l6", "bge_small", "contriever"],
    "generator": ["recorded", "smollm2", "openai_server"],
    "cluster": ["local", "serial", "existing"],
}
VALUES = [
    *(
        "fusion.kappa=20",
        "fusion.kappa=60",
        "fusion.kappa=1.5",
        "fusion.kappa=1/3",
        "fusion.kappa=",
    ),
    *("n_refs=1", "n_refs=5", "draws=2", "draws=null", "ranking=lazy", "ranking=complete"),
    *("dataset.name=mine", "dataset.name='a b'", "dataset.name='1'", "dataset.queries=[q1,q2]"),
    *("dataset.queries=[]", "dataset.queries=[q1,2,true,null]", "dataset.size=100"),
    *("encoder.query_prefix='query: '", "encoder.query_prefix=\"it''s\"", "encoder.max_tokens=64"),
    *("evaluation.measures=[AP,RR@10]", "evaluation.exclude_self=true", "encoder.name=other"),
    *("tracking.enabled=false", "tracking.experiment=1e3", "store.repair=yes", "cluster.cpus=2"),
]
UNUSUAL = [
    *("+fusion.new=1", "++draws=7", "~tracking.experiment", "+further.deep=2", "fusion={kappa:3}"),
    *("draws=${n_refs}", "dataset.name=${method.name}", "dataset.name='\\${n_refs}'", "n_refs=???"),
    *("dataset.queries=[${n_refs}]", "dataset.queries=[[a],b]", "generator.map={a:b}", "+kappa=2"),
    *("generator.map={a: b, c: d}", "~fusion.kapa", "+fusion.kappa=2", "+n_refs=2"),
    *("fusion={kappa: 20, k: 7}", "++fusion.kappa=2", "method.channels.0.name=n", "hydra.x=1"),
    *("fusion.kapa=3", "fusion=5", "draws.deep=1", "method.channels.0.weight=2", "nothing=1"),
]


@contextmanager
def sweep() -> Iterator[tuple[Any, Any]]:
    """Hydra's loader and the configuration of a sweep without overrides."""
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        hydra = GlobalHydra.instance()
        loader: Any = hydra.config_loader()
        master = loader.load_configuration("config", [], RunMode.MULTIRUN)
        yield loader, master


def outcome(compose: Any) -> str:
    """What a way of composing gives, as text: types are told apart; or the kind of its error."""
    try:
        return json.dumps(compose())
    except (ConfigCompositionException, MissingMandatoryValue, ValueError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def overrides(random_: random.Random) -> list[str]:
    """Some choices of groups, some plain values, now and then something unusual, in any order."""
    chosen = [
        f"{group}={random_.choice(names)}"
        for group, names in GROUPS.items()
        if random_.random() < 0.5
    ]
    chosen += random_.sample(VALUES, random_.randrange(5))
    if random_.random() < 0.5:
        chosen += random_.sample(UNUSUAL, random_.choice([1, 1, 2]))
    random_.shuffle(chosen)
    return chosen


def check(rounds: int, seed: int) -> None:
    random_ = random.Random(seed)
    with sweep() as (loader, master):
        composer = Composer(loader, master)
        for _ in range(rounds):
            given = overrides(random_)
            theirs = outcome(lambda given=given: plain_of(loader.load_sweep_config(master, given)))
            assert outcome(lambda given=given: composer.cell(given)) == theirs, given


@pytest.mark.long
def test_settings_of_cells_equal_those_of_hydra():
    check(20, seed=1)


@pytest.mark.slow
def test_settings_of_500_cells_equal_those_of_hydra():
    check(500, seed=20260813)


@pytest.mark.long
def test_every_unusual_override_is_left_to_hydra():
    with sweep() as (loader, master):
        composer = Composer(loader, master)
        for text in UNUSUAL:
            given = ["draws=2", text, "fusion.kappa=3"]
            theirs = outcome(lambda given=given: plain_of(loader.load_sweep_config(master, given)))
            assert outcome(lambda given=given: composer.cell(given)) == theirs, text


def test_hydra_composes_once_per_combination_of_groups():
    """Whatever else the cells have in common: mappings, added keys."""
    composed = []
    common = ["generator.map={hyde: references}", "+further.deep=2"]
    with sweep() as (loader, master):
        load = loader.load_sweep_config

        def counted(config: Any, given: list[str]) -> Any:
            composed.append(given)
            return load(config, given)

        loader.load_sweep_config = counted
        composer = Composer(loader, master)
        for kappa in range(50):
            for method in ("desa", "original"):
                given = [f"fusion.kappa={kappa}", f"method={method}", *common, "draws=2"]
                cell = composer.cell(given)
                assert (cell["fusion"]["kappa"], cell["method"]["name"]) == (kappa, method)
                assert cell["generator"]["map"] == {"hyde": "references"}
                assert composer.folder(given, kappa) == Path(str(kappa))
    assert sorted(composed) == [["method=desa", *common], ["method=original", *common]]


def test_a_folder_named_after_its_overrides_is_composed():
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        loader: Any = GlobalHydra.instance().config_loader()
        named = "hydra.sweep.subdir=${hydra.job.num}_${hydra.job.override_dirname}"
        master = loader.load_configuration("config", [named], RunMode.MULTIRUN)
        composer = Composer(loader, master)
        assert composer.folder(["fusion.kappa=3"], 7) == Path("7_fusion.kappa=3")


def test_cells_do_not_see_each_others_values():
    with sweep() as (loader, master):
        composer = Composer(loader, master)
        first = composer.cell(["fusion.kappa=3"])
        second = composer.cell(["draws=1"])
    assert (first["fusion"]["kappa"], second["draws"]) == (3, 1)
    assert second["fusion"]["kappa"] != 3
    assert first["draws"] == 3
