"""SmolLM2 on real vLLM, converted once into the environment's folder and loaded once for all tests."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from pydantic import TypeAdapter

from desa_ray.config import GeneratorConfig
from desa_ray.engines.generator_files import find_generator
from desa_ray.engines.live_generator import generate_records
from desa_ray.engines.prompts import Prompt, load_prompt
from desa_ray.engines.vllm_generator import VllmGenerator

REPOSITORY = Path(__file__).resolve().parents[2]
# Prompt 1 with fewer tokens, to save time: more outputs are cut, which serves these tests as well.
PROMPT = replace(load_prompt("references"), max_new_tokens=96)
QUERIES = {
    "q1": "read a file line by line",
    "q2": "sort a dictionary by value",
    "q3": "parse command line arguments",
    "q4": "compress data with gzip",
    "q5": "regular expression groups",
    "q6": "date arithmetic with time zones",
}


@pytest.fixture(scope="session")
def model_home() -> Path:
    pytest.importorskip("vllm", reason="needs the vLLM environment: make test-vllm")
    return Path(sys.prefix) / "models"


@pytest.fixture(scope="session")
def smollm2() -> GeneratorConfig:
    values = yaml.safe_load((REPOSITORY / "conf" / "generator" / "smollm2.yaml").read_text())
    return TypeAdapter(GeneratorConfig).validate_python(values)


@pytest.fixture(scope="session")
def engine(smollm2: GeneratorConfig, model_home: Path) -> VllmGenerator:
    """Not through `load_generator`, which would take the test run out of the terminal's process group."""
    files = find_generator(smollm2, model_home)
    return VllmGenerator(replace(smollm2, max_model_len=1024), files, model="SmolLM2", revision=None)


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
