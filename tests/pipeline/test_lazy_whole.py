"""Lazy equals complete on whole collections, from prefixes so short that most queries need deeper
ones.
"""

from dataclasses import replace
from pathlib import Path

import pytest

import desa_ray.experiment.fused_by as fused_by_module
from desa_ray.stages import prefix

from .test_lazy import assert_same, computed, typed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.mark.parametrize("depth", [64, prefix.FIRST_DEPTH])
@pytest.mark.parametrize(
    ("collection", "method"),
    [("cranfield", "original"), ("scifact", "original"), ("scifact", "desa")],
)
def test_lazy_equals_complete_in_every_shared_column(
    collection, method, depth, request, home, monkeypatch
):
    if depth < 1000:
        monkeypatch.setattr(prefix, "FIRST_DEPTH", depth)
        for module in (fused_by_module, prefix):
            monkeypatch.setattr(module, "CUTOFFS", (10, 20, 50))
    monkeypatch.setattr(prefix, "GROUP_DOCUMENTS", 1024)
    path = f"dataset.path={request.getfixturevalue(collection + '_folder')}"
    config = typed(
        "dataset=beir_folder", path, f"dataset.name={collection}", f"method={method}", "draws=1"
    )
    _, complete, _ = computed(config, home)
    _, lazy, stages = computed(replace(config, ranking="lazy"), home)
    assert_same(complete, lazy)
    assert "ranking" not in stages
    assert complete.height in (225, 300)
