"""Fixtures that several files of this folder use."""

from tests.e2e.methods_sweep import methods_sweep

__all__ = ["methods_sweep"]
