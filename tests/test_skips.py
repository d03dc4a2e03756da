"""A session whose skips are not the listed ones fails."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.conftest import REPOSITORY
from tests.skips import unexpected

CHROMIUM = "no Chromium found"


@pytest.mark.parametrize(
    ("skipped", "whole", "told"),
    [
        ({}, True, []),
        ({CHROMIUM: 2, "nginx is not here: `make infra-tools` fetches it": 1}, True, []),
        ({CHROMIUM: 1}, False, []),
        ({CHROMIUM: 3}, True, [f"3 skipped, at most 2 expected: {CHROMIUM}"]),
        ({"later": 4}, False, ["4 skipped for a reason that tests/skips.py does not list: later"]),
    ],
)
def test_skips_are_counted_per_reason(skipped, whole, told):
    assert unexpected(Counter(skipped), whole=whole) == told


def test_a_session_with_an_unlisted_reason_fails(tmp_path):
    (tmp_path / "test_one.py").write_text("import pytest\ndef test_it(): pytest.skip('later')\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.skips"]
    done = subprocess.run(
        [*command, "-c", os.devnull, str(tmp_path)],
        cwd=REPOSITORY,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "1 skipped for a reason that tests/skips.py does not list: later" in done.stdout
