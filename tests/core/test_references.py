"""Prompt 1's validation on a table of raw outputs, recorded text, and request seeds."""

import hashlib
import json

import pytest

from desa_ray.core.references import (
    RecordingWarnings,
    check_recorded,
    check_references,
    check_texts,
)
from desa_ray.core.seeds import request_seed
from desa_ray.errors import DesaError

SYSTEM = "You return exactly five concise passages.\n\nDo not output Markdown or any other text."
GOOD = [
    "Alpha beta gamma.",
    "Delta is epsilon.",
    "Zeta follows eta.",
    "Theta binds iota.",
    "Kappa equals sixty.",
]


def array(*last: object) -> str:
    """A JSON array of five items whose last ones are replaced."""
    return json.dumps([*GOOD[: 5 - len(last)], *last])


# (what it is, raw output, a part of the reason, or None where it is valid)
OUTPUTS = [
    ("five sentences", json.dumps(GOOD), None),
    ("white space around the array", f"\n  {json.dumps(GOOD)}\t\n", None),
    ("an array over several lines", json.dumps(GOOD, indent=2), None),
    ("characters beyond the BMP", array("The 🧬 of 𝔄."), None),
    ("a surrogate pair as escapes", json.dumps(GOOD[:4])[:-1] + ', "gene \\ud83e\\uddec"]', None),
    ("other scripts", array("Ἀρχή and 日本語 and עברית"), None),
    ("control characters as escapes", array("tab\tand\nline\u0000"), None),
    ("blanks around an item", array("  Omega rho.  "), None),
    ("very long items", array("word " * 100_000), None),
    ("items that contain one another", array("Alpha beta gamma. And more."), None),
    ("a placeholder inside a sentence", array("It says n/a for passage 1 of the string ..."), None),
    ("quotes and backslashes", array('He said "\\ five".'), None),
    ("items that differ only inside", array("Alpha  beta gamma."), None),
    ("nothing", "", "not valid JSON"),
    ("white space only", " \n", "not valid JSON"),
    ("prose", "Here are five passages:", "not valid JSON"),
    ("cut inside an item", json.dumps(GOOD)[:-10], "not valid JSON"),
    ("cut before the bracket", json.dumps(GOOD)[:-1], "not valid JSON"),
    ("a Markdown fence", f"```json\n{json.dumps(GOOD)}\n```", "not valid JSON"),
    ("text after the array", f"{json.dumps(GOOD)} I hope this helps!", "not valid JSON"),
    ("two arrays", f"{json.dumps(GOOD)}\n{json.dumps(GOOD)}", "not valid JSON"),
    ("single quotes", str(GOOD), "not valid JSON"),
    ("a comma too many", json.dumps(GOOD)[:-1] + ",]", "not valid JSON"),
    ("a raw line feed in an item", '["a\nb", "c", "d", "e", "f"]', "not valid JSON"),
    ("a byte order mark", "\ufeff" + json.dumps(GOOD), "not valid JSON"),
    ("nesting beyond any stack", "[" * 200_000 + "]" * 200_000, "not valid JSON"),
    ("a number of 10,000 digits", "[" + "1" * 10_000 + "]", "not valid JSON"),
    ("an object", json.dumps({"passages": GOOD}), "not a JSON array but an object"),
    ("a string", json.dumps("Alpha"), "not a JSON array but a string"),
    ("a number", "5", "not a JSON array but a number"),
    ("null", "null", "not a JSON array but null"),
    ("a truth value", "true", "not a JSON array but a truth value"),
    ("an empty array", "[]", "0 items instead of 5"),
    ("four items", json.dumps(GOOD[:4]), "4 items instead of 5"),
    ("six items", json.dumps([*GOOD, "Lambda."]), "6 items instead of 5"),
    ("an array in an array", json.dumps([GOOD]), "1 items instead of 5"),
    ("a nested item", array(["Kappa."]), "item 5 is not a string but an array"),
    ("an object as item", array({"text": "Kappa."}), "item 5 is not a string but an object"),
    ("a number as item", array(60), "item 5 is not a string but a number"),
    ("NaN as item", array(float("nan")), "item 5 is not a string but a number"),
    ("null as item", array(None), "item 5 is not a string but null"),
    ("a truth value as item", array(True), "item 5 is not a string but a truth value"),
    ("an empty item", array(""), "item 5 is empty"),
    ("a blank item", array(" \t\n\u00a0"), "item 5 is empty"),
    (
        "a lone surrogate",
        json.dumps(GOOD[:4])[:-1] + ', "x\\ud800"]',
        "item 5 has a lone surrogate",
    ),
    ("a duplicate", array(GOOD[0]), "item 5 is a duplicate of item 1"),
    ("a duplicate but for case", array(GOOD[1].upper()), "item 5 is a duplicate of item 2"),
    ("a duplicate but for blanks", array(f"  {GOOD[2]}\n"), "item 5 is a duplicate of item 3"),
    (
        "a duplicate after full case folding",
        array("Straße", "STRASSE"),
        "item 5 is a duplicate of item 4",
    ),
    ("five times the same", json.dumps(["..."] * 5), "item 2 is a duplicate of item 1"),
    ("three dots", array("..."), "item 5 is a placeholder"),
    ("passage 1", array("Passage 1"), "item 5 is a placeholder"),
    ("passage 2", array("passage 2"), "item 5 is a placeholder"),
    ("string", array(" String "), "item 5 is a placeholder"),
    ("n/a", array("N/A"), "item 5 is a placeholder"),
    ("a part of the system prompt", array("five concise PASSAGES"), "item 5 is a placeholder"),
    ("a word of the system prompt", array("Markdown"), "item 5 is a placeholder"),
]


@pytest.mark.parametrize(
    ("raw", "reason"), [row[1:] for row in OUTPUTS], ids=[row[0] for row in OUTPUTS]
)
def test_raw_outputs_get_the_verdict_and_the_reason(raw: str, reason: str | None) -> None:
    verdict = check_references(raw, finish_reason="stop", system_prompt=SYSTEM)
    if reason is None:
        assert verdict.valid
        assert verdict.texts == tuple(json.loads(raw)), "texts stay exactly as generated"
    else:
        assert not verdict.valid
        assert verdict.texts is None
        assert reason in (verdict.reason or "")


def test_an_output_cut_at_the_token_limit_is_invalid() -> None:
    """An output cut at the token limit is invalid even when it parses."""
    verdict = check_references(json.dumps(GOOD), finish_reason="length", system_prompt=SYSTEM)
    assert verdict.texts is None
    assert "token limit" in (verdict.reason or "")


@pytest.mark.parametrize(
    "raw", [row[1] for row in OUTPUTS if row[2]], ids=[row[0] for row in OUTPUTS if row[2]]
)
def test_reasons_are_one_short_line_that_can_be_stored(raw: str) -> None:
    reason = check_references(raw, finish_reason="stop", system_prompt=SYSTEM).reason or ""
    assert len(reason.encode()) < 250
    assert "\n" not in reason


def test_other_prompts_need_text_that_is_not_blank_and_nothing() -> None:
    """Other prompts need text that is not blank and nothing more."""
    assert check_texts(["...", "..."], 2).texts == ("...", "...")
    assert check_texts(["a", " "], 2).reason == "item 2 is empty"
    assert check_texts(["a"], 2).reason == "1 texts instead of 2"


def test_blemishes_of_recorded_text_are_counted_and_not_refused() -> None:
    texts = ["Alpha", " ALPHA ", "n/a", "concise", "Beta"]
    assert check_recorded(texts, 5, system_prompt=SYSTEM) == RecordingWarnings(
        duplicates=1, placeholders=2
    )
    assert check_recorded(texts, 5) == RecordingWarnings(duplicates=1, placeholders=1)
    assert check_recorded(GOOD, 5, system_prompt=SYSTEM) == RecordingWarnings()


@pytest.mark.parametrize(
    ("texts", "what"),
    [
        (GOOD[:4], "4 texts instead of 5"),
        ([*GOOD, "x"], "6 texts instead of 5"),
        ([*GOOD[:4], " "], "item 5 is empty"),
        ([*GOOD[:4], 5], "item 5 is not a string but a number"),
        ([*GOOD[:4], "\ud800"], "item 5 has a lone surrogate"),
        ("Alpha", "texts is not an array but a string"),
        (None, "texts is not an array but null"),
    ],
)
def test_recorded_text_of_wrong_count_type_or_blank_is_refused(texts: object, what: str) -> None:
    with pytest.raises(DesaError) as caught:
        check_recorded(texts, 5)
    assert caught.value.what == what


def test_the_seed_is_the_first_63_bits_of_the_hash() -> None:
    """The seed is the first 63 bits of the hash of what is asked."""
    identity = '["1","scifact","abc","Frage ü",2,7]'.encode()  # canonical JSON, written by hand
    expected = int(hashlib.sha256(identity).hexdigest()[:16], 16) % 2**63
    seed = request_seed(
        protocol_version="1",
        dataset="scifact",
        prompt_hash="abc",
        query_id="Frage ü",
        draw=2,
        item=7,
    )
    assert seed == expected


def test_seeds_differ_between_requests_and_fit_63_bits() -> None:
    seeds = {
        request_seed(
            protocol_version=1,
            dataset=dataset,
            prompt_hash="h",
            query_id=query,
            draw=draw,
            item=item,
        )
        for dataset in ("a", "b")
        for query in ("1", "2", "12")
        for draw in range(3)
        for item in range(8)
    }
    assert len(seeds) == 2 * 3 * 3 * 8
    assert all(0 <= seed < 2**63 for seed in seeds)
