"""Vectors of the ONNX engine, with real MiniLM weights: the right numbers, the same bits however
they are batched.
"""

import json
import math

import numpy as np
import onnxruntime
import pytest
from encoder_files import configuration, minilm_folder, one_layer_model
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from desa_ray.engines.encoder import load_encoder
from desa_ray.engines.model_files import find_model
from desa_ray.errors import DesaError

SENTENCE = (
    "the protein binds to its receptor and increases expression of genes in patients with heart"
    " disease while [SEP] inflammation was reduced, 25% (p < 0.05); naïve T-cells — 細胞 — did not"
    " respond"
)


# Words; 330 is cut
LENGTHS = (
    0,
    1,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    10,
    11,
    12,
    20,
    21,
    40,
    60,
    90,
    91,
    130,
    180,
    330,
)


def some_texts(seed: int = 0, lengths: tuple[int, ...] = LENGTHS) -> list[str]:
    """One text per length, in no order."""
    random = np.random.default_rng(seed)
    return [
        " ".join(random.choice(SENTENCE.split(), length)) for length in random.permutation(lengths)
    ]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def minilm(home):
    return load_encoder(configuration("minilm_l6"), threads=1, model_home=home)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return one_layer_model(tmp_path_factory.mktemp("small") / "model")


@pytest.mark.long
@pytest.mark.parametrize("name", ["minilm_l6", "minilm_l3"])
def test_bits_depend_on_the_text_alone(name, home):
    texts = some_texts()
    config = configuration(name)

    def encode(texts, *, threads, batch_size):
        return load_encoder(config, threads=threads, model_home=home, batch_size=batch_size).encode(
            texts
        )

    alone = load_encoder(config, threads=1, model_home=home, batch_size=1)
    reference = np.concatenate([alone.encode([text]) for text in texts])
    order = np.random.default_rng(1).permutation(len(texts))
    for threads, batch_size in [(1, 4), (2, 1), (2, 8)]:
        shuffled = encode([texts[row] for row in order], threads=threads, batch_size=batch_size)
        assert np.array_equal(shuffled, reference[order]), (threads, batch_size)
    with_neighbours = encode(
        [*texts[:3], *some_texts(5, LENGTHS[:14]), *texts[3:6]], threads=2, batch_size=4
    )
    assert np.array_equal(
        np.concatenate([with_neighbours[:3], with_neighbours[-3:]]), reference[:6]
    )
    repeated = encode([texts[4]] * 9, threads=2, batch_size=8)
    assert np.array_equal(repeated, np.repeat(reference[4:5], 9, axis=0))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_equal_a_plain_forward_pass(pooling, home):
    encoder = load_encoder(configuration("minilm_l6", pooling=pooling), threads=1, model_home=home)
    for text in ("how do I sort a list", "query [SEP] a reference of some more words than eight"):
        assert np.abs(encoder.encode([text])[0] - forward_pass(text, pooling)).max() < 1e-5


def test_a_ready_made_graph_is_pooled_as_its_own_head_does(home):
    """The graph of minilm_l3 also computes its mean pooling, in another order of summation."""
    config = configuration("minilm_l3")
    files = find_model(config, home)
    session = onnxruntime.InferenceSession(files.weights)
    tokenizer = Tokenizer.from_file(str(files.tokenizer))
    tokenizer.no_padding()
    text = "a sentence of a handful of words"
    ids = np.array([tokenizer.encode(text).ids])
    (pooled,) = session.run(["461"], {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    expected = np.asarray(pooled)[0] / np.linalg.norm(np.asarray(pooled)[0])
    assert (
        np.abs(load_encoder(config, threads=1, model_home=home).encode([text])[0] - expected).max()
        < 1e-6
    )


@pytest.mark.parametrize("name", ["minilm_l6", "minilm_l3"])
def test_related_sentences_are_closer(name, home):
    encoder = load_encoder(configuration(name), threads=1, model_home=home)
    query, related, foreign = encoder.encode(
        ["How do I sort a list?", "Sorting lists in Python.", "The cat slept in the warm sun."]
    )
    assert query @ related > 0.5
    assert query @ foreign < 0.2


def test_text_is_cut_at_256_tokens_whatever_the_tokenizer_file(minilm):
    """Text is cut at 256 tokens whatever the tokenizer file says."""
    # One token each; [CLS] and [SEP] make it 256 at 254
    words = ["cell"] + [
        "gene",
        "mouse",
        "blood",
        "heart",
    ] * 100
    long, at_limit, shorter, prefix = minilm.encode(
        [" ".join(words[:n]) for n in (400, 254, 253, 100)]
    )
    assert np.array_equal(long, at_limit)
    assert not np.array_equal(at_limit, shorter)
    assert not np.array_equal(long, prefix)


def test_a_literal_sep_is_read_as_the_separator_token(minilm):
    """method.md section 3: the query-reference text is one string with " [SEP] " in it."""
    ids = (
        Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
        .encode("query [SEP] reference")
        .ids
    )
    assert [token for token in ids if token] == [101, 23032, 102, 4431, 102]
    assert (
        np.abs(
            minilm.encode(["query [SEP] reference"])[0] - forward_pass([101, 23032, 102, 4431, 102])
        ).max()
        < 1e-5
    )
    assert not np.array_equal(*minilm.encode(["query [SEP] reference", "query sep reference"]))


def test_no_texts_and_empty_texts_are_fine(minilm):
    assert minilm.encode([]).shape == (0, 384)
    empty, blank = minilm.encode(["", " \n"])
    assert np.array_equal(empty, blank)
    assert np.abs(empty - forward_pass([101, 102])).max() < 1e-5


def test_a_vector_that_is_not_finite_names_its_text(tmp_path, home):
    def poison(tensors):
        tensors["embeddings.word_embeddings.weight"][29145] = (
            3e38  # "zebra", the third token: the sum overflows
        )
        tensors["embeddings.position_embeddings.weight"][2] = 3e38

    folder = one_layer_model(tmp_path / "poisoned", edit=poison)
    encoder = load_encoder(configuration("minilm_l6", path=str(folder)), threads=1, model_home=home)
    texts = ["a horse", "a zebra", "a mule", "two horses"]
    with pytest.raises(DesaError, match=r"1 vector\(s\) not finite or not of length one: 'doc-b'"):
        encoder.encode(texts, names=["doc-a", "doc-b", "doc-c", "doc-d"])
    with pytest.raises(DesaError, match="length one: 1 "):
        encoder.encode(texts)
    assert encoder.encode([texts[0], *texts[2:]]).shape == (3, 384)


@pytest.fixture(scope="module")
def kept(small, tmp_path_factory):
    """A home with the converted graph of `small`, and how to encode with it."""
    home = tmp_path_factory.mktemp("kept")

    def encode():
        encoder = load_encoder(
            configuration("minilm_l6", path=str(small)), threads=1, model_home=home
        )
        return encoder.encode(["a text"])

    return home, encode, encode()


@pytest.mark.long
@pytest.mark.parametrize("damage", ["none", "flipped", "cut", "no digest", "bad digest"])
def test_a_damaged_kept_graph_is_converted_anew(damage, kept):
    home, encode, expected = kept
    (graph,), (digest,) = home.glob("*.onnx"), home.glob("*.sha256")
    intact = graph.read_bytes(), digest.read_bytes()
    if damage == "flipped":
        position = len(intact[0]) // 2
        graph.write_bytes(
            intact[0][:position] + bytes([intact[0][position] ^ 1]) + intact[0][position + 1 :]
        )
    elif damage == "cut":
        graph.write_bytes(intact[0][:1000])
    elif damage == "no digest":
        digest.unlink()
    elif damage == "bad digest":
        digest.write_bytes(b"\xff\xfe")
    written = graph.stat().st_mtime_ns
    assert np.array_equal(encode(), expected)
    assert (graph.read_bytes(), digest.read_bytes()) == intact
    assert (graph.stat().st_mtime_ns == written) == (damage == "none")
    assert len(list(home.iterdir())) == 2


def test_files_that_are_no_model_are_refused_by_name(small, tmp_path):
    def load(folder, **overrides):
        load_encoder(
            configuration("minilm_l6", path=str(folder), **overrides),
            threads=1,
            model_home=tmp_path / "home",
        )

    def damaged(name, data):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        for file in small.iterdir():
            (folder / file.name).write_bytes(data if file.name == name else file.read_bytes())
        return folder

    with pytest.raises(DesaError, match="not a readable safetensors file"):
        load(damaged("model.safetensors", b"\x00" * 100))
    with pytest.raises(DesaError, match="not a readable tokenizer"):
        load(damaged("tokenizer.json", b"{}"))
    with pytest.raises(DesaError, match=r"lacks the tensor 'encoder.layer.1.attention"):
        load(one_layer_model(tmp_path / "shallow", num_hidden_layers=2))
    (small / "graph.onnx").write_bytes(b"no graph")
    with pytest.raises(DesaError, match="not a readable ONNX graph"):
        load(small, weights="graph.onnx")


def forward_pass(text: str | list[int], pooling: str = "mean") -> np.ndarray:
    """BERT (Devlin et al. 2019, sections 3 and A.2) of one text in plain float64 numpy, from
    MiniLM's weights.
    """
    folder = minilm_folder()
    config = json.loads((folder / "config.json").read_text())
    weights = {
        name: tensor.astype(np.float64)
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    if isinstance(text, str):
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_padding()
        text = tokenizer.encode(text).ids

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x, name):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(
            x.var(-1, keepdims=True) + config["layer_norm_eps"]
        )
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def heads(x):  # [T, D] -> [H, T, D/H]
        return x.reshape(len(text), config["num_attention_heads"], -1).swapaxes(0, 1)

    erf = np.vectorize(math.erf)
    x = weights["embeddings.word_embeddings.weight"][text]
    x = x + weights["embeddings.position_embeddings.weight"][: len(text)]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for number in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        q, k, v = (
            heads(linear(x, f"{layer}.attention.self.{part}")) for part in ("query", "key", "value")
        )
        scores = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]))
        context = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(x.shape)
        x = norm(
            linear(context, f"{layer}.attention.output.dense") + x,
            f"{layer}.attention.output.LayerNorm",
        )
        wide = linear(x, f"{layer}.intermediate.dense")
        wide = wide * (1 + erf(wide / np.sqrt(2))) / 2
        x = norm(linear(wide, f"{layer}.output.dense") + x, f"{layer}.output.LayerNorm")
    pooled = x.mean(0) if pooling == "mean" else x[0]
    return pooled / np.linalg.norm(pooled)
