"""What an engine generates for some queries, as a table."""

from typing import Any

import polars as pl

from desa_ray.engines.chat import ChatEngine
from desa_ray.engines.generation import generation_frame
from desa_ray.engines.live_generator import generated_rows
from desa_ray.engines.prompts import Prompt


def generate_records(engine: ChatEngine, prompt: Prompt, **settings: Any) -> pl.DataFrame:
    """The rows of `generated_rows`, whose other arguments are passed on."""
    return generation_frame([row.fields for row in generated_rows(engine, prompt, **settings)])
