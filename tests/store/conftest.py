"""The store's root in its tests: a folder, and a file system that is none."""

from uuid import uuid4

import pytest


@pytest.fixture(params=["local", "memory"])
def root(request, tmp_path) -> str:
    return str(tmp_path) if request.param == "local" else f"memory://{uuid4().hex}"
