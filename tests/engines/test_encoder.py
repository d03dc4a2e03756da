"""Identity of an encoder and the search for its files, with real weights and a hub of our own on
the loopback.
"""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from encoder_files import CONF, configuration, minilm_folder, one_layer_model
from huggingface_hub import constants

from desa_ray.config import EncoderConfig
from desa_ray.engines.encoder import encoder_identity, load_encoder
from desa_ray.errors import DesaError

HAS_TORCH = importlib.util.find_spec("sentence_transformers") is not None


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return one_layer_model(tmp_path_factory.mktemp("models") / "small")


@pytest.mark.parametrize("file", sorted(CONF.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_configuration_names_every_field_so_that_overrides(file):
    """Every configuration names every field so that overrides need no plus."""
    assert set(yaml.safe_load(file.read_text())) == {
        field.name for field in dataclasses.fields(EncoderConfig)
    }
    assert configuration(file.stem).name == file.stem


def test_identity_is_the_same_wherever_equal_files_lie(tmp_path):
    from_package = encoder_identity(configuration("minilm_l6"), model_home=tmp_path / "none")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "minilm_l6").symlink_to(minilm_folder())
    from_home = encoder_identity(
        configuration("minilm_l6", package=None), model_home=tmp_path / "home"
    )
    from_folder = encoder_identity(
        configuration("minilm_l6", path=str(minilm_folder())), model_home=tmp_path / "none"
    )
    assert from_package == from_home == from_folder
    # Published digests of these files in the package's own list (RECORD), in hexadecimal.
    assert (
        from_package["weights_sha256"]
        == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    )
    assert str(tmp_path) not in json.dumps(from_package)


def test_identity_changes_with_what_decides_vectors(small, tmp_path):
    """Identity changes with what decides vectors and with nothing else."""

    def identity(**overrides):
        return encoder_identity(
            configuration("bge_small", **{"path": str(small)} | overrides), model_home=tmp_path
        )

    reference = identity()
    assert identity(query_prefix="", scoring="float32", block_size=7, package="x") == reference
    heads = one_layer_model(tmp_path / "heads", num_attention_heads=6)
    weights = one_layer_model(
        tmp_path / "weights", edit=lambda t: t["embeddings.LayerNorm.bias"].__iadd__(1)
    )
    noted = one_layer_model(tmp_path / "noted", transformers_version="9")
    assert identity(path=str(noted)) == reference
    changed = [
        identity(pooling="mean"),
        identity(max_tokens=128),
        identity(model="other/model"),
        identity(revision="0" * 40),
        identity(path=str(heads)),
        identity(path=str(weights)),
    ]
    assert len({json.dumps(value) for value in [reference, *changed]}) == 1 + len(changed)


def test_identity_and_config_load_no_runtime(small):
    program = (
        "import sys; from pathlib import Path; from encoder_files import configuration;from"
        " desa_ray.engines.encoder import"
        f" encoder_identity;encoder_identity(configuration('minilm_l6', path={str(small)!r}),"
        " model_home=Path('none'));print({'onnxruntime', 'torch', 'onnx', 'tokenizers'} &"
        " set(sys.modules))"
    )
    assert _python(program).stdout.strip() == "set()"


@pytest.mark.parametrize("name", ["bge_small", "contriever"])
def test_paper_encoders_load_from_a_local_folder(name, small, tmp_path):
    config = configuration(name, backend="onnx", path=str(small))
    assert encoder_identity(config, model_home=tmp_path)["max_tokens"] == 512
    encoder = load_encoder(config, threads=1, model_home=tmp_path)
    assert encoder.encode(["a text"]).shape == (1, encoder.dimension) == (1, 384)


def test_missing_weights_are_one_quick_error_that_lists(tmp_path, monkeypatch):
    """Missing weights are one quick error that lists every place."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    start = time.monotonic()
    with pytest.raises(DesaError) as caught:
        encoder_identity(configuration("bge_small", package="no-such-package"), model_home=tmp_path)
    assert time.monotonic() - start < 2
    text = str(caught.value)
    for part in (
        "model.safetensors not found",
        "package no-such-package (not installed)",
        str(tmp_path / "bge_small"),
        "BAAI/bge-small-en-v1.5 at 5c38ec7c405e",
        "HF_HUB_OFFLINE",
        "encoder.path",
    ):
        assert part in text
    assert "\n" not in text


def test_an_explicit_path_never_falls_back_to_other_weights(tmp_path):
    with pytest.raises(
        DesaError, match=r"not found; looked in folder .*absent \(encoder.path\) \(set encoder.path"
    ):
        encoder_identity(
            configuration("minilm_l6", path=str(tmp_path / "absent")), model_home=tmp_path
        )


@pytest.mark.parametrize("missing", ["tokenizer.json", "config.json"])
def test_a_folder_without_tokenizer_or_configuration_is_refused(missing, small, tmp_path):
    for file in small.iterdir():
        if file.name != missing:
            (tmp_path / file.name).symlink_to(file)
    with pytest.raises(DesaError, match=f"{missing} not found"):
        encoder_identity(configuration("minilm_l6", path=str(tmp_path)), model_home=tmp_path)


@pytest.mark.parametrize(
    ("config", "overrides", "message"),
    [
        ({"model_type": "roberta"}, {}, "model_type is 'roberta'"),
        ({"hidden_act": "relu"}, {}, "hidden_act is 'relu'"),
        ({"layer_norm_eps": None}, {}, "not a BERT configuration"),
        ({}, {"max_tokens": 513}, "max_tokens=513, but .* has 512 positions"),
    ],
)
def test_what_the_conversion_would_compute_wrongly_is_refused(
    config, overrides, message, small, tmp_path
):
    """What the conversion would compute wrongly is refused at plan time."""
    for file in ("model.safetensors", "tokenizer.json"):
        (tmp_path / file).symlink_to(small / file)
    values = json.loads((small / "config.json").read_text()) | config
    (tmp_path / "config.json").write_text(
        json.dumps({k: v for k, v in values.items() if v is not None})
    )
    with pytest.raises(DesaError, match=message):
        encoder_identity(
            configuration("bge_small", path=str(tmp_path), **overrides), model_home=tmp_path
        )


def test_the_hub_cache_is_used_without_network(small, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    config = configuration("bge_small")
    snapshot = tmp_path / "models--BAAI--bge-small-en-v1.5" / "snapshots" / str(config.revision)
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(small)
    local = configuration("bge_small", path=str(small))
    assert encoder_identity(config, model_home=tmp_path) == encoder_identity(
        local, model_home=tmp_path
    )


def test_the_hub_is_asked_for_the_pinned_revision_and_no_other(small, tmp_path):
    """A hub of our own: what it serves arrives, and what it lacks is an error without retries."""
    asked = []
    config = configuration("bge_small")

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self):
            asked.append(self.path)
            prefix = f"/{config.model}/resolve/{config.revision}/"
            file = small / self.path.removeprefix(prefix)
            if not self.path.startswith(prefix) or not file.is_file():
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound")
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("ETag", f'"{file.name}"')
            self.send_header("X-Repo-Commit", str(config.revision))
            self.send_header("Content-Length", str(file.stat().st_size))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(file.read_bytes())

        do_GET = do_HEAD  # noqa: N815  (the name that http.server calls)

        def log_message(self, *_: object):
            pass

    program = (
        "import json; from pathlib import Path; from encoder_files import configuration;"
        "from desa_ray.engines.encoder import encoder_identity;"
        "print(json.dumps(encoder_identity(configuration('bge_small'{}), model_home=Path('none'))))"
    )
    server = HTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HUB_OFFLINE": "0",
        "HF_HOME": str(tmp_path),
    }
    try:
        done = _python(program.format(""), **settings)
        absent = _python(program.format(", weights='absent.safetensors'"), **settings)
    finally:
        server.shutdown()
        server.server_close()
    local = encoder_identity(configuration("bge_small", path=str(small)), model_home=tmp_path)
    assert json.loads(done.stdout) == local, done.stderr
    assert {path.split("/")[4] for path in asked if "/resolve/" in path} == {config.revision}
    assert "absent.safetensors not found" in absent.stderr
    assert "no such file" in absent.stderr
    unreachable = _python(program.format(", weights='absent.safetensors'"), **settings)
    assert "ConnectError" in unreachable.stderr
    assert "DesaError" in unreachable.stderr


@pytest.mark.skipif(HAS_TORCH, reason="the gpu extra is installed")
def test_a_missing_torch_engine_names_the_extra_that_brings_it(tmp_path):
    for attempt in (encoder_identity, lambda *a, **k: load_encoder(*a, threads=1, **k)):
        with pytest.raises(DesaError, match=r"not installed \(install the gpu extra"):
            attempt(configuration("contriever"), model_home=tmp_path)


@pytest.mark.skipif(not HAS_TORCH, reason="needs the gpu extra")
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_torch_and_onnx_compute_the_same_vectors(pooling, tmp_path):
    overrides = {"path": str(minilm_folder()), "pooling": pooling, "block_size": 4}
    texts = ["a short text", "query [SEP] reference", "", "many words " * 300, "a fifth text"]
    onnx, torch = (
        load_encoder(
            configuration("minilm_l6", backend=backend, **overrides), threads=1, model_home=tmp_path
        )
        for backend in ("onnx", "sentence_transformers")
    )
    assert abs(onnx.encode(texts) - torch.encode(texts)).max() < 1e-6
    assert (torch.encode(texts)[:4] == torch.encode(texts[:4])).all()
    identity = encoder_identity(
        configuration("minilm_l6", backend="sentence_transformers", **overrides),
        model_home=tmp_path,
    )
    assert identity["block_size"] == torch.block_size == 4


def _python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    here = Path(__file__).resolve()
    paths = os.pathsep.join([str(here.parent), str(here.parents[2])])
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": paths} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_ready_made_graph_takes_no_more_tokens(tmp_path):
    """A ready made graph takes no more tokens than it has positions."""
    assert (
        encoder_identity(configuration("minilm_l3", max_tokens=512), model_home=tmp_path)[
            "max_tokens"
        ]
        == 512
    )
    with pytest.raises(
        DesaError, match=r"max_tokens=513, but .*paraphrase-MiniLM-L3-v2 has 512 positions .*lower"
    ):
        encoder_identity(configuration("minilm_l3", max_tokens=513), model_home=tmp_path)
