"""`desa VERB ...`: verbs are the modules of this package; `desa --help` lists them with their first docstring line."""

import ast
import errno
import gc
import importlib
import signal
import sys
from pathlib import Path

from desa_ray import __version__
from desa_ray.errors import DesaError

VERBS = ("run", "plan", "submit", "generate", "verify", "report", "sync", "ui", "doctor", "store", "fuse", "compare")
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # nobody's mistake in a program


def _first_line(verb: str) -> str:
    """A verb's summary, read without importing it."""
    docstring = ast.get_docstring(ast.parse((Path(__file__).parent / f"{verb}.py").read_text(encoding="utf-8"))) or ""
    return docstring.splitlines()[0]


def usage() -> str:
    lines = ["usage: desa VERB [arguments]   (desa VERB --help tells more)", ""]
    return "\n".join([*lines, *(f"  {verb:8} {_first_line(verb)}" for verb in VERBS), "", f"desa-ray {__version__}"])


def main() -> None:
    """Entry point of the `desa` command; exits 0 on success, 2 on a user's error, 130 on Ctrl-C."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        sys.exit(0 if arguments else 2)
    if arguments[0] == "--version":
        print(f"desa-ray {__version__}")
        sys.exit(0)
    verb = arguments[0]
    if verb not in VERBS:
        print(f"error: unknown verb {verb!r} (known: {', '.join(VERBS)})", file=sys.stderr)
        sys.exit(2)
    gc.set_threshold(50_000, 20, 50)  # looking for cycles at Python's own pace takes a tenth of composing and finishing
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's stop is a Ctrl-C
    try:
        code = importlib.import_module(f"jobs.{verb}").main(arguments[1:])
        gc.freeze()  # at exit Python would look through all of Ray and MLflow for garbage, for a second
        sys.exit(code)
    except DesaError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.errno not in DISK:
            raise  # a fault of this program, to be seen whole
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror} (free or mend the disk, then the same command goes on)", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted: what is stored stays stored, the same command goes on from there", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
