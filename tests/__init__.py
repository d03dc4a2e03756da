"""The tests; they run on the platform as it is installed."""

from importlib.util import find_spec

import pytest

if find_spec("desa_ray.jobs") is None:  # `jobs` was a package of its own before
    pytest.exit(
        "the installation is older than the checkout: run `make setup`, or pip install -e .", 2
    )
