"""The `desa` command over a Ray whose raylet is replaced: it hangs, ends with an error, or comes up
at the second try.

    python -m tests.cluster.broken_ray KIND SECONDS SECONDS desa-arguments...

The seconds are the limits of the two tries. `TOKEN` of the environment, if set, is the cluster's
token.
"""

import os
import sys
import tempfile
from pathlib import Path

from ray._private import services

from desa_ray.cluster import local
from desa_ray.jobs.__main__ import main

PROGRAMS = {
    "hangs": "#!/bin/sh\nexec sleep 600\n",
    "ends": '#!/bin/sh\nexec {raylet} "$@" --raylet_socket_name=/nowhere/raylet\n',
    "slow": '#!/bin/sh\nif mkdir "$0.tried"; then exec sleep 600; fi\nexec {raylet} "$@"\n',
}


def command() -> None:
    kind, first, second, *arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "raylet")
        program.write_text(PROGRAMS[kind].format(raylet=services.RAYLET_EXECUTABLE))
        program.chmod(0o755)
        services.RAYLET_EXECUTABLE = str(program)
        local.START_LIMITS_S = (float(first), float(second))
        if given := os.environ.pop("TOKEN", ""):
            local.token = lambda: given
        sys.argv = ["desa", *arguments]
        main()


if __name__ == "__main__":
    command()
