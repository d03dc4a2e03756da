"""The types of single settings: numbers, names and texts, with limits."""

import re
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
)

MAX_DIGITS = 18  # of a rational's numerator and denominator


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("true and false are not numbers")
    return value


def _rational(value: Any) -> Fraction:
    """An exact rational from 1, "1/4", "0.25" or 0.25 (a float is read through its shortest decimal
    form).
    """
    text = str(_number(value))
    exponent = re.search(r"[eE][+-]?([0-9]+)", text)
    if "_" in text or not text.isascii():  # Python would read 1_000, and digits of other scripts
        raise ValueError('not a number such as 60, 0.5 or "1/2"')
    if len(text) > 3 * MAX_DIGITS or (exponent and len(exponent[1]) > 2):
        # Before it is worked out in full
        raise ValueError(f"needs more than {MAX_DIGITS} digits")
    try:
        rational = Fraction(text)
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except ValueError:
        raise ValueError('not a number such as 60, 0.5 or "1/2"') from None
    if max(abs(rational.numerator), rational.denominator) >= 10**MAX_DIGITS:
        raise ValueError(f"needs more than {MAX_DIGITS} digits")
    return rational


# Numbers have upper limits, so that a slip of the finger is refused here and not by whatever breaks
# first.
Rational = Annotated[Fraction, BeforeValidator(_rational)]


Int = Annotated[int, BeforeValidator(_number)]


Float = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]


NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"


Name = Annotated[str, Field(pattern=NAME, max_length=100)]


Text = Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x1f\x7f]*$")]


Count = Annotated[Int, Field(ge=1, le=2**31 - 1)]


Workers = Annotated[Int, Field(ge=1, le=10_000)]


Seconds = Annotated[Float, Field(gt=0, le=10**8)]


Scale = Annotated[Float, Field(gt=0, le=10**6)]


def _template(text: str) -> str:
    if text.count("{query}") + text.count("{query_json}") != 1:
        raise ValueError("must hold {query} or {query_json}, once")
    return _literal(text.replace("{query}", "").replace("{query_json}", ""), text)


def _literal(text: str, whole: str | None = None) -> str:
    """The text, unless it seems to expect that something is put into it."""
    if found := re.search(r"\{[A-Za-z_][\w.\[\]!:()]*\}|\{\{|\{%", text):
        raise ValueError(f"{found[0]!r} is not a placeholder: only {{query}} and {{query_json}} do")
    return text if whole is None else whole


def _default(templates: dict[str, str]) -> dict[str, str]:
    if "default" not in templates:
        raise ValueError("has no entry `default`")
    return templates


Template = Annotated[str, AfterValidator(_template)]
Literally = Annotated[str, AfterValidator(_literal)]
Templates = Annotated[dict[str, Template], AfterValidator(_default)]

# English, division at blanks, and the languages of Anserini 2.2.0's AnalyzerMap but Thai, whose
# words the Java that the install brings cannot divide.
Analyzer = Literal[
    "en",
    "whitespace",
    "ar",
    "bn",
    "da",
    "de",
    "es",
    "fa",
    "fi",
    "fr",
    "hi",
    "hu",
    "id",
    "it",
    "ja",
    "ko",
    "nl",
    "no",
    "pl",
    "pt",
    "ru",
    "sv",
    "te",
    "tr",
    "uk",
    "zh",
]
