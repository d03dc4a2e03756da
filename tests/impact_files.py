"""Impacts of a collection's documents, made at random for tests, and a tokenizer of its words."""

import json
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

Vectors = dict[str, dict[str, float]]


def rows_of(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write_impacts(collection: Path, folder: Path) -> tuple[Vectors, dict[str, float]]:
    """Writes `impacts.jsonl`, `words.json` (a tokenizer), `weights.json`, `vectors.jsonl` (of
    queries) and `texts.jsonl` (of documents) into a folder; returns the impacts and the weights of
    tokens.
    """
    random = np.random.default_rng(5)
    documents = rows_of(collection / "corpus.jsonl")
    texts = [row["title"] + " " + row["text"] for row in documents]
    words = sorted({word for text in texts for word in _tokens(text)})
    vectors: Vectors = {}
    for row, text in zip(documents, texts, strict=True):
        terms = [*dict.fromkeys(_tokens(text)), *random.choice(words, 3)]
        vectors[row["_id"]] = {str(term): float(random.gamma(1.0)) for term in terms}
    lines = [{"id": name, "contents": "", "vector": own} for name, own in vectors.items()]
    order = random.permutation(len(lines))
    (folder / "impacts.jsonl").write_text("".join(json.dumps(lines[n]) + "\n" for n in order))
    known = {word: number for number, word in enumerate(["[UNK]", *words])}
    tokenizer = Tokenizer(WordLevel(known, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["[UNK]"])
    tokenizer.save(str(folder / "words.json"))
    weights = {word: float(random.gamma(1.0)) for word in words[:-1]}
    (folder / "weights.json").write_text(json.dumps(weights))
    queries = {
        row["_id"]: {str(word): float(random.gamma(1.0)) for word in random.choice(words, 2)}
        for row in rows_of(collection / "queries.jsonl")
    }
    write_rows(folder / "vectors.jsonl", {n: {"vector": own} for n, own in queries.items()})
    added = {
        name: {"texts": [" ".join(random.choice(words, 3)) for _ in range(number % 3)]}
        for number, name in enumerate(vectors)
    }
    write_rows(folder / "texts.jsonl", added)
    return vectors, weights


def write_rows(file: Path, rows: dict[str, dict]) -> None:
    """Id -> the rest of its line."""
    lines = [json.dumps({"id": name, **own}) + "\n" for name, own in rows.items()]
    file.write_text("".join(lines), encoding="utf-8")


def _tokens(text: str) -> list[str]:
    return [token for token, _ in Whitespace().pre_tokenize_str(text)]
