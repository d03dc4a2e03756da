"""The generators of conf/, and a folder that looks like a model."""

from pathlib import Path

import yaml
from pydantic import TypeAdapter

from desa_ray.config import GeneratorConfig

CONF = Path(__file__).resolve().parents[2] / "conf" / "generator"


def composed(name: str) -> GeneratorConfig:
    return TypeAdapter(GeneratorConfig).validate_python(
        yaml.safe_load((CONF / f"{name}.yaml").read_text())
    )


def model_folder(folder: Path, *, weights: bytes = b"w" * 64) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"dtype": "bfloat16"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    (folder / "model.safetensors").write_bytes(weights)
    return folder
