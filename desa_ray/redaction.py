"""Hides the secrets that addresses and messages carry, however they are spelled.

An address carries them before its host (`user:password@`), or as a parameter of its query or
fragment (`?token=`, `#access_token=`, `X-Amz-Signature=`), plainly or percent-encoded. A message
carries them where a library or a server repeats what it was given: a header, a DSN, or the value of
an environment variable that is named like a secret.
"""

import os
import re
from urllib.parse import unquote

HIDDEN = "***"
# `user:password@`, `:password@` and `token@` before a host; a plain user name is no secret in
# database addresses.
_USERINFO = re.compile(
    r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*:)?//(?P<user>[^\s/?#@:]*)(?P<rest>:(?!\d+(?:[/?#]|$))\S*)?@"
)
_NAMED = ("postgresql", "mysql", "mariadb", "mssql", "oracle")
# Without a scheme
_BARE = re.compile(r"(?P<before>^|=)[^\s/@:=]*:[^\s/@]+@(?P<host>[\w.\[\]:-]+(?:/.*)?)$")
_PARAMETER = re.compile(r"(?P<before>[?&#;])(?P<name>[^\s?&#;=]+)=(?P<value>[^\s&#;]+)")
# Names of parameters, without case and signs: by their end, by their beginning, or whole.
_ENDS = re.compile(
    r"(password|passwd|passphrase|pwd|secret|token|key|keyid|credentials?|signature|authorization|jwt)$"
)
_STARTS = ("xamz", "xgoog")
_WHOLE = ("sig", "auth", "pass", "pw", "sas", "bearer", "code", "session", "sessionid", "cookie")
# Of MLflow's UI: names a view, which everybody may see who sees runs
_OPEN = ("viewstatesharekey",)
# Outside of addresses, only what is unambiguous.
_HEADER = re.compile(
    r"(?i)(\b(?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token|digest)\s+)?"
    r"|\bbearer\s+(?=[\w.~+/=-]{8}))[^\s\"',;]+"
)
_NAMES = (
    r"[\w-]*(?:password|passwd|pwd|passphrase|secret|api[_-]?key|access[_-]?key|secret[_-]?key|account[_-]?key"
    r"|[a-z]+[_-]token)"
)
_ASSIGNED = re.compile(rf"(?i)(\b{_NAMES}=[\"']?|[\"']{_NAMES}[\"']\s*:\s*[\"'])[^\s\"',;&)]+")
_VARIABLE = re.compile(r"(?i)(password|passwd|passphrase|secret|token|(^|_)key|api_?key)$")
_SHORTEST = 8  # a value of fewer characters may be a common word


def redacted(text: object) -> str:
    """`str(text)` with every secret in it replaced by `***`; without one it comes back as it is."""
    found = re.sub(r"\S*%\S*", _decoded, str(text))
    found = _BARE.sub(rf"\g<before>{HIDDEN}@\g<host>", found)
    found = _PARAMETER.sub(_parameter, _USERINFO.sub(_host, found))
    found = _ASSIGNED.sub(rf"\g<1>{HIDDEN}", _HEADER.sub(rf"\g<1>{HIDDEN}", found))
    for value in _known():
        found = found.replace(value, HIDDEN)
    return found


def has_credentials(text: str, *, bare: bool = False) -> bool:
    """Whether an address anywhere in a text carries a password, a token or a secret.

    Args:
        bare: the text is an address, so that `user:password@host` is one without a scheme too, and
            no id.
    """
    joined = re.sub(r"\s+", "", text)  # clients leave blanks and line ends out
    forms = joined, _unquoted(joined)
    return any(_carries(form) or (bare and _BARE.search(form) is not None) for form in forms)


def _carries(text: str) -> bool:
    if any(_secret(match["name"]) for match in _PARAMETER.finditer(text)):
        return True
    return any(_private(match) for match in _USERINFO.finditer(text))


def _private(match: re.Match[str]) -> bool:
    """Whether the part before a host is more than a name: a path such as a//b@c has none, a
    database's user one.
    """
    named = match["scheme"] is None or match["scheme"].lower().startswith(_NAMED)
    return match["rest"] is not None or not named


def _host(match: re.Match[str]) -> str:
    if match["scheme"] is None and match["rest"] is None:
        return match[0]
    return f"{match['scheme'] or ''}//{HIDDEN}@"


def _decoded(match: re.Match[str]) -> str:
    """A word with percent signs: decoded where that shows a secret which would stay hidden
    otherwise.
    """
    word = match[0]
    plain = _unquoted(word)
    return plain if plain != word and _carries(plain) and not _carries(word) else word


def _unquoted(text: str) -> str:
    for _ in range(3):  # an address within an address within an address
        text = unquote(text)
    return text


def _parameter(match: re.Match[str]) -> str:
    return f"{match['before']}{match['name']}={HIDDEN}" if _secret(match["name"]) else match[0]


def _secret(name: str) -> bool:
    """Whether a parameter is named like a secret."""
    letters = re.sub(r"[^a-z0-9]", "", _unquoted(name).lower())
    if letters in _OPEN:
        return False
    return letters in _WHOLE or letters.startswith(_STARTS) or _ENDS.search(letters) is not None


def _known() -> list[str]:
    """Values of environment variables that are named like secrets, the longest first."""
    values = {
        value
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST and _VARIABLE.search(name)
    }
    return sorted(values, key=len, reverse=True)
