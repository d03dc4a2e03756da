"""`desa VERB ...`: verbs are the modules of this package; `desa --help` lists them with their first
docstring line.
"""

import ast
import gc
import importlib
import io
import logging
import os
import select
import signal
import sys
from pathlib import Path

from desa_ray import __version__
from desa_ray.crash import began
from desa_ray.error_boundary import exit_code, print_error, thread_hooks
from desa_ray.errors import choices
from desa_ray.output import print_text
from desa_ray.places import working_folder

from . import VERBS


def _first_line(verb: str) -> str:
    """A verb's summary, read without importing it."""
    docstring = (
        ast.get_docstring(
            ast.parse((Path(__file__).parent / f"{verb}.py").read_text(encoding="utf-8"))
        )
        or ""
    )
    return docstring.splitlines()[0]


def usage() -> str:
    lines = ["usage: desa VERB [arguments]   (see desa VERB --help)", ""]
    return "\n".join(
        [
            *lines,
            *(f"  {verb:8} {_first_line(verb)}" for verb in VERBS),
            "",
            f"desa-ray {__version__}",
        ]
    )


def main() -> None:
    """Entry point of `desa`: exits 0 on success, 2 on a user's error, 70 on our fault, 130 on
    Ctrl-C.

    Output that nobody reads any more (`desa ... | head`) ends it without a word, with 141.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Characters that the terminal's encoding lacks are escaped
            stream.reconfigure(errors="backslashreplace")
    with thread_hooks():
        try:
            code = _answered(*sys.argv[1:2])
            if code is None:
                verb, *arguments = sys.argv[1:]
                if not {"-h", "--help"} & set(arguments):
                    working_folder()
                began(verb, arguments)
                _set_up_process()
                code = importlib.import_module(f".{verb}", __package__).main(arguments)
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a failure can still be told
        except SystemExit:
            raise
        except KeyboardInterrupt:
            print_text(
                "interrupted: finished work is kept, the same command continues from there",
                stderr=True,
            )
            code = 130
        except BaseException as error:
            code = _unread(error) or print_error(error)
        # at exit Python would look through all of Ray and MLflow for garbage, for a second
        gc.freeze()
        sys.exit(exit_code(code))


def _answered(word: str | None = None) -> int | None:
    """The exit code of a first word that is no verb, answered at once; None for a verb."""
    if word in (None, "-h", "--help", "help"):
        print_text(usage())
        return 2 if word is None else 0
    if word == "--version":
        print_text(f"desa-ray {__version__}")
        return 0
    if word not in VERBS:
        print_text(f"error: unknown verb {word!r} ({choices(word, VERBS)})", stderr=True)
        return 2
    return None


def _set_up_process() -> None:
    """What a process that runs a verb changes for itself."""
    logging.raiseExceptions = False  # a log line that cannot be written is no fault
    # Looking for cycles at Python's own pace takes a tenth of composing and finishing
    gc.set_threshold(50_000, 20, 50)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's stop is a Ctrl-C


def _unread(error: BaseException) -> int:
    """141 if an error says that nobody reads our output, which is then thrown away; else 0."""
    if not isinstance(error, BrokenPipeError):
        return 0
    gone = [number for number in (1, 2) if _reader_gone(number)]
    for number in gone:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
    return 141 if gone else 0


def _reader_gone(descriptor: int) -> bool:
    """Whether a descriptor is a pipe or socket that nobody reads."""
    look = select.poll()
    look.register(descriptor, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in look.poll(0))


if __name__ == "__main__":
    main()
