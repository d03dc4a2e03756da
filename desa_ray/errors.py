"""The errors that users see: one sentence that says what is wrong, where, and how to fix it.

`DesaError` is for everything a user can cause or fix (input, configuration, environment); `assert`
is for our own bugs. Several problems are raised together as `Problems`, so that a plan reports all
of them at once. The fields of an error may contain text from elsewhere; rendered, it is printable
and contains no secrets.
"""

import difflib
from collections.abc import Iterable

from desa_ray.printable import printable
from desa_ray.redaction import redacted

LONGEST = 4000  # characters of what is wrong
LONGEST_NAME = 200


class DesaError(Exception):
    """A user-facing error. `str(error)` is one printable line without secrets: `where: what
    (hint)`.

    Args:
        what: what is wrong, with the offending value.
        where: file and line, configuration key, artifact or query; empty if there is no place to
            name.
        hint: what to do about it, as an imperative.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", hint: str = ""):
        super().__init__(what, where, hint)
        self.what, self.where, self.hint = what, where, hint

    def __reduce__(self):
        # Errors cross process borders; keyword-only fields need a constructor of their own.
        return (_rebuild, (type(self), self.args, self.__dict__))

    def __str__(self) -> str:
        what = self.what if len(self.what) <= LONGEST else f"{self.what[:LONGEST]}…"
        text = f"{self.where}: {what}" if self.where else what
        return redacted(printable(f"{text} ({self.hint})" if self.hint else text))


class Problems(DesaError):
    """Several independent errors, reported together; one line each."""

    def __init__(self, problems: Iterable[DesaError]):
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
        self.exit_code = max((problem.exit_code for problem in self.problems), default=2)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class CorruptArtifact(DesaError):
    """A stored file whose bytes are not those its manifest recorded."""


class EngineFailed(DesaError):
    """An engine that cannot go on: another takes its place, and its shards are tried again."""


class PoisonShard(DesaError):
    """A shard that failed as often as the run allows; names the shard and its last error."""


class Crashed(DesaError):
    """A fault of this program, not of its input: its crash report is written, and the error names
    it.
    """

    exit_code = 70  # EX_SOFTWARE of sysexits.h


def _rebuild(kind: type[DesaError], args: tuple, state: dict) -> DesaError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def listed(names: Iterable[object], limit: int = 10) -> str:
    """`a, b, c and 7 more`: names for an error message, in the given order."""
    names = [str(name) for name in names]
    names = [n if len(n) <= LONGEST_NAME else f"{n[:LONGEST_NAME]}…" for n in names]
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def counted(number: int, noun: str, many: str = "") -> str:
    """`1 shard`, `2 shards`; `many` is a plural that is not the noun with an s."""
    return f"{number} {noun if number == 1 else many or f'{noun}s'}"


def choices(name: object, known: Iterable[object], limit: int = 20) -> str:
    """`did you mean kappa? known: kappa, k`: a hint for a name that does not exist, the nearest
    first.
    """
    names = [str(other) for other in known]
    near = [other for other in names if other.lower() == str(name).lower()]
    near += difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    return f"{f'did you mean {near[0]}? ' if near else ''}known: {listed(names, limit)}"
