"""Send log entries that wait on disk to their MLflow tracking stores."""

import argparse
from pathlib import Path

from desa_ray.errors import DesaError
from jobs.settings import home


def main(arguments: list[str]) -> int:
    """`desa sync`: sends what runs could not, in order, each once; runs of killed sweeps are marked KILLED."""
    parser = argparse.ArgumentParser(prog="desa sync", description=__doc__)
    parser.parse_args(arguments)
    from desa_ray.tracking.outbox import left_behind, replay
    from desa_ray.tracking.runs import Tracker

    sent, troubles = 0, {}
    for box in left_behind(home() / "outbox"):
        target, before = box.target, len(box.waiting())
        if not replay(box, lambda target=target: Tracker(target.uri, Path(target.artifacts))):
            troubles[target.uri] = (len(box.waiting()), box.trouble)
        sent += before - len(box.waiting())
    print(f"{sent} log entries sent")
    if troubles:
        lines = [f"{left} entries still wait for {uri}: {trouble}" for uri, (left, trouble) in troubles.items()]
        raise DesaError("; ".join(lines), where=str(home() / "outbox"), mend="start the server, then `desa sync`")
    return 0
