"""A model's tokenizer with our own truncation, since files come with settings of their own (MiniLM:
cut and pad at 128).

A tokenizer takes 200 bytes of memory for each character of a text, all but the first tokens in
vain. BERT's works word by word, so of a long text it is given a beginning that ends between two
words and makes all tokens that are kept.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desa_ray.errors import DesaError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_BYTES = 64 << 20
PIECE = 64  # characters of a beginning for each token that is kept
LOCAL = {  # parts of a tokenizer that make of a word what they make of it alone
    "normalizer": {None, "BertNormalizer"},
    "pre_tokenizer": {"BertPreTokenizer"},
    "model": {"WordPiece"},
    "post_processor": {None, "TemplateProcessing", "BertProcessing"},
}
SAMPLES = ("", "a query [SEP] a passage of some words, é and 漢字")


class TokenIds:
    """Texts to token ids, at most `max_tokens` of them.

    Attributes:
        special: whether special ones, such as BERT's first and last, are added.
        word_by_word: whether the beginning of a text is enough.
    """

    def __init__(self, tokenizer: "Tokenizer", max_tokens: int, special: bool = True):
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length=max_tokens)
        self.tokenizer, self.max_tokens, self.special = tokenizer, max_tokens, special
        self.word_by_word = _is_word_by_word(json.loads(tokenizer.to_str()))

    def __call__(self, text: str) -> list[int]:
        size = PIECE * self.max_tokens
        while self.word_by_word and size < len(text):
            end = text.rfind(" ", 0, size)
            if end > 0 and len(ids := self._encoded(text[:end])) >= self.max_tokens:
                return ids
            size *= 4
        return self._encoded(text)

    def _encoded(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=self.special).ids


def _is_word_by_word(description: dict[str, Any]) -> bool:
    parts = all(_kind(description.get(part)) in kinds for part, kinds in LOCAL.items())
    added = (own for own in description.get("added_tokens") or ())
    return parts and not any(
        own["lstrip"] or own["rstrip"] or any(map(str.isspace, own["content"])) for own in added
    )


def _kind(part: Any) -> str | None:
    return part.get("type") if isinstance(part, dict) else None


def load_tokenizer(path: Path, max_tokens: int, special: bool = True) -> TokenIds:
    """The tokenizer of `tokenizer.json`, cut at `max_tokens`, tried on texts.

    Args:
        special: as of `TokenIds`.

    Raises:
        DesaError: the file is none, or what it describes cannot take a text.
    """
    from tokenizers import Tokenizer

    what = "not a readable tokenizer"
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
        tokenizer = Tokenizer.from_file(str(path))
        what = "a tokenizer that cannot process text"
        token_ids = TokenIds(tokenizer, max_tokens, special)
        ids = [token_ids(text) for text in SAMPLES]
    except Exception as error:  # the library raises bare Exception
        raise _refused(what, error, path) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # how a panic of Rust arrives
            raise
        raise _refused(what, error, path) from None
    if not ids[1]:
        raise DesaError(
            "a tokenizer that gives no tokens for any text", where=str(path), hint="fetch it again"
        )
    return token_ids


def _refused(what: str, error: BaseException, path: Path) -> DesaError:
    return DesaError(
        f"{what}: {' '.join(str(error).split())[:200]}", where=str(path), hint="fetch it again"
    )
