"""The group parity=release: every setting that the authors' way needs, for runs and for reports."""

from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from desa_ray.config import RunConfig
from desa_ray.config_check import checked
from desa_ray.experiment.spec import RUN_KEYS


def plain(name: str, *overrides: str) -> dict[str, Any]:
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        found: Any = OmegaConf.to_container(compose(name, list(overrides)), resolve=True)
    return found


def test_a_run_with_it_sets_what_decides_results():
    values = plain("config", "parity=release", "method=hyde")
    config = checked(RunConfig, {key: values[key] for key in RUN_KEYS if key in values})
    assert (config.fusion.replay, config.sparse.scores) == ("release", "adjusted")
    assert config.evaluation.exponential_cutoffs
    shorts = {name: f"{name}_short" for name in ("hyde", "mugi", "query2doc")}
    assert config.generator.map == shorts
    ours = plain("config")
    assert (ours["fusion"]["replay"], ours["sparse"]["scores"]) == ("exact", "raw")
    values = plain("config", "parity=release", "fusion.replay=exact")
    assert values["fusion"]["replay"] == "exact"  # what is written out wins


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), (0, "streams", None)),
        (("parity=release",), (20260813, "release", "exponential")),
        (("parity=release", "seed=7", "gain=linear"), (7, "release", "linear")),
    ],
)
def test_a_report_with_it_resamples_as_the_release_does(overrides, expected):
    values = plain("report", *overrides)
    assert (values["seed"], values["sampling"], values["gain"]) == expected
