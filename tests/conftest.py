"""Fixtures shared by all tests: where the reference material lies, and an environment without any
network.
"""

import atexit
import os
import shutil
import socketserver
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.busy import busy_machine
from tests.desa_fixtures import (
    collection,
    demo_slice,
    desa,
    refuse,
    serial_sweep,
    small_slice,
    warm_home,
)
from tests.skips import pytest_runtest_logreport, pytest_sessionfinish, pytest_terminal_summary

__all__ = [
    "collection",
    "demo_slice",
    "desa",
    "pytest_runtest_logreport",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "refuse",
    "serial_sweep",
    "small_slice",
    "warm_home",
]

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ["DESA_CHECK_LOCKS"] = (
    "1"  # locks are taken in their documented order, here and in every child
)
# What processes of one user share (the lock of compilations) lies here, not in the checkout or the
# user's own folder.
os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="desa-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_RUNTIME_DIR"], ignore_errors=True)

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def quiet_servers() -> Iterator[None]:
    """A test server whose client hung up says nothing: its trace would land in what another test
    captures.
    """
    told = socketserver.BaseServer.handle_error

    def handle_error(self: socketserver.BaseServer, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            told(self, request, client_address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socketserver.BaseServer, "handle_error", handle_error)
        yield


@pytest.fixture(autouse=True)
def busy_loops(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that is marked `busy` shares the machine with two loops."""
    if request.node.get_closest_marker("busy") is None:
        yield
        return
    with busy_machine() as loops:
        yield
        assert [loop.poll() for loop in loops] == [None] * len(loops), (
            "a loop ended before the test did"
        )


LONG = (  # a minute or more each, the longest first
    "tests/vllm/test_vllm_platform.py",
    "tests/e2e/test_run.py",
    "tests/e2e/test_paper_experiment.py",
    "tests/e2e/test_sweeps.py",
    "tests/cluster/test_submit.py",
    "tests/test_notebook.py",
    "tests/e2e/test_methods.py",
    "tests/e2e/test_own_methods.py",
    "tests/cluster/test_faults.py",
    "tests/e2e/test_tracking.py",
    "tests/pipeline/test_lazy.py",
    "tests/report/test_report_command.py",
    "tests/e2e/test_bad_input.py",
    "tests/e2e/test_sizes.py",
    "tests/test_parents.py",
    "tests/e2e/test_pinned_store.py",
    "tests/tracking/test_lost_answers.py",
    "tests/cluster/test_local_start.py",
    "tests/pipeline/test_experiments.py",
    "tests/tracking/test_foreign_answers.py",
    "tests/experiment/test_records.py",
    "tests/report/test_release_tables.py",
    "tests/cluster/test_existing.py",
    "tests/cluster/test_copies.py",
    "tests/pipeline/test_processes.py",
    "tests/cluster/test_lost_cluster.py",
    "tests/e2e/test_store_command.py",
    "tests/tracking/test_outbox.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `-n`: a file's tests stay with one worker."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("::")[0]

    config.option.loadscopereorder = False  # the order is that of `pytest_collection_modifyitems`
    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes starts first, then files with many tests: no worker waits at the end for a
    long file that another began late.
    """
    if not hasattr(config, "workerinput"):
        return
    tests = Counter(item.nodeid.partition("::")[0] for item in items)

    def order(item: pytest.Item) -> tuple[int, int]:
        file = item.nodeid.partition("::")[0]
        return LONG.index(file) if file in LONG else len(LONG), -tests[file]

    items.sort(key=order)


def _collection(name: str) -> Path:
    """A collection that is not ours to publish; what needs it skips where it is absent."""
    folder = Path(os.environ.get("DESA_SHARED", REPOSITORY.parent / "shared")) / "data" / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not here: DESA_SHARED names the folder that has data/{name}")
    return folder


@pytest.fixture(scope="session")
def scifact_folder() -> Path:
    """SciFact in BEIR layout, with recorded texts in generations/."""
    return _collection("scifact")


@pytest.fixture(scope="session")
def cranfield_folder() -> Path:
    """Cranfield in BEIR layout."""
    return _collection("cranfield")


@pytest.fixture(scope="session")
def treccovid_runs() -> Path:
    """Three published TREC-COVID runs and their authors' fusion of them."""
    return _collection("treccovid-runs")
