"""Command-line parsers whose error messages are printable and contain no secrets."""

import argparse
import re
from typing import NoReturn

from desa_ray.errors import DesaError
from desa_ray.lines import shown, shown_value
from desa_ray.printable import printable
from desa_ray.redaction import redacted


class ArgumentParser(argparse.ArgumentParser):
    """argparse's parser; its errors quote arguments in escaped form."""

    def error(self, message: str) -> NoReturn:
        super().error(escaped(message))


def escaped(message: str) -> str:
    """What a parser says about a command line, as it may be printed."""
    return redacted(printable(message))


def whole_number(text: str, option: str, example: str, most: int) -> int:
    """A number from 1 to `most` out of an option's list; raises DesaError for any other text."""
    if not re.fullmatch("[0-9]{1,18}", text) or not 1 <= int(text) <= most:
        what = f"{shown(text)} is not a whole number from 1 to {most}"
        raise DesaError(what, where=option, hint=f"such as {option} {example}")
    return int(text)


def check_least(option: str, value: int, least: int, most: int | None = None) -> None:
    """Raises DesaError for a number of an option that is out of range."""
    if value < least or (most is not None and value > most):
        wanted = f"from {least} to {most}" if most is not None else f"{least} or more"
        what = f"{shown_value(value)} is out of range"
        raise DesaError(what, where=option, hint=f"use {wanted}")
