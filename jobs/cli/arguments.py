"""Command-line parsers whose complaints about the command line are printable and carry
no secret.
"""

import argparse
from typing import NoReturn

from desa_ray.printable import printable
from desa_ray.redaction import redacted


class ArgumentParser(argparse.ArgumentParser):
    """argparse's parser; its errors quote arguments in escaped form."""

    def error(self, message: str) -> NoReturn:
        super().error(escaped(message))


def escaped(message: str) -> str:
    """What a parser says about a command line, as it may be printed."""
    return redacted(printable(message))
