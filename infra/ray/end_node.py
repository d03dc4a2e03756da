"""Ends the Ray node of this machine whose temporary folder is given, and no other: `ray stop` would
end every cluster of this user here.

    python infra/ray/end_node.py /tmp/desa-ray
"""

import os
import sys
from pathlib import Path

import psutil

WAIT_S = 15.0


def node_processes(folder: Path) -> list[psutil.Process]:
    """Processes of this user whose command line names a place in the folder, itself left out."""
    found, mark = [], f"{folder}{os.sep}"
    for process in psutil.process_iter(["cmdline", "uids"]):
        words, uids = process.info["cmdline"] or [], process.info["uids"]
        if uids is None or uids.real != os.getuid() or process.pid == os.getpid():
            continue
        if any(word.partition("=")[2].startswith(mark) or word.startswith(mark) for word in words):
            found.append(process)
    return found


def main(folder: Path) -> int:
    processes = node_processes(folder.absolute())
    for process in processes:
        process.terminate()
    _, left = psutil.wait_procs(processes, timeout=WAIT_S)
    for process in left:
        process.kill()
    sys.stdout.write(f"ended {len(processes)} processes of {folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
