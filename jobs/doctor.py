"""Check this machine, the store, the tracking server and the cluster: one line each, with the hint.

Exit code 0 if nothing fails (warnings pass), 1 if something does.
"""

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from importlib import resources
from importlib.metadata import version
from typing import Any

import yaml

from desa_ray import __version__
from desa_ray.config import ClusterConfig, StoreConfig, TrackingConfig
from desa_ray.config_check import checked
from desa_ray.credentials import redacted, refuse_credentials
from desa_ray.errors import DesaError, Problems, counted
from desa_ray.experiment.places import home, store_root, tracking_uri
from desa_ray.output import print_text
from desa_ray.pipeline.devices import local_devices
from desa_ray.printable import printable
from desa_ray.stages.plugged import own_names
from desa_ray.store.artifacts import Store
from desa_ray.terminal import screen, shown

from .cli import checkup
from .cli.arguments import ArgumentParser
from .cli.checkup import Finding, failed
from .cli.claims import outputs
from .cli.device_check import devices_finding
from .cli.group_access import group_access

COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def _default(group: str) -> dict[str, Any]:
    file = (
        resources.files("desa_ray.conf")
        / group
        / ("local.yaml" if group == "cluster" else "default.yaml")
    )
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def store(root: str) -> Finding:
    """Writable, and of two writers of one name the first wins, by the means the runs use."""
    try:
        where = Store(root)
        where.check_writable()
    except DesaError as error:
        return failed("store", error)
    return Finding(
        "store", "ok", f"{where.files.shown} is writable, and each name can be written only once"
    )


def tracking(uri: str) -> Finding:
    from desa_ray.tracking.check import look_at_tracking

    try:
        return Finding("tracking", "ok", look_at_tracking(uri))
    except DesaError as error:
        return failed("tracking", error)


def cluster(config: ClusterConfig, root: str) -> Iterator[Finding]:
    """A session starts or is reached, and every node has this platform and reaches this store."""
    from desa_ray.cluster.devices import connected_devices
    from desa_ray.cluster.preflight import Needs, check_nodes
    from desa_ray.cluster.session import session

    name = f"ray {redacted(config.address)}" if config.address else "ray"
    try:
        with session(config):
            count = check_nodes(Needs({"store": root}, {}))
            devices = connected_devices(config) if config.kind == "existing" else None
    except Problems as found:
        for problem in found.problems:
            yield Finding(problem.where, "fail", problem.what, problem.hint)
    except DesaError as error:
        yield failed(name, error)
    else:
        yield Finding(
            name, "ok", f"{counted(count, 'node')}, Ray {version('ray')}, equal versions, one store"
        )
        if devices is not None:
            yield devices_finding(f"devices {name}", devices, config)


def examine(options: argparse.Namespace) -> Iterator[Finding]:
    """All findings, in the order of what builds on what."""
    root = store_root(checked(StoreConfig, _default("store") | {"root": options.store}))
    uri = tracking_uri(checked(TrackingConfig, _default("tracking") | {"uri": options.tracking}))
    kind = {"kind": "existing", "address": options.cluster} if options.cluster else {}
    config = checked(ClusterConfig, _default("cluster") | kind)
    found = checkup.installed()
    lock = checkup.lock_name(found)
    yield checkup.python()
    yield checkup.packages(found, lock, checkup.locked(checkup.lock_text(lock)))
    yield checkup.java(options.java_home)
    yield checkup.gpus(found, wanted=options.gpu)
    yield devices_finding("devices", local_devices(), config)
    yield from checkup.disk(checkup.places(home(), root), options.warn_gib, options.fail_gib)
    yield from checkup.locks({"home": home(), "outputs": outputs()})
    yield from group_access(checkup.places(home(), root) | {"outputs": outputs()})
    yield from checkup.models(home() / "models")
    yield from checkup.plug_ins(own_names())
    stored = store(root)
    yield stored
    yield tracking(uri)
    if stored.status == "ok" and not options.no_ray:
        yield from cluster(config, root)


def main(arguments: list[str]) -> int:
    """`desa doctor [--store URL] [--tracking URI] [--cluster ADDRESS] [--json]`."""
    first, _, rest = (__doc__ or "").partition("\n")
    parser = ArgumentParser(prog="desa doctor", description=first, epilog=rest)
    parser.add_argument(
        "--store", metavar="URL", help="folder or fsspec address (default: $DESA_HOME/store)"
    )
    parser.add_argument(
        "--tracking", metavar="URI", help="tracking store (default: sqlite in $DESA_HOME)"
    )
    parser.add_argument(
        "--cluster", metavar="ADDRESS", help="a running Ray cluster (default: start a local one)"
    )
    parser.add_argument("--no-ray", action="store_true", help="do not check Ray")
    parser.add_argument("--gpu", action="store_true", help="fail on a machine without a GPU")
    parser.add_argument(
        "--java-home", metavar="FOLDER", help="as sparse.java_home (default: the one installed)"
    )
    parser.add_argument(
        "--warn-gib", type=float, default=10.0, help="free disk space to warn below (%(default)s)"
    )
    parser.add_argument(
        "--fail-gib", type=float, default=1.0, help="free disk space to fail below (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    options = parser.parse_args(arguments)
    refuse_credentials(
        [
            ("--store", options.store),
            ("--tracking", options.tracking),
            ("--cluster", options.cluster),
        ]
    )
    os.environ.setdefault("GLOG_minloglevel", "2")  # Ray's own notes are not findings
    findings = []
    tell = _quiet if options.json else _line
    for finding in examine(options):
        findings.append(finding)
        tell(finding)
    worst = max((finding.status for finding in findings), key=list(COLOURS).index)
    if options.json:
        document = {
            "desa_ray": __version__,
            "status": worst,
            "findings": [asdict(finding) for finding in findings],
        }
        print_text(json.dumps(document, indent=1))
    return int(worst == "fail")


def _quiet(finding: Finding) -> None: ...


def _line(finding: Finding) -> None:
    told = f"{finding.name}: {finding.what}" + (f" ({finding.hint})" if finding.hint else "")
    status = shown(f"{finding.status:5}", COLOURS[finding.status])
    screen().print(status.append_text(shown(printable(told))), soft_wrap=True)
