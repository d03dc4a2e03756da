"""Engines: one heavy library per file, each behind a small typed protocol."""
