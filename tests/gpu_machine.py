"""An environment in which a machine seems to have GPUs and onnxruntime-gpu, for processes that a
test starts; the engine itself is stood in for (`tests/gpu_stand_in`).
"""

import os
from pathlib import Path

STAND_IN = Path(__file__).parent / "gpu_stand_in"
NVIDIA_SMI = """#!/bin/sh
case "$1" in
  -L) printf 'GPU 0: Made up\\nGPU 1: Made up\\n' ;;
  *) printf '16384\\n16384\\n' ;;
esac
"""


def gpu_environment(folder: Path) -> dict[str, str]:
    """Variables under which processes find two GPUs of 16 GB; those that encode on one leave a
    note in `folder/seen`.
    """
    programs, packages, seen = folder / "programs", folder / "packages", folder / "seen"
    for made in (programs, packages / "onnxruntime_gpu-1.32.0.dist-info", seen):
        made.mkdir(parents=True)
    (programs / "nvidia-smi").write_text(NVIDIA_SMI)
    (programs / "nvidia-smi").chmod(0o755)
    (packages / "onnxruntime_gpu-1.32.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: onnxruntime-gpu\nVersion: 1.32.0\n"
    )
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(STAND_IN), str(packages)]),
        "DESA_SEEN_GPUS": str(seen),
    }


def seen_gpus(folder: Path) -> set[str]:
    """What CUDA_VISIBLE_DEVICES was in the processes that encoded; `all` where it was not set."""
    return {note.read_text() for note in (folder / "seen").iterdir()}
