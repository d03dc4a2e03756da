"""The part of numba used here, which has no types of its own: compiling keeps a signature."""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

def njit(
    *, cache: bool = ..., nogil: bool = ..., error_model: str = ..., fastmath: bool = ...
) -> Callable[[F], F]: ...
