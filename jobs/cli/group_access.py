"""Whether a folder that a group shares stays writable for the group: its setgid bit, and this
process's umask.
"""

import grp
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from .checkup import Finding

STATUS = Path("/proc/self/status")


def group_access(folders: Mapping[str, Path]) -> Iterator[Finding]:
    """One finding for each folder that its group may write to; others are somebody's own."""
    for name, folder in folders.items():
        try:
            status = folder.stat()
        except OSError:
            continue
        if not status.st_mode & stat.S_IWGRP or status.st_mode & stat.S_ISVTX:
            continue  # of one user, or of everybody, such as /tmp
        group, mask = _group(status.st_gid), _umask()
        if not status.st_mode & stat.S_ISGID:
            what = f"group {group} may write to {folder}, but new files get their creator's group"
            hint = f"find {folder} -type d -exec chmod g+s {{}} +"
        elif mask & stat.S_IWGRP:
            what = f"umask {mask:04o} hides what you write into {folder} from group {group}"
            hint = "umask 0002 before desa, and before `ray start` on every node"
        else:
            yield Finding(f"group {name}", "ok", f"group {group} may write, umask {mask:04o}")
            continue
        yield Finding(f"group {name}", "warn", what, hint)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _umask() -> int:
    """Asked without setting it, as other threads may be writing."""
    found = re.search(r"^Umask:\s*([0-7]+)", STATUS.read_text(encoding="utf-8"), re.MULTILINE)
    return int(found[1], 8) if found else 0
