"""One rule for every name that becomes part of a path: a plain word that means the same file on
every file system.

Names come out of data (columns of records, YAML files, model folders, tracking servers), so they
could lead elsewhere (`../x`, `/etc/x`), end a string early (NUL), be a device (`CON`), be too long,
or be one file with another name (`a` and `A`). What passes here can do none of that, alone or
joined with other such names and endings.
"""

import re
from collections.abc import Iterable

from desa_ray.errors import DesaError, listed
from desa_ray.lines import shown

LIMIT = 200  # characters, all ASCII; file systems take 255 bytes with the ending
HINT = f"use letters, digits, . _ + and -, beginning with a letter or digit, at most {LIMIT}"
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_DEVICES = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")


def why_not(name: str) -> str | None:
    """What keeps `name` from being part of a path; None where nothing does."""
    if not name:
        return "an empty name"
    if len(name) > LIMIT:
        return f"a name of {len(name)} characters"
    if not _WORD.fullmatch(name):
        return "not a plain name"
    if name.endswith("."):
        return "a name that ends with a dot"
    if _DEVICES.fullmatch(name):
        return "the name of a device"
    return None


def path_name(name: str, *, where: str, hint: str = HINT) -> str:
    """`name` as it is.

    Raises:
        DesaError: it must not be part of a path; says why, and `where` it stands.
    """
    if why := why_not(name):
        raise DesaError(f"{shown(name)} cannot name a file: {why}", where=where, hint=hint)
    return name


def path_names(names: Iterable[str], *, where: str, hint: str = HINT) -> list[str]:
    """The names as they are, each a file of its own.

    Raises:
        DesaError: one of them must not be part of a path, or two are one file where case does not
            count.
    """
    found = [path_name(name, where=where, hint=hint) for name in names]
    seen: dict[str, str] = {}
    for name in found:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            what = f"{listed([other, name])} would be the same file where case is ignored"
            raise DesaError(what, where=where, hint=hint)
    if len(set(found)) < len(found):
        twice = sorted({name for name in found if found.count(name) > 1})
        raise DesaError(f"{listed(twice)} would be written twice", where=where, hint=hint)
    return found
