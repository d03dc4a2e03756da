"""Whatever bytes lie below --config-dir: they are plain settings of one group, or
refused in lines.
"""

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from desa_ray.errors import DesaError
from desa_ray.jobs.cli.config_folder import KNOWN, read_folder
from desa_ray.jobs.cli.config_rules import GLOBAL

CASES = settings(max_examples=10_000, deadline=None, database=None)
WORDS = [
    *(
        "name",
        "defaults",
        "_self_",
        "channels",
        "options",
        "map",
        "hydra",
        "sweeper",
        "params",
        "mode",
        "expected",
    ),
    *(
        "overrides",
        "_target_",
        "override /encoder",
        "/hydra/launcher@x",
        "method@hydra",
        "queries",
        "desa",
        "kappa",
    ),
    *(
        "${fusion.k}",
        "${oc.env:HOME}",
        "${${a}:b}",
        "$\\{x}",
        "${",
        "<<",
        "!!binary",
        "!x",
        "&a",
        "*a",
        "~",
        "1/2",
        ".nan",
    ),
    *(
        "# @package _global_\n",
        "#@package hydra\n",
        "---\n",
        "...\n",
        "%YAML 1.1\n",
        "\ufeff",
        "\u2028",
        "\t",
        "null",
        "=",
        "0x",
    ),
]
PUNCTUATION = [
    ": ",
    "\n",
    "\n  ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "'",
    '"',
    "|\n ",
    ">-\n ",
    "? ",
    " #",
]


def held(group: str, data: bytes) -> None:
    """The file is refused, or all that it holds is plain and composes."""
    file = Path("my") / group / "mine.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    try:
        for own in read_folder(Path("my")):
            text = OmegaConf.to_yaml(OmegaConf.create(dict(own.content)), resolve=False)
            assert "oc.env" not in text
            assert "_target_" not in own.content
            assert not set(own.content) & ({"hydra"} if group != "experiment" else set())
    except DesaError:
        pass
    finally:
        file.unlink()


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory):
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("fuzz"))
    yield
    os.chdir(before)


@pytest.mark.slow
@CASES
@given(st.sampled_from(KNOWN), st.binary(max_size=300))
def test_any_bytes(group, data):
    held(group, data)


@pytest.mark.slow
@CASES
@given(
    st.sampled_from(KNOWN),
    st.lists(st.sampled_from([*WORDS, *PUNCTUATION]) | st.text(max_size=3), max_size=25),
)
def test_any_pieces_of_yaml(group, pieces):
    held(group, "".join(pieces).encode(errors="surrogatepass"))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(WORDS)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), inner)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@CASES
@given(st.sampled_from(KNOWN), VALUES)
def test_any_values(group, value):
    held(group, dumped(group, value))


def dumped(group: str, value: object) -> bytes:
    header = b"# @package _global_\n" if group in GLOBAL else b""
    return header + yaml.safe_dump(value, allow_unicode=True).encode(errors="surrogatepass")
