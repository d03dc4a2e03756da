"""Engines: one heavy library a file, each behind a small typed protocol."""
