"""When generated text may be used as references: the validation of Prompt 1, and a more lenient one
for recordings from elsewhere.

Paper appendix A and method.md section 2: XGrammar constrains the form of an output but neither
completes it nor makes its items substantive, so every output is checked here before anything is
built from it.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from desa_ray.errors import DesaError

REFERENCES = 5
# method.md section 2: any number after "passage" makes the same placeholder.
PLACEHOLDER = re.compile(r"\.\.\.|passage [0-9]+|string|n/a")


@dataclass(frozen=True)
class Verdict:
    """What a generated output is worth: `texts` as generated if it is valid, else None and the
    `reason`.
    """

    texts: tuple[str, ...] | None
    reason: str | None = None

    @property
    def valid(self) -> bool:
        return self.reason is None


@dataclass(frozen=True)
class RecordingWarnings:
    """Faults of recorded texts that are counted, not refused: items that repeat an earlier one;
    placeholders.
    """

    duplicates: int = 0
    placeholders: int = 0


def check_references(
    raw: str, *, finish_reason: str | None, system_prompt: str, count: int = REFERENCES
) -> Verdict:
    """The verdict on one raw output of Prompt 1, or of another prompt for a JSON array (method.md
    section 2).

    Args:
        raw: the generated text.
        finish_reason: why the engine stopped; at `length` the output is invalid even when it
            parses.
        system_prompt: the prompt's system text; an item copied from it is a placeholder.
        count: texts asked for.
    """
    if finish_reason == "length":
        return Verdict(None, "the output was cut off at the token limit")
    try:
        value = json.loads(raw)
    except RecursionError:
        return Verdict(None, "the output is not valid JSON: nested too deeply")
    except ValueError as error:
        return Verdict(None, f"the output is not valid JSON: {error}")
    if not isinstance(value, list):
        return Verdict(None, f"the output is not a JSON array but {_json_type(value)}")
    return check_items(cast(list[object], value), system_prompt=system_prompt, count=count)


def check_items(items: Sequence[object], *, system_prompt: str, count: int = REFERENCES) -> Verdict:
    """The verdict on a parsed array: exactly `count` distinct, substantive strings, or the first
    reason why not.
    """
    if len(items) != count:
        return Verdict(None, f"the array has {len(items)} items instead of {count}")
    if reason := _unusable(items):
        return Verdict(None, reason)
    texts = tuple(str(item) for item in items)
    first: dict[str, int] = {}
    for number, text in enumerate(texts, start=1):
        if (earlier := first.setdefault(_folded(text), number)) != number:
            return Verdict(None, f"item {number} is a duplicate of item {earlier}")
    for number, text in enumerate(texts, start=1):
        if _is_placeholder(text, system_prompt.casefold()):
            return Verdict(None, f"item {number} is a placeholder: {text.strip()[:80]!r}")
    return Verdict(texts)


def check_texts(items: Sequence[object], count: int) -> Verdict:
    """The verdict on the texts of any other prompt: `count` strings that are not blank."""
    if len(items) != count:
        return Verdict(None, f"{len(items)} texts instead of {count}")
    if reason := _unusable(items):
        return Verdict(None, reason)
    return Verdict(tuple(str(item) for item in items))


def check_recorded(
    texts: object, expected_count: int, *, system_prompt: str = ""
) -> RecordingWarnings:
    """Checks recorded text of foreign origin: count, type and blanks only (method.md section 2).

    Raises:
        DesaError: not a list of `expected_count` strings that are not blank.
    """
    if not isinstance(texts, list):
        raise DesaError(f"texts is not an array but {_json_type(texts)}")
    verdict = check_texts(cast(list[object], texts), expected_count)
    if verdict.texts is None:
        raise DesaError(verdict.reason or "")
    distinct = {_folded(text) for text in verdict.texts}
    prompt = system_prompt.casefold()
    return RecordingWarnings(
        len(verdict.texts) - len(distinct),
        sum(_is_placeholder(text, prompt) for text in verdict.texts),
    )


def _unusable(items: Sequence[object]) -> str | None:
    """Why an item is not a text at all; a lone surrogate (JSON's `\\ud800`) has no UTF-8 form to
    store or index.
    """
    for number, item in enumerate(items, start=1):
        if not isinstance(item, str):
            return f"item {number} is not a string but {_json_type(item)}"
        if not item.strip():
            return f"item {number} is empty"
        if any("\ud800" <= character <= "\udfff" for character in item):
            return f"item {number} has a lone surrogate"
    return None


def _folded(text: str) -> str:
    return text.strip().casefold()


def _is_placeholder(text: str, folded_prompt: str) -> bool:
    folded = _folded(text)
    return PLACEHOLDER.fullmatch(folded) is not None or folded in folded_prompt


def _json_type(value: object) -> str:
    names: dict[type, str] = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a truth value",
        type(None): "null",
    }
    return names.get(type(value), "a number")
