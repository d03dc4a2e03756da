"""SmolLM2 on real vLLM, converted once into the environment's folder and loaded once for
all tests.
"""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from pydantic import TypeAdapter
from vllm_setting import CONF, PROMPT, QUERIES

from desa_ray.config import GeneratorConfig
from desa_ray.engines.generator_files import find_generator
from desa_ray.engines.prompts import Prompt
from desa_ray.engines.vllm_generator import VllmGenerator
from tests.generated import generate_records


@pytest.fixture(scope="session")
def model_home() -> Path:
    if importlib.util.find_spec("vllm") is None:
        # Not imported here: the engine sets what it reads at import
        pytest.skip("needs the vLLM environment: make test-vllm")
    return Path(sys.prefix) / "models"


@pytest.fixture(scope="session")
def smollm2() -> GeneratorConfig:
    return TypeAdapter(GeneratorConfig).validate_python(yaml.safe_load(CONF.read_text()))


@pytest.fixture(scope="session")
def engine(smollm2: GeneratorConfig, model_home: Path) -> VllmGenerator:
    """Not through `load_generator`, which would take the test run out of the terminal's process
    group.
    """
    files = find_generator(smollm2, model_home)
    return VllmGenerator(
        replace(smollm2, max_model_len=1024), files, model="SmolLM2", revision=None
    )


@pytest.fixture(scope="session")
def records() -> Callable[..., pl.DataFrame]:
    """`records(engine, ids)`: those queries through the live generator."""

    def generate(engine: Any, ids: list[str], prompt: Prompt = PROMPT) -> pl.DataFrame:
        texts = [QUERIES[query] for query in ids]
        settings = {"generator": "smollm2", "dataset": "demo", "draw": 0}
        return generate_records(engine, prompt, **settings, query_ids=ids, query_texts=texts)

    return generate


@pytest.fixture(scope="session")
def whole(engine: VllmGenerator, records: Callable[..., pl.DataFrame]) -> pl.DataFrame:
    """All queries in one call: what every other way of asking must equal."""
    return records(engine, list(QUERIES))
