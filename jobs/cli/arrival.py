"""First steps of a submitted run on the cluster: checks that the platform is the one that submitted
it, and sets where results go.

`desa submit` sends what it expects in one environment variable; a run that nobody submitted has
none.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from desa_ray.cluster.preflight import INSTALL, differences
from desa_ray.errors import DesaError, Problems
from desa_ray.pipeline.provenance import platform_facts
from desa_ray.plugins import Identity, differing

VARIABLE = "DESA_SUBMITTED_BY"
# What the sender and the cluster must share; packages are compared on the nodes
COMPARED = (
    "ray",
    "desa-ray",
    "code",
)


def expectation(plugins: Mapping[str, Identity]) -> str:
    """The value of the variable: what this platform is, and the plug-ins that the run names."""
    own = {name: platform_facts()[name] for name in COMPARED}
    return json.dumps({**own, **({"plugins": dict(plugins)} if plugins else {})})


def arrive() -> None:
    """Check a submitted run's sender against this platform, and point its outputs to the home.

    Raises:
        Problems: another version or code than the sender's.
        DesaError: no home is set, or it is not an absolute path.
    """
    sent = os.environ.get(VARIABLE)
    if sent is None:
        return
    expected = json.loads(sent)
    if told := [
        *differences(expected, platform_facts()),
        *differing(expected.get("plugins", {})),
    ]:
        raise Problems(
            DesaError(
                f"{what} as where it was submitted", where="the cluster's head node", hint=INSTALL
            )
            for what in told
        )
    home = os.environ.get("DESA_HOME", "")
    if not Path(home).is_absolute():
        raise DesaError(
            (
                f"DESA_HOME is {home!r} on the cluster"
                if home
                else "DESA_HOME is not set on the cluster's nodes"
            ),
            where="submit.home",
            hint="give a folder that all nodes share, as an absolute path",
        )
    # A job works in a folder of Ray's that vanishes with it.
    os.environ.setdefault("DESA_OUTPUTS", str(Path(home) / "outputs"))
