"""Text output on stdout and stderr: printable, without secrets, and never an error of its own."""

import sys

from desa_ray.printable import printable_lines
from desa_ray.redaction import redacted


def print_text(text: object, *, stderr: bool = False) -> None:
    """Print one line or several."""
    print(redacted(printable_lines(text)), file=sys.stderr if stderr else sys.stdout, flush=True)
