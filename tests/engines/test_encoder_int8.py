"""Encoders with weights in 8 bits: close to the whole ones, bits by the text alone, names of their
own.
"""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from encoder_files import configuration, one_layer_model
from onnxruntime.quantization import QuantType, quantize_dynamic

from desa_ray.engines.bert_files import read_architecture
from desa_ray.engines.bert_onnx import convert
from desa_ray.engines.encoder import encoder_identity, load_encoder
from desa_ray.engines.model_files import ModelFiles, find_model, model_width, quantises

TEXTS = [
    "how do I sort a list",
    "the protein binds to its receptor and increases expression of genes [SEP] 25% (p < 0.05)",
    "x",
    "",
    "The cat slept in the warm sun, and the dog did not respond.",
    "inflammation was reduced in patients with heart disease while the treatment went on " * 4,
]


def encode(config, texts: list[str], home: Path, batch_size: int = 8) -> np.ndarray:
    engine = load_encoder(config, threads=1, model_home=home, batch_size=batch_size)
    return engine.encode(texts)


def independent(config, home: Path) -> None:
    alone = np.concatenate([encode(config, [text], home, 1) for text in TEXTS])
    order = [3, 0, 5, 1, 4, 2]
    for batch_size in (1, 4):
        found = encode(config, [TEXTS[row] for row in order] + TEXTS[:1] * 3, home, batch_size)
        assert np.array_equal(found[:6], alone[order]), batch_size


def test_int8_vectors_are_close_to_whole_ones(tmp_path):
    small, whole = (
        encode(configuration(name), TEXTS, tmp_path) for name in ("minilm_l6_int8", "minilm_l6")
    )
    cosines = (small * whole).sum(axis=1)
    assert cosines.min() > 0.98
    assert not np.array_equal(small, whole)


@pytest.mark.long
def test_int8_bits_depend_on_the_text_alone(tmp_path):
    config = configuration("minilm_l6_int8")
    assert not quantises(find_model(config, tmp_path))  # weights alone are in 8 bits
    independent(config, tmp_path)


def test_int8_weights_are_another_encoder(tmp_path):
    small, whole = (
        encoder_identity(configuration(name), model_home=tmp_path)
        for name in ("minilm_l6_int8", "minilm_l6")
    )
    assert small["weights_sha256"] != whole["weights_sha256"]
    assert small["tokenizer_sha256"] == whole["tokenizer_sha256"]
    files = find_model(configuration("minilm_l6_int8"), tmp_path)
    assert model_width(files) == 384
    cut = configuration("minilm_l6_int8", dimensions=64)
    assert encoder_identity(cut, model_home=tmp_path)["dimensions"] == 64


def test_dynamic_quantisation_runs_texts_one_by_one(tmp_path):
    """Its scales are those of the largest number of a batch."""
    folder = one_layer_model(tmp_path / "model")
    graph = convert(folder / "model.safetensors", read_architecture(folder / "config.json"))
    (tmp_path / "whole.onnx").write_bytes(graph)
    made = tmp_path / "quantised"
    made.mkdir()
    target, kinds = made / "model.onnx", ["MatMul"]
    quantize_dynamic(tmp_path / "whole.onnx", target, kinds, weight_type=QuantType.QInt8)
    shutil.copy(folder / "tokenizer.json", made / "tokenizer.json")
    config = configuration("minilm_l6", path=str(made), weights="model.onnx")
    assert quantises(find_model(config, tmp_path))
    independent(config, tmp_path)


def branch(kind: str) -> onnx.NodeProto:
    """A condition of which one branch holds another condition, and that one an operator `kind`."""
    x = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None)]
    node = onnx.helper.make_node(kind, ["x"], ["y"])
    for _ in range(2):
        own = onnx.helper.make_graph([node], "branch", [], x)
        node = onnx.helper.make_node("If", ["c"], ["y"], then_branch=own, else_branch=own)
    return node


@pytest.mark.parametrize("place", ["graph", "branch", "function"])
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("DynamicQuantizeLinear", True),
        ("DynamicQuantizeMatMul", True),
        ("DynamicQuantizeLSTM", True),
        ("QuantizeLinear", False),
        ("MatMulInteger", False),
    ],
)
def test_quantising_operators_are_found_wherever_they_are(kind, expected, place, tmp_path):
    node = onnx.helper.make_node(kind, ["x"], ["y"], domain="com.microsoft")
    node = branch(kind) if place == "branch" else node
    functions = []
    if place == "function":
        imports = [onnx.helper.make_opsetid("", 17)]
        functions = [onnx.helper.make_function("own", "f", ["x"], ["y"], [node], imports)]
        node = onnx.helper.make_node("f", ["x"], ["y"], domain="own")
    graph = onnx.helper.make_graph([node], "graph", [], [])
    path = tmp_path / "model.onnx"
    onnx.save(onnx.helper.make_model(graph, functions=functions), path)
    assert quantises(ModelFiles(path, tmp_path, None)) is expected
