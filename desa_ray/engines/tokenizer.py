"""A model's tokenizer with our own truncation: files ship settings of their own (MiniLM: cut and pad at 128)."""

from pathlib import Path
from typing import TYPE_CHECKING

from desa_ray.errors import DesaError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_BYTES = 64 << 20
SAMPLES = ("", "a query [SEP] a passage of some words, é and 漢字")


def load_tokenizer(path: Path, max_tokens: int) -> "Tokenizer":
    """The tokenizer of `tokenizer.json`, cut at `max_tokens`, tried on texts.

    Raises:
        DesaError: the file is none, or what it describes cannot take a text.
    """
    from tokenizers import Tokenizer

    what = "not a readable tokenizer"
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
        tokenizer = Tokenizer.from_file(str(path))
        what = "a tokenizer that takes no text"
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length=max_tokens)
        ids = [tokenizer.encode(text).ids for text in SAMPLES]
    except Exception as error:  # the library raises bare Exception
        raise _refused(what, error, path) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # how a panic of Rust arrives
            raise
        raise _refused(what, error, path) from None
    if not ids[1]:
        raise DesaError("a tokenizer without a token for any text", where=str(path), mend="fetch it anew")
    return tokenizer


def _refused(what: str, error: BaseException, path: Path) -> DesaError:
    return DesaError(f"{what}: {' '.join(str(error).split())[:200]}", where=str(path), mend="fetch it anew")
