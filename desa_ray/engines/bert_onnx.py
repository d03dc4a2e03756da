"""A BERT encoder's safetensors as one ONNX graph, without torch: token ids in, one hidden state per
token out, or the logits of its masked-language-model head.

Pooling stays outside the graph on purpose: onnxruntime sums over tokens in an order that depends on
the batch, while the hidden state of a token depends on its text and padded length alone
(tests/engines/test_encoder_onnx.py). Only standard operators; onnxruntime fuses biases and
activations by itself.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors import SafetensorError
from safetensors.numpy import load_file

from desa_ray.engines.bert_files import (
    DECODER,
    OTHER,
    Architecture,
    check_weights,
    plain_name,
)
from desa_ray.errors import DesaError

OPSET, IR_VERSION = 23, 10  # the first opset with Attention
IDS, MASK, HIDDEN = "input_ids", "attention_mask", "last_hidden_state"
LOGITS = "logits"


def convert(weights: Path, architecture: Architecture, *, head: bool = False) -> bytes:
    """The serialised graph of a BERT encoder.

    Inputs `input_ids`, `attention_mask`: int64 [batch, length]. Output `last_hidden_state`: float32
    [batch, length, hidden]; or, with `head`, `logits`: float32 [batch, length, words]. Equal
    weights and architecture give equal bytes.

    Raises:
        DesaError: as `check_weights`, or too large for a graph.
    """
    check_weights(weights, architecture, head=head)
    try:
        tensors = load_file(weights)
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        what = f"not a readable safetensors file: {' '.join(str(error).split())}"
        raise DesaError(what, where=str(weights), hint="fetch it again") from None
    try:
        return _Bert(tensors, architecture).model(head).SerializeToString(deterministic=True)
    except ValueError as error:  # protobuf holds 2 GiB
        raise DesaError(f"cannot be converted: {error}", where=str(weights), hint=OTHER) from None


class _Bert:
    """Writes the graph node by node; every method returns the name of the value it computes.

    Shapes: B texts, T tokens, D hidden size.
    """

    def __init__(self, tensors: dict[str, np.ndarray], architecture: Architecture):
        self.tensors = {plain_name(name): tensor for name, tensor in tensors.items()}
        self.architecture = architecture
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        output = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants[name] = value
        return name

    def weight(self, name: str) -> np.ndarray:
        return self.tensors[name].astype(np.float32)

    def linear(self, x: str, name: str) -> str:
        matrix = self.constant(
            f"{name}.weight", np.ascontiguousarray(self.weight(f"{name}.weight").T)
        )
        return self.node(
            "Add",
            self.node("MatMul", x, matrix),
            self.constant(f"{name}.bias", self.weight(f"{name}.bias")),
        )

    def layer_norm(self, x: str, name: str) -> str:
        scale, bias = (
            self.constant(f"{name}.{part}", self.weight(f"{name}.{part}"))
            for part in ("weight", "bias")
        )
        return self.node(
            "LayerNormalization",
            x,
            scale,
            bias,
            axis=-1,
            epsilon=self.architecture.layer_norm_epsilon,
        )

    def embeddings(self) -> str:
        """Word + position + segment 0, normalised: [B, T, D]."""
        words = self.constant("words", self.weight("embeddings.word_embeddings.weight"))
        places = self.weight("embeddings.position_embeddings.weight")
        places = self.constant(
            "places", places + self.weight("embeddings.token_type_embeddings.weight")[0]
        )
        length = self.node("Shape", IDS, start=1, end=2)
        used = self.node("Slice", places, self.constant("zero", np.array([0])), length)
        return self.layer_norm(
            self.node("Add", self.node("Gather", words, IDS), used), "embeddings.LayerNorm"
        )

    def visible_tokens(self) -> str:
        """The mask as bool [B, 1, T, T], the same for every query token: onnxruntime does not
        broadcast that axis.
        """
        axes, one = (
            self.constant("head_and_query_axes", np.array([1, 2])),
            self.constant("one", np.array([1])),
        )
        keys = self.node("Unsqueeze", self.node("Cast", MASK, to=TensorProto.BOOL), axes)
        queries = self.node(
            "Concat", one, one, self.node("Shape", IDS, start=1, end=2), one, axis=0
        )
        return self.node("Expand", keys, queries)

    def layer(self, x: str, name: str, visible: str) -> str:
        heads = self.architecture.heads
        queries, keys, values = (
            self.linear(x, f"{name}.attention.self.{part}") for part in ("query", "key", "value")
        )
        context = self.node(
            "Attention", queries, keys, values, visible, q_num_heads=heads, kv_num_heads=heads
        )
        attended = self.node("Add", self.linear(context, f"{name}.attention.output.dense"), x)
        x = self.layer_norm(attended, f"{name}.attention.output.LayerNorm")
        widened = self.node("Gelu", self.linear(x, f"{name}.intermediate.dense"))
        return self.layer_norm(
            self.node("Add", self.linear(widened, f"{name}.output.dense"), x),
            f"{name}.output.LayerNorm",
        )

    def logits(self, x: str) -> str:
        """The head's score of every word at every token: [B, T, words]."""
        name = "cls.predictions.transform"
        x = self.layer_norm(self.node("Gelu", self.linear(x, f"{name}.dense")), f"{name}.LayerNorm")
        tied = "embeddings.word_embeddings.weight"
        words = self.weight(DECODER if DECODER in self.tensors else tied)
        scores = self.node("MatMul", x, self.constant("decoder", np.ascontiguousarray(words.T)))
        return self.node(
            "Add", scores, self.constant("decoder.bias", self.weight("cls.predictions.bias"))
        )

    def model(self, head: bool) -> onnx.ModelProto:
        visible, x = self.visible_tokens(), self.embeddings()
        for number in range(self.architecture.layers):
            x = self.layer(x, f"encoder.layer.{number}", visible)
        output, width = HIDDEN, self.architecture.hidden
        if head:
            x, output = self.logits(x), LOGITS
            width = len(self.tensors["cls.predictions.bias"])
        self.nodes.append(helper.make_node("Identity", [x], [output]))
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
            for name in (IDS, MASK)
        ]
        shape = ["batch", "length", width]
        graph = helper.make_graph(
            self.nodes,
            "bert",
            inputs,
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )
