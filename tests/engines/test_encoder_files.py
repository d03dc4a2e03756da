"""Model folders that are no model: one line that names file and field, before anything
is encoded.
"""

import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from safetensors.numpy import load_file, save_file

from desa_ray.engines.bert_files import read_architecture, read_header
from desa_ray.engines.encoder import check_encoder, encoder_identity, load_encoder
from desa_ray.errors import DesaError
from tests.engines.encoder_files import configuration
from tests.reference import REFERENCE

HIDDEN, INNER, WORDS, POSITIONS = 16, 32, 40, 64
CONFIG = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "hidden_size": HIDDEN,
    "max_position_embeddings": POSITIONS,
    "layer_norm_eps": 1e-12,
}
TOKENIZER = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 1, "a": 4, "cat": 6}, "unk_token": "[UNK]"},
}
ODD = [None, True, -1, 0, 2.5, 1e308, "x", "12", [], [1], {}, {"a": 1}, 10**30, "\ud800"]


def tensors() -> dict[str, np.ndarray]:
    layer = "encoder.layer.0"
    shapes = {
        "embeddings.word_embeddings.weight": (WORDS, HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        f"{layer}.intermediate.dense.weight": (INNER, HIDDEN),
        f"{layer}.intermediate.dense.bias": (INNER,),
        f"{layer}.output.dense.weight": (HIDDEN, INNER),
        f"{layer}.output.dense.bias": (HIDDEN,),
    }
    for part in ("self.query", "self.key", "self.value", "output.dense"):
        shapes |= {
            f"{layer}.attention.{part}.weight": (HIDDEN, HIDDEN),
            f"{layer}.attention.{part}.bias": (HIDDEN,),
        }
    for part in ("embeddings", f"{layer}.attention.output", f"{layer}.output"):
        shapes |= {f"{part}.LayerNorm.weight": (HIDDEN,), f"{part}.LayerNorm.bias": (HIDDEN,)}
    draw = np.random.default_rng(1)
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of one layer that encodes."""
    place = tmp_path / "model"
    place.mkdir()
    save_file(tensors(), place / "model.safetensors")
    (place / "config.json").write_text(json.dumps(CONFIG))
    (place / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return place


def encoder(folder: Path, **overrides: Any) -> Any:
    return configuration("minilm_l6", path=str(folder), max_tokens=64, **overrides)


def planned(folder: Path, **overrides: Any) -> None:
    """What a plan does with a model."""
    encoder_identity(encoder(folder, **overrides), model_home=folder / "home")
    check_encoder(encoder(folder, **overrides), model_home=folder / "home")


def told(folder: Path, file: str, **overrides: Any) -> str:
    with pytest.raises(DesaError) as refused:
        planned(folder, **overrides)
    assert "\n" not in str(refused.value)
    assert refused.value.hint
    assert refused.value.where == str(folder / file)
    return refused.value.what


def test_the_model_of_these_tests_encodes(folder):
    planned(folder)
    loaded = load_encoder(encoder(folder), threads=1, model_home=folder / "home")
    assert loaded.encode(["a cat", "a"]).shape == (2, HIDDEN)


@pytest.mark.parametrize("case", ["encoder_config-1", "encoder_safetensors-1"])
def test_the_folders_of_the_trials_are_refused_by_file_and_field(case, tmp_path):
    folder = Path(shutil.copytree(REFERENCE / "cases" / case, tmp_path / "model"))
    if case == "encoder_config-1":
        assert "num_hidden_layers is null" in told(folder, "config.json")
    else:
        what = told(folder, "model.safetensors")
        assert "'encoder.layer.0.attention.output.LayerNorm.weight' has the shape [17]" in what
        assert "[16]" in what


@pytest.mark.parametrize(
    "name", [name for name, value in CONFIG.items() if not isinstance(value, str)]
)
def test_any_json_in_a_number_of_the_configuration_is_refused(name, folder):
    """Any json in a number of the configuration is refused by field."""
    for value in [*ODD, "absent"]:
        values = {**CONFIG, name: value}
        if value == "absent":
            del values[name]
        (folder / "config.json").write_text(json.dumps(values))
        assert name in told(folder, "config.json"), value


@pytest.mark.parametrize("name", ["model_type", "hidden_act", "position_embedding_type"])
def test_any_json_in_a_word_of_the_configuration_is_refused(name, folder):
    """Any json in a word of the configuration is refused by field."""
    for value in ODD:
        (folder / "config.json").write_text(json.dumps({**CONFIG, name: value}))
        assert f"{name} is " in told(folder, "config.json"), value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"7",
        b'"bert"',
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b" " * (2 << 20),
        b"NaN",
    ],
)
def test_a_configuration_that_is_no_object_is_refused(data, folder):
    (folder / "config.json").write_bytes(data)
    told(folder, "config.json")


def test_heads_must_divide_the_hidden_size(folder):
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_attention_heads": 3}))
    assert "hidden_size 16 is not a multiple of num_attention_heads 3" in told(
        folder, "config.json"
    )


# Weights


def test_every_tensor_must_be_there_in_its_shape_type_and_finite(folder):
    path = folder / "model.safetensors"
    for name, whole in tensors().items():
        rest = {other: tensor for other, tensor in tensors().items() if other != name}
        poisoned = whole.copy()
        poisoned.flat[-1] = np.nan
        spoilt = {
            f"lacks the tensor {name!r}": rest,
            f"tensor {name!r} has the shape [{whole.shape[0]}, ": (
                rest | {name: np.ones((*whole.shape, 1), np.float32)}
            ),
            f"tensor {name!r} has the shape [1]": rest | {name: np.ones(1, np.float32)},
            f"tensor {name!r} is of type I32": rest | {name: whole.astype(np.int32)},
            f"tensor {name!r} contains a number that is not finite": rest | {name: poisoned},
        }
        for what, content in spoilt.items():
            save_file({key: np.ascontiguousarray(value) for key, value in content.items()}, path)
            assert what in told(folder, "model.safetensors"), name


def test_a_table_with_fewer_positions_than_promised_is_refused(folder):
    content = tensors()
    content["embeddings.position_embeddings.weight"] = np.ones((POSITIONS - 1, HIDDEN), np.float32)
    save_file(content, folder / "model.safetensors")
    assert "the shape [63, 16], but config.json says [64, 16]" in told(folder, "model.safetensors")


def headed(header: bytes, length: int | None = None, numbers: int = 64) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + bytes(numbers)


def entry(**fields: Any) -> bytes:
    return json.dumps(
        {"t": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]} | fields}
    ).encode()


HEADERS = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "a header beyond the file": headed(b"{}", 1 << 20),
    "a header of all memory": headed(b"{}", (1 << 63) - 1),
    "a header bomb": headed(b" " * (17 << 20)),
    "no JSON": headed(b"{"),
    "no object": headed(b"[]"),
    "nesting": headed(b"[" * 100_000),
    "a number for a tensor": headed(b'{"t": 5}'),
    "a size below zero": headed(entry(shape=[-4])),
    "a size that is text": headed(entry(shape="4")),
    "a size that is true": headed(entry(shape=[True])),
    "sizes that overflow": headed(entry(shape=[1 << 62, 1 << 62])),
    "numbers beyond the file": headed(entry(data_offsets=[0, 1 << 40])),
    "numbers backwards": headed(entry(data_offsets=[16, 0])),
    "too few numbers": headed(entry(data_offsets=[0, 12])),
    "no type": headed(entry(dtype=None)),
    "one offset": headed(entry(data_offsets=[0])),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_safetensors_file_that_lies_is_refused(name, folder):
    (folder / "model.safetensors").write_bytes(HEADERS[name])
    assert "safetensors" in told(folder, "model.safetensors")


def test_a_tensor_under_two_names_is_refused(folder):
    content = tensors()
    save_file(
        content | {"bert.embeddings.LayerNorm.bias": np.ones(16, np.float32)},
        folder / "model.safetensors",
    )
    assert "'embeddings.LayerNorm.bias' is listed twice" in told(folder, "model.safetensors")


def test_our_header_says_what_the_library_reads(folder):
    found = read_header(folder / "model.safetensors")
    assert {name: tensor.shape for name, tensor in found.items()} == {
        name: tensor.shape for name, tensor in load_file(folder / "model.safetensors").items()
    }
    assert read_architecture(folder / "config.json").hidden == HIDDEN


# Tokenizers


@pytest.mark.parametrize("name", list(TOKENIZER))
def test_any_json_in_a_part_of_the_tokenizer_is_taken_or_refused(name, folder):
    """Any json in a part of the tokenizer is taken or refused in one line."""
    for value in ODD[:-1]:
        (folder / "tokenizer.json").write_text(json.dumps({**TOKENIZER, name: value}))
        try:
            planned(folder)
        except DesaError as refused:
            line = str(refused)
        else:
            line = f"{folder / 'tokenizer.json'}: taken"
        assert line.startswith(f"{folder / 'tokenizer.json'}: ")
        assert "\n" not in line


def test_a_token_that_the_weights_lack_is_named_with_both_files(folder):
    """A token that the weights lack is named with both files hint."""
    vocab = {"[UNK]": 1, "cat": WORDS}
    (folder / "tokenizer.json").write_text(
        json.dumps({**TOKENIZER, "model": {**TOKENIZER["model"], "vocab": vocab}})
    )
    loaded = load_encoder(encoder(folder), threads=1, model_home=folder / "home")
    with pytest.raises(
        DesaError, match=f"gives token {WORDS}, but the weights have {WORDS}"
    ) as refused:
        loaded.encode(["cat"])
    assert refused.value.where == str(folder / "model.safetensors")
    assert "of the same model" in refused.value.hint


def _mutated(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 3))):
        place = draw.randrange(len(changed))
        if draw.random() < 0.7:
            changed[place] = draw.randrange(256)
        else:
            del changed[place : place + draw.choice((1, 8, 100))]
    return bytes(changed)


def _fuzz(folder: Path, rounds: int, seed: int) -> None:
    draw = random.Random(seed)
    files = {
        name: (folder / name).read_bytes()
        for name in ("config.json", "tokenizer.json", "model.safetensors")
    }
    for _ in range(rounds):
        name = draw.choice(list(files))
        data = files[name]
        if name == "model.safetensors" and draw.random() < 0.8:  # where the names and shapes are
            head = 8 + int.from_bytes(data[:8], "little")
            data = _mutated(data[:head], draw) + data[head:]
        else:
            data = _mutated(data, draw)
        (folder / name).write_bytes(data)
        line = ""
        try:
            planned(folder)
        except DesaError as refused:
            line = str(refused)
        assert "\n" not in line
        # Fields of one file are held against another
        assert not line or str(folder) in line or "max_tokens" in line
        (folder / name).write_bytes(files[name])


def test_broken_model_files_never_end_in_a_traceback(folder):
    _fuzz(folder, 150, 1)


@pytest.mark.slow
def test_thousands_of_broken_model_files_never_end(folder):
    """Thousands of broken model files never end in a traceback."""
    _fuzz(folder, 2000, 2)


# Ready-made graphs


def graph(path: Path, location: str) -> Path:
    """A graph whose one table lies in another file."""
    table = TensorProto(name="position_embeddings", data_type=TensorProto.FLOAT, dims=[8, 4])
    table.data_location = TensorProto.EXTERNAL
    table.external_data.add(key="location", value=location)
    node = helper.make_node("Identity", ["position_embeddings"], ["out"])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [8, 4])
    onnx.save(helper.make_model(helper.make_graph([node], "g", [], [out], [table])), path)
    return path


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/b", ".."])
def test_a_graph_that_reads_other_folders_is_refused(location, folder):
    graph(folder / "graph.onnx", location)
    what = told(folder, "graph.onnx", weights="graph.onnx")
    assert "'position_embeddings' is outside its folder" in what
    assert repr(location) in what
