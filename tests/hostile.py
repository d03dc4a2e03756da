"""Hostile strings for names, ids, messages and paths, and what output must never hold."""

import unicodedata

# By what they attack; each must be shown with all of its letters.
STRINGS = {
    "rich markup": "[red]x[/red]",
    "closing markup": "[/b]",
    "markup link": "[link=file:///etc/passwd]y[/link]",
    "emoji code": ":bear:",
    "escape": "\x1b[31mred",
    "window title": "\x1b]0;owned\x07",
    "C1 control": "\x9b31mred",
    "carriage return": "safe\rowned",
    "backspace": "a\x08b",
    "line feed": "a\nerror: forged",
    "tab": "a\tb",
    "NUL": "a\x00b",
    "override": "abc\u202egnp.exe",
    "isolate": "\u2066x\u2069",
    "mark": "\u200fx\u061c",
    "zero width": "a\u200bb\u200d\ufeff",
    "line separator": "a\u2028b\u2029c",
    "tag letters": "a\U000e0041\U000e0042",
    "variation selector": "a\ufe0f\U000e0100",
    "hangul filler": "a\u3164b",
    "soft hyphen": "a\u00adb",
    "lone surrogate": "a\ud800b",
    "HTML": "<script>alert(1)</script>",
    "HTML attribute": "\"onmouseover='alert(1)'",
    "image": "<img src=x onerror=alert(1)>",
    "formula": '=HYPERLINK("http://a","b")',
    "formula after tab": "\t=1+1",
    "at formula": "@SUM(1)",
    "LaTeX input": r"\input{/etc/passwd}",
    "LaTeX write": r"\immediate\write18{touch owned}",
    "LaTeX signs": "%#$&_{}~^[x]",
    "Markdown link": "[a](javascript:alert(1))",
    "Markdown cell": "a|b`c*d_",
    "template": "{{7*7}}${7*7}",
}


def odd(text: str, allowed: str = "\n") -> list[str]:
    """Characters of a text that act on a terminal or have no shape, by code point."""
    categories = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    hidden = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe0f\U000e0100"
    found = {
        c
        for c in text
        if c not in allowed and (unicodedata.category(c) in categories or c in hidden)
    }
    return sorted(f"U+{ord(c):04X}" for c in found)
