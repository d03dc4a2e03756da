"""Send log entries that wait on disk to their MLflow tracking stores."""

from pathlib import Path

from desa_ray.credentials import redacted
from desa_ray.errors import DesaError, Problems, counted
from desa_ray.experiment.places import home
from desa_ray.output import print_text

from .cli.arguments import ArgumentParser


def main(arguments: list[str]) -> int:
    """`desa sync`: sends what runs could not, in order, each once; runs of killed sweeps are marked
    KILLED.
    """
    parser = ArgumentParser(prog="desa sync", description=__doc__)
    parser.parse_args(arguments)
    from desa_ray.tracking.left_behind import left_behind, resend
    from desa_ray.tracking.runs import Tracker

    sent, problems = 0, []
    for box in left_behind(home() / "outbox"):
        target, before = box.target, len(box.waiting())
        if not resend(
            box, lambda target=target: Tracker(target.uri, Path(target.artifacts), otherwise="")
        ):
            waiting = counted(len(box.waiting()), "entry still waits", "entries still wait")
            what = f"{waiting} for {redacted(target.uri)}: {box.trouble}"
            problems.append(
                DesaError(
                    what, where=str(box.folder), hint="run `desa sync` again once that is fixed"
                )
            )
        sent += before - len(box.waiting()) - len(box.refusals)
        for path in box.refused():
            reason = path.with_suffix(".why")
            why = reason.read_text(encoding="utf-8") if reason.exists() else "MLflow refused it"
            hint = "the cell's own folder has its results; remove this file when it is not needed"
            problems.append(
                DesaError(f"refused by {redacted(target.uri)}: {why}", where=str(path), hint=hint)
            )
    print_text(f"{counted(sent, 'log entry', 'log entries')} sent")
    if problems:
        raise Problems(problems)
    return 0
