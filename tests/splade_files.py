"""A small random BERT with a masked-language-model head, and its forward pass in plain numpy."""

import json
import math
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{number}" for number in range(40)]
VOCABULARY = [*SPECIAL, *WORDS, "cat", "dog", "sun", "##s", "##ny", ",", "."]
HIDDEN, HEADS, LAYERS, INNER, POSITIONS = 16, 2, 2, 24, 64
Tensors = dict[str, np.ndarray]


def write_model(folder: Path, seed: int = 0, *, tied: bool = True, old_names: bool = False) -> Path:
    """A model folder; `old_names` calls scale and bias of norms gamma and beta."""
    folder.mkdir(parents=True)
    save_file(_tensors(seed, tied, old_names), folder / "model.safetensors")
    config = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "max_position_embeddings": POSITIONS,
        "layer_norm_eps": 1e-12,
    }
    (folder / "config.json").write_text(json.dumps(config))
    numbers = {token: number for number, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer()
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def _tensors(seed: int, tied: bool, old_names: bool) -> Tensors:
    random = np.random.default_rng(seed)
    found: Tensors = {}

    def normal(name: str, *shape: int) -> None:
        found[name] = random.normal(0, 0.6, shape).astype(np.float32)

    def linear(name: str, out: int, into: int) -> None:
        normal(f"{name}.weight", out, into)
        normal(f"{name}.bias", out)

    def norm(name: str) -> None:
        scale, bias = ("gamma", "beta") if old_names else ("weight", "bias")
        normal(f"{name}.{scale}", HIDDEN)
        normal(f"{name}.{bias}", HIDDEN)

    normal("bert.embeddings.word_embeddings.weight", len(VOCABULARY), HIDDEN)
    normal("bert.embeddings.position_embeddings.weight", POSITIONS, HIDDEN)
    normal("bert.embeddings.token_type_embeddings.weight", 2, HIDDEN)
    norm("bert.embeddings.LayerNorm")
    for number in range(LAYERS):
        layer = f"bert.encoder.layer.{number}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            linear(f"{layer}.attention.{part}", HIDDEN, HIDDEN)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", INNER, HIDDEN)
        linear(f"{layer}.output.dense", HIDDEN, INNER)
        norm(f"{layer}.output.LayerNorm")
    linear("cls.predictions.transform.dense", HIDDEN, HIDDEN)
    norm("cls.predictions.transform.LayerNorm")
    normal("cls.predictions.bias", len(VOCABULARY))
    if not tied:
        normal("cls.predictions.decoder.weight", len(VOCABULARY), HIDDEN)
    return found


def logits(tensors: Tensors, heads: int, ids: list[int]) -> np.ndarray:
    """float64 [T, V]: BERT and its head, one text without padding, written from the papers."""
    given = {}
    for name, value in tensors.items():
        plain = name.replace(".gamma", ".weight").replace(".beta", ".bias")
        given[plain.removeprefix("bert.")] = value.astype(np.float64)
    size = len(ids)

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ given[f"{name}.weight"].T + given[f"{name}.bias"]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * given[f"{name}.weight"] + given[f"{name}.bias"]

    x = given["embeddings.word_embeddings.weight"][ids]
    x = x + given["embeddings.position_embeddings.weight"][:size]
    x = norm(x + given["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    layers = 1 + max(int(name.split(".")[2]) for name in given if name.startswith("encoder.layer"))
    for number in range(layers):
        layer = f"encoder.layer.{number}"
        queries, keys, values = (
            linear(x, f"{layer}.attention.self.{part}") for part in ("query", "key", "value")
        )
        width = x.shape[1] // heads
        context = np.empty_like(x)
        for head in range(heads):
            own = slice(head * width, (head + 1) * width)
            weights = queries[:, own] @ keys[:, own].T / math.sqrt(width)
            weights = np.exp(weights - weights.max(-1, keepdims=True))
            context[:, own] = weights / weights.sum(-1, keepdims=True) @ values[:, own]
        attended = linear(context, f"{layer}.attention.output.dense") + x
        x = norm(attended, f"{layer}.attention.output.LayerNorm")
        widened = _gelu(linear(x, f"{layer}.intermediate.dense"))
        x = norm(linear(widened, f"{layer}.output.dense") + x, f"{layer}.output.LayerNorm")
    x = _gelu(linear(x, "cls.predictions.transform.dense"))
    x = norm(x, "cls.predictions.transform.LayerNorm")
    words = given["embeddings.word_embeddings.weight"]
    return x @ given.get("cls.predictions.decoder.weight", words).T + given["cls.predictions.bias"]


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))
