"""Fixtures of tests on clusters."""

from collections.abc import Iterator

import pytest

from tests.cluster.run_process import Run


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    """Runs of a test, which end with it whatever happens."""
    started: list[Run] = []
    yield started
    for run in started:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()
