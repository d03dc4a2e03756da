"""Static vectors: the mean of token vectors, as WordLlama's own code makes it; what is not one
table is refused.
"""

import json
import shutil
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pytest
from encoder_files import configuration
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from wordllama.inference import WordLlamaInference

from desa_ray.engines.encoder import check_encoder, encoder_identity, load_encoder
from desa_ray.engines.gpu_engines import gpu_engines
from desa_ray.errors import DesaError

TEXTS = [
    "how do I sort a list",
    "Sorting lists in Python.",
    "The cat slept in the warm sun.",
    "naïve T-cells — 細胞 — did not respond [SEP] (p < 0.05)",
    "x",
    " ".join(["inflammation was reduced"] * 400),
]


def packaged(name: str) -> Path:
    own = distribution("wordllama")
    return Path(str(own.locate_file(next(f for f in own.files or () if f.name == name))))


WEIGHTS = packaged("l2_supercat_256.safetensors")
TOKENIZER = packaged("l2_supercat_tokenizer_config.json")


def encoder(home: Path, **more: object):
    return load_encoder(configuration("wordllama", **more), threads=1, model_home=home)


@pytest.mark.parametrize("dimensions", [None, 64])
def test_vectors_equal_those_of_wordllama(dimensions, tmp_path):
    (table,) = load_file(WEIGHTS).values()
    own = WordLlamaInference(table[:, :dimensions], Tokenizer.from_file(str(TOKENIZER)))
    expected = own.embed(TEXTS, norm=True)
    found = encoder(tmp_path, dimensions=dimensions).encode(TEXTS)
    assert found.shape == (len(TEXTS), dimensions or 256)
    assert np.abs(found - expected).max() < 1e-5


def test_static_bits_depend_on_the_text_alone(tmp_path):
    engine = encoder(tmp_path)
    alone = np.concatenate([engine.encode([text]) for text in TEXTS])
    order = [4, 2, 0, 5, 1, 3]
    assert np.array_equal(engine.encode([TEXTS[row] for row in order]), alone[order])


def test_related_texts_are_closer(tmp_path):
    query, related, foreign = encoder(tmp_path).encode(TEXTS[:3])
    assert query @ related > query @ foreign + 0.2


def write(folder: Path, **tensors: np.ndarray) -> Path:
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    return folder


def settings(folder: Path, **more: object):
    given = {"path": str(folder), "weights": None, "tokenizer": None, "package": None} | more
    return configuration("wordllama", **given)


def test_a_folder_of_ones_own_is_read(tmp_path):
    """Hand-made: token 1 is never given, so a text of one token has that token's vector."""
    table = np.random.default_rng(0).normal(size=(32_000, 3)).astype(np.float32)
    config = settings(write(tmp_path / "own", embeddings=table))
    ids = Tokenizer.from_file(str(TOKENIZER)).encode("cat", add_special_tokens=False).ids
    engine = load_encoder(config, threads=1, model_home=tmp_path)
    pooled = table[ids].astype(np.float64).mean(axis=0)
    assert np.allclose(engine.encode(["cat"])[0], pooled / np.linalg.norm(pooled), atol=1e-6)
    average = table.astype(np.float64).mean(axis=0)
    assert np.allclose(engine.encode([""])[0], average / np.linalg.norm(average), atol=1e-6)


def test_files_that_are_not_one_table_are_refused(tmp_path):
    table = np.ones((4, 3), np.float32)
    two = settings(write(tmp_path / "two", embeddings=table, weights=np.ones(4, np.float32)))
    with pytest.raises(DesaError, match=r"holds embeddings \[4, 3\], weights \[4\]"):
        encoder_identity(two, model_home=tmp_path)
    small = settings(write(tmp_path / "small", embeddings=table))
    engine = load_encoder(small, threads=1, model_home=tmp_path)
    with pytest.raises(DesaError, match="but the table has 4"):
        engine.encode(["cat"])
    with pytest.raises(DesaError, match=r"dimensions=5, but .* has 3"):
        encoder_identity(settings(tmp_path / "small", dimensions=5), model_home=tmp_path)
    with pytest.raises(DesaError, match=r"encoder\.engine.*engine=cpu"):
        encoder_identity(settings(tmp_path / "small", engine="gpu"), model_home=tmp_path)
    assert gpu_engines(small, tmp_path) == ()
    (tmp_path / "small" / "tokenizer.json").write_text(json.dumps({}))
    with pytest.raises(DesaError, match="not a readable tokenizer"):
        check_encoder(small, model_home=tmp_path)


def test_the_identity_holds_what_decides_static_vectors(tmp_path):
    def identity(**more: object) -> str:
        found = encoder_identity(configuration("wordllama", **more), model_home=tmp_path)
        return json.dumps(found, sort_keys=True)

    changes = [{"max_tokens": 16}, {"dimensions": 64}, {"model": "another"}]
    assert len({identity(), *(identity(**change) for change in changes)}) == 4
    copied = tmp_path / "copy"
    copied.mkdir()
    shutil.copy(WEIGHTS, copied / WEIGHTS.name)
    assert identity(path=str(copied)) == identity()
