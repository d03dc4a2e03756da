"""Learned sparse retrieval as the rest of the platform sees it: its identity (for keys), and what
weighs the terms of query-side texts.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from desa_ray.config import SparseConfig
from desa_ray.core.impacts import SCALE, checked_weights, quantised
from desa_ray.engines.model_files import sha256_file
from desa_ray.engines.splade_files import splade_identity
from desa_ray.engines.tokenizer import load_tokenizer
from desa_ray.errors import DesaError
from desa_ray.lines import shown_value

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_TABLE = 64 << 20  # bytes of token weights
NO_LIMIT = 1 << 20  # tokens of a text without a model that could not take them


class TermWeigher(Protocol):
    """An engine that gives the terms of texts weights."""

    def weigh(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """Term -> weight, at least 0, of each text."""
        ...


class TokenWeigher:
    """Every token of a text, once, with its weight of a table, or 1 each: no model is run.

    Args:
        tokens: the tokens of each text, in any order.
        table: a token that it lacks weighs nothing; None: every token weighs 1.
    """

    def __init__(
        self,
        tokens: Callable[[Sequence[str]], list[list[str]]],
        table: Mapping[str, float] | None,
    ):
        self._tokens, self._table = tokens, table

    def weigh(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """As `TermWeigher`."""
        table, found = self._table, list[dict[str, float]]()
        for tokens in self._tokens(texts):
            distinct = dict.fromkeys(tokens)
            if table is None:
                found.append(dict.fromkeys(distinct, 1.0))
            else:
                found.append({token: table[token] for token in distinct if token in table})
        return found


def sparse_identity(
    config: SparseConfig, analysis: Mapping[str, str], model_home: Path
) -> dict[str, dict[str, Any]]:
    """Everything that decides the impacts of documents and the weights of queries, for artifact
    keys: under `documents` and `queries`, of BM25 none; and under `texts` and `vectors` what the
    files of texts of documents and of weights of queries hold, where there are such files.

    Args:
        analysis: analyzer and Lucene version.
        model_home: folder for models put there by hand.

    Raises:
        DesaError: a file is missing or not what it must be.
    """
    texts: dict[str, dict[str, Any]] = {}
    if config.document_texts is not None:
        texts["texts"] = {"document_texts_sha256": sha256_file(Path(config.document_texts))}
    if config.kind == "bm25":
        return texts
    queries: dict[str, Any] = {
        "kind": config.kind,
        "scale": config.query_scale or SCALE,
        "combine": config.combine or "sum",
    }
    if config.kind == "splade":
        own = splade_identity(config, model_home)
        documents = {**own, "scale": config.scale or SCALE}
        return {"documents": documents, "queries": own | queries, **texts}
    if config.impacts is None:
        hint = "set sparse.impacts to the JSONL file of the documents' impacts"
        raise DesaError("sparse=impact without impacts", where="sparse.impacts", hint=hint)
    documents = {
        "kind": config.kind,
        "impacts_sha256": sha256_file(Path(config.impacts)),
        "scale": config.scale or SCALE,
    }
    if config.tokenizer is None:
        queries |= analysis
    else:
        _tokenizer(config.tokenizer)
        queries["tokenizer_sha256"] = sha256_file(Path(config.tokenizer))
    if config.token_weights is not None:
        read_token_weights(Path(config.token_weights))
        queries["token_weights_sha256"] = sha256_file(Path(config.token_weights))
    found = {"documents": documents, "queries": queries}
    if config.query_vectors is not None:
        digest = sha256_file(Path(config.query_vectors))
        found["vectors"] = {"query_vectors_sha256": digest, "scale": queries["scale"]}
    return found


def load_splade(
    config: SparseConfig, *, threads: int, model_home: Path, batch_size: int
) -> TermWeigher:
    """The engine of documents and queries of a SPLADE model; arguments as of `load_encoder`."""
    from desa_ray.engines.splade import SpladeEncoder

    return SpladeEncoder(config, threads=threads, model_home=model_home, batch_size=batch_size)


def load_weigher(config: SparseConfig, analyzer: str) -> TermWeigher:
    """The engine of the query side of a file of impacts.

    Args:
        analyzer: a name that `desa_ray.engines.analysis` makes, used without a tokenizer.
    """
    table = None
    if config.token_weights is not None:
        table = read_token_weights(Path(config.token_weights))
    if config.tokenizer is None:
        from desa_ray.engines.lucene import Lucene

        lucene = Lucene(config.java_home, config.heap)
        return TokenWeigher(lambda texts: lucene.analyse(texts, analyzer), table)
    tokenizer = _tokenizer(config.tokenizer)
    special = {
        number for number, own in tokenizer.get_added_tokens_decoder().items() if own.special
    }

    def tokens(texts: Sequence[str]) -> list[list[str]]:
        found: list[list[str]] = []
        for text in texts:
            encoded = tokenizer.encode(text, add_special_tokens=False)
            pairs = zip(encoded.ids, encoded.tokens, strict=True)
            found.append([token for number, token in pairs if number not in special])
        return found

    return TokenWeigher(tokens, table)


def _tokenizer(path: str) -> "Tokenizer":
    return load_tokenizer(Path(path), NO_LIMIT).tokenizer


def read_token_weights(path: Path) -> dict[str, float]:
    """Token -> weight, from 0 up, of a JSON object {token: weight}.

    Raises:
        DesaError: the file cannot be read, or is no such table.
    """
    hint = "write one JSON object of tokens and numbers from 0 up"
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TABLE + 1)
        if len(data) > MAX_TABLE:
            raise ValueError(f"larger than {MAX_TABLE >> 20} MiB")
        table = json.loads(data)
        if not isinstance(table, dict):
            raise ValueError(f"not an object but {shown_value(table)}")
    except (OSError, ValueError, RecursionError) as error:
        what = f"not a table of token weights: {' '.join(str(error).split())[:200]}"
        raise DesaError(what, where=str(path), hint=hint) from None
    try:
        checked = checked_weights(table)
        quantised(checked, 1.0)
    except DesaError as error:
        raise DesaError(error.what, where=str(path), hint=hint) from None
    return dict(checked)
