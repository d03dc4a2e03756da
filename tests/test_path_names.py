"""Names that become part of a path: what passes names one file of its own, below where
it is put.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desa_ray.errors import DesaError
from desa_ray.path_names import LIMIT, path_name, path_names, why_not


@pytest.mark.parametrize(
    "name", ["a", "trec-covid", "webis-touche2020", "a.b_c+d", "1", "x" * LIMIT, "console", "com"]
)
def test_plain_names_are_taken_as_they_are(name):
    assert path_name(name, where="here") == name


BAD = {
    "nothing": "",
    "here": ".",
    "above": "..",
    "traversal": "../x",
    "traversal within": "a/../../x",
    "absolute": "/etc/passwd",
    "another system's": "..\\x",
    "a drive": "C:x",
    "hidden": ".ssh",
    "an option": "-rf",
    "NUL": "a\0b",
    "a line": "a\nb",
    "a line at the end": "a\n",
    "blanks": "a b",
    "markup": "[/red]",
    "an escape": "\x1b[2J",
    "other letters": "ä",
    "a digit of another script": "a١",
    "a lone surrogate": "\ud800",
    "a device": "CON",
    "a device with an ending": "nul.txt",
    "a dot at the end": "a.",
    "long": "x" * (LIMIT + 1),
    "home": "~",
    "a variable": "$HOME",
    "percent": "%2e%2e",
}


@pytest.mark.parametrize("name", BAD)
def test_what_could_lead_elsewhere_is_refused_with_its_place(name):
    with pytest.raises(DesaError, match=r"^records: .* cannot name a file: .*begin") as caught:
        path_name(BAD[name], where="records")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@given(st.text(max_size=12) | st.text(alphabet="./\\\0 aA~-:", max_size=8))
def test_what_passes_stays_below_its_folder(name):
    folder = Path("/folder")
    if why_not(name) is None:
        assert (folder / name).parent == folder
        assert name.isascii()
        assert name.isprintable()


def test_names_that_some_disk_takes_for_one_are_refused():
    assert path_names(["b", "a"], where="here") == ["b", "a"]
    with pytest.raises(DesaError, match="here: A, a would be the same file"):
        path_names(["A", "a"], where="here")
    with pytest.raises(DesaError, match="here: a would be written twice"):
        path_names(["a", "b", "a"], where="here")
