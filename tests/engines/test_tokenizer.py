"""Token ids of long texts: the beginning that is read gives what the whole text gives."""

import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from desa_ray.engines import tokenizer as module
from desa_ray.engines.tokenizer import load_tokenizer
from tests.engines.encoder_files import minilm_folder

PIECES = [
    *(
        "a",
        "cat",
        "Übermaß",
        "e\u0301",
        "\u0301",
        "naïve",
        "漢字かな",
        "😀",
        "[SEP]",
        "[SEP",
        "]",
        "[MASK]",
        "don't",
        "x" * 150,
    ),
    *(
        "\u00a0",
        "\t",
        "\n",
        "\x00",
        "\u200b",
        "\u2028",
        "1.5",
        "---",
        "ﬁ",
        "İ",
        "Σ",
        "\ufeff",
        "##ing",
        "  ",
    ),
]


def whole(max_tokens: int) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=max_tokens)
    return tokenizer


@pytest.mark.parametrize("max_tokens", [3, 8, 64, 256])
def test_the_beginning_of_a_text_has_the_tokens_of_the_whole(max_tokens, monkeypatch):
    monkeypatch.setattr(module, "PIECE", 1)  # so short that it must grow
    ids, plain, draw = (
        load_tokenizer(minilm_folder() / "tokenizer.json", max_tokens),
        whole(max_tokens),
        random.Random(1),
    )
    assert ids.word_by_word
    for _ in range(120):
        pieces = draw.choices(PIECES, k=draw.randrange(600))
        text = "".join(piece + draw.choice(("", " ", " ", "  ")) for piece in pieces)
        assert ids(text) == plain.encode(text).ids, text


def test_a_long_text_takes_the_memory_of_its_beginning():
    ids = load_tokenizer(minilm_folder() / "tokenizer.json", 256)
    text = "two words " * 2_000_000
    before = peak()
    assert len(ids(text)) == 256
    assert peak() - before < 100 << 10  # kB; the whole text took 4 GB


def peak() -> int:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"BertPreTokenizer"', '"Whitespace"'),
        ('"lstrip": false', '"lstrip": true'),
        ('"lstrip":false', '"lstrip":true'),
    ],
)
def test_tokenizers_that_may_look_across_words_are_given(old, new, tmp_path):
    """Tokenizers that may look across words are given the whole text."""
    text = (minilm_folder() / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(text.replace(old, new))
    assert load_tokenizer(tmp_path / "tokenizer.json", 8).word_by_word == (old not in text)
