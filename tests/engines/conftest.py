"""The one process of the test session that holds a JVM; pytest's own never does (FAISS and OpenMP
live there).
"""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

import lucene_process
import pytest


@pytest.fixture(scope="session")
def in_lucene_process() -> Iterator[Callable]:
    """`in_lucene_process(function, *args)` runs a function of lucene_process.py there and returns
    its result.
    """
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), initializer=lucene_process.start
    ) as pool:
        yield lambda function, *args: pool.submit(function, *args).result()
