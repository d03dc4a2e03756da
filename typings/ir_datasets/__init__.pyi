"""The part of ir_datasets used here, which has no types of its own."""

from typing import Any

def load(name: str) -> Any: ...
