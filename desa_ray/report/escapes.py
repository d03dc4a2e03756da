"""Escapes for Markdown, LaTeX, HTML and SVG: they show a name and never interpret it.

Names and ids may come from anybody's collections and records. Each function takes any text and
gives a piece of one line in its language that reads as the text, made printable first.
"""

import html as html_library
import re
import shlex
from collections.abc import Sequence

from desa_ray.printable import printable

# What begins something anywhere in a line of Markdown: an underscore does so only at the edge of a
# word, an ampersand before an entity, and brackets where a target or a definition follows.
_MARKDOWN = re.compile(r"[\\`*<>|~$]|&(?=#?\w+;)|\](?=[(\[:])|(?<![^\W_])_|_(?![^\W_])")
_MARKDOWN_START = re.compile(r"^(\s*)([-+](?![0-9.])|[#=]|\d{1,9}(?=[.)](?:\s|$)))")
_ADDRESS = re.compile(r"(?i)\b(https?|ftp|mailto|xmpp)(?=:)|\bwww(?=\.)")
LATEX_SIGNS = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    '"': r"\symbol{34}",
    "`": r"\symbol{96}",
    "|": r"\textbar{}",
    "−": "$-$",
    "–": "--",
    "×": r"$\times$",
    "°": r"$^\circ$",
    "κ": r"$\kappa$",
    "α": r"$\alpha$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "<": "$<$",
    ">": "$>$",
}
# Signs that TeX would set as one are kept apart; printable text has no private letter.
_LIGATURE, _APART = re.compile(r"([-',])(?=\1)"), "\ue000"
_LATEX_TABLE = str.maketrans({**LATEX_SIGNS, _APART: "{}"})


def markdown(text: object) -> str:
    """A piece of GitHub's Markdown: no emphasis, link, HTML, mathematics, list, heading or cell
    border of its own.
    """
    shown = _MARKDOWN.sub(lambda found: f"\\{found[0]}", printable(text))
    shown = _ADDRESS.sub(lambda found: f"{found[0][:-1]}&#{ord(found[0][-1])};", shown)
    return _MARKDOWN_START.sub(_not_a_start, shown)


def _not_a_start(found: re.Match[str]) -> str:
    """The first sign of a line, so that it begins no list and no heading."""
    blanks, sign = found.groups()
    return f"{blanks}{sign[:-1]}&#{ord(sign[-1])};" if sign.isdigit() else f"{blanks}\\{sign}"


def latex(text: object) -> str:
    """A piece of LaTeX: no command, comment, group or mathematics of its own; L_D, L_S and d_z
    become mathematics.
    """
    shown = _LIGATURE.sub(rf"\1{_APART}", printable(text))
    parts = re.split(r"\b(L_[DS]|d_z)\b", shown)
    return "".join(
        f"${part}$" if place % 2 else part.translate(_LATEX_TABLE)
        for place, part in enumerate(parts)
    )


def html(text: object) -> str:
    """A piece of HTML or SVG, between tags or within the quotes of an attribute."""
    return html_library.escape(printable(text), quote=True)


# What Hydra reads as the same text, and a shell as one word: no number in another form, no word
# for true, nothing or infinity.
_PLAIN = re.compile(r"0|[1-9][0-9]{0,17}|(?!(?:true|false|null|nan|inf)$)[a-z][a-z0-9_.-]*", re.I)


def override(key: str, value: str | Sequence[str]) -> str:
    """`key=value` for a command line that people copy: whatever a value holds, a shell hands it on
    and Hydra reads it as that text.
    """
    if isinstance(value, str):
        return shlex.quote(f"{key}={_hydra(value)}")
    return shlex.quote(f"{key}=[{','.join(map(_hydra, value))}]")


def _hydra(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    # Backslashes count where a quote or a reference follows, and at the end.
    escaped = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    escaped = re.sub(r'(\\*)"', r"\1\1\"", escaped)
    ends = "\\" * (len(value) - len(value.rstrip("\\")))
    return f'"{escaped}{ends}"'
