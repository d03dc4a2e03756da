"""Hostile input: values with shell signs, names that climb folders, archives, pickles and YAML
objects do nothing.
"""

import ast
import gzip
import io
import json
import pickle
import shutil
import stat
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra

from desa_ray.config import DatasetConfig, EncoderConfig, RunConfig
from desa_ray.config_check import checked
from desa_ray.data import load_collection
from desa_ray.engines.encoder import encoder_identity
from desa_ray.errors import CorruptArtifact, DesaError, Problems
from desa_ray.jobs.__main__ import main
from desa_ray.store.artifacts import Store
from desa_ray.store.keys import Key
from desa_ray.store.tables import read_array

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCES = [
    path
    for folder in ("desa_ray", "jobs", "hydra_plugins")
    for path in (REPOSITORY / folder).rglob("*.py")
]
SHELL = "a; touch pwned #$(touch pwned)`touch pwned`&&touch pwned|touch pwned>pwned'\"*?~"


# Values with shell signs


@pytest.mark.parametrize(
    "key",
    [
        "dataset.name",
        "encoder.name",
        "generator.name",
        "sparse.name",
        "sparse.heap",
        "tracking.experiment",
        "method.name",
    ],
)
def test_shell_signs_in_a_name_are_refused(key, collection, refuse, tmp_path):
    quoted = SHELL.replace("\\", "\\\\").replace('"', '\\"')
    refuse(
        [key],
        "run",
        "dataset=beir_folder",
        f"dataset.path={collection}",
        "cluster=serial",
        f'{key}="{quoted}"',
    )
    assert not list(tmp_path.rglob("pwned"))


def test_shell_signs_in_a_path_are_letters_like_any_other(
    collection, tmp_path, monkeypatch, capsys
):
    place = shutil.copytree(collection, tmp_path / SHELL.replace("/", ""))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DESA_HOME", str(tmp_path / SHELL / "home"))
    quoted = str(place).replace("\\", "\\\\").replace('"', '\\"')
    arguments = [
        "plan",
        "dataset=beir_folder",
        f'dataset.path="{quoted}"',
        "cluster=serial",
        "method=original",
    ]
    monkeypatch.setattr("sys.argv", ["desa", *arguments])
    GlobalHydra.instance().clear()
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0, capsys.readouterr().err
    assert not list(tmp_path.rglob("pwned"))


# Names that climb


def _plain() -> dict:
    """The composed default configuration as plain data."""
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    from desa_ray.experiment.spec import RUN_KEYS

    GlobalHydra.instance().clear()
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        found = OmegaConf.to_container(compose("config"), resolve=True)
    assert isinstance(found, dict)
    return {key: found[key] for key in RUN_KEYS if key in found}


@pytest.mark.parametrize(
    "name",
    ["../up", "..", "a/../../b", "/etc/passwd", "a/b", ".hidden", "a\\..\\b", "a\x00b", "a\nb"],
)
def test_names_that_climb_folders_are_refused_wherever(name):
    """Names that climb folders are refused wherever names stand."""
    plain = _plain()
    for group in ("dataset", "encoder", "generator", "method", "sparse"):
        plain[group]["name"] = name
    plain["tracking"]["experiment"] = name
    plain["method"]["channels"][0]["name"] = name
    with pytest.raises(Problems) as caught:
        checked(RunConfig, plain)
    places = (
        "dataset.name",
        "encoder.name",
        "generator.name",
        "method.name",
        "sparse.name",
        "tracking.experiment",
    )
    for place in (*places, "method.channels.0.name"):
        assert place in str(caught.value)


def test_a_split_that_climbs_reads_nothing_outside(collection, tmp_path):
    (tmp_path / "secret.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td0\t1\n")
    config = DatasetConfig(
        name="tiny", kind="beir_folder", path=str(collection), split="../../secret"
    )
    with pytest.raises(DesaError, match=r"lacks qrels/\.\./\.\./secret\.tsv"):
        load_collection(config, data_home=tmp_path)


def test_prompts_and_choices_that_climb_are_refused(collection, refuse):
    common = ["dataset=beir_folder", f"dataset.path={collection}", "cluster=serial"]
    refuse(["unknown prompt"], "run", *common, "generator.map={references: ../../../etc/passwd}")
    refuse(["method"], "run", *common, "method=../../../../etc/passwd")
    refuse(["unknown prompts"], "generate", *common, "prompts=['../references']")


# Archives


def _zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def _members(collection: Path) -> dict[str, bytes]:
    return {
        name: (collection / name).read_bytes()
        for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")
    }


def _load(path: Path, home: Path):
    return load_collection(
        DatasetConfig(name="tiny", kind="beir_folder", path=str(path)), data_home=home
    )


def test_an_honest_zip_is_read_and_nothing_is_unpacked(collection, tmp_path):
    path = _zip(tmp_path / "set.zip", _members(collection))
    before = sorted(tmp_path.rglob("*"))
    assert _load(path, tmp_path).documents.height == 3
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "name", ["../evil.txt", "/evil.txt", "a/../../evil.txt", "..\\evil.txt", "C:/evil.txt"]
)
def test_a_zip_with_names_that_lead_out_is_refused_and_writes(name, collection, tmp_path):
    """A zip with names that lead out is refused and writes nothing."""
    path = _zip(tmp_path / "set.zip", _members(collection) | {name: b"evil"})
    with pytest.raises(DesaError, match="names that point outside the archive"):
        _load(path, tmp_path)
    assert not list(tmp_path.rglob("*evil*"))


def test_a_zip_with_a_symbolic_link_is_refused(collection, tmp_path):
    path = _zip(tmp_path / "set.zip", _members(collection))
    link = zipfile.ZipInfo("qrels/dev.tsv")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(DesaError, match="symbolic links"):
        _load(path, tmp_path)


BOMB_BYTES = 80 << 20


def test_a_bomb_that_tells_its_size_is_refused_unread(collection, tmp_path):
    path = _zip(tmp_path / "set.zip", _members(collection) | {"corpus.jsonl": bytes(BOMB_BYTES)})
    assert path.stat().st_size < 1 << 20
    with pytest.raises(DesaError, match="decompression bombs"):
        _load(path, tmp_path)


def test_a_bomb_that_lies_about_its_size_stops_at_what_it_told(collection, tmp_path):
    path = _zip(tmp_path / "set.zip", _members(collection) | {"corpus.jsonl": bytes(BOMB_BYTES)})
    data = path.read_bytes().replace(struct.pack("<L", BOMB_BYTES), struct.pack("<L", 1000))
    path.write_bytes(data)
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("corpus.jsonl").file_size == 1000
    with pytest.raises(DesaError, match=r"corpus\.jsonl"):
        _load(path, tmp_path)


@pytest.mark.parametrize("packed", ["folder", "zip"])
def test_a_gzip_bomb_is_stopped_at_its_limit(packed, collection, tmp_path):
    bomb = gzip.compress(bytes(BOMB_BYTES))
    (collection / "corpus.jsonl").unlink()
    (collection / "corpus.jsonl.gz").write_bytes(bomb)
    members = {
        n: (collection / n).read_bytes()
        for n in ("corpus.jsonl.gz", "queries.jsonl", "qrels/test.tsv")
    }
    place = collection if packed == "folder" else _zip(tmp_path / "set.zip", members)
    with pytest.raises(
        DesaError, match=r"unpacks to more than 64 MiB|a line is longer than 64 MiB"
    ):
        _load(place, tmp_path)


# Pickles and YAML objects

FORBIDDEN_MODULES = {
    "pickle",
    "_pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "shelve",
    "marshal",
    "jsonpickle",
}
FORBIDDEN_CALLS = {
    *("torch.load", "pandas.read_pickle", "pd.read_pickle", "np.fromregex"),
    *(
        "yaml.load",
        "yaml.load_all",
        "yaml.unsafe_load",
        "yaml.full_load",
        "os.system",
        "os.popen",
        "eval",
        "exec",
    ),
}


def _offences(tree: ast.AST) -> Iterator[str]:
    """What a module does that could run what it reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
            )
            yield from (
                f"imports {name}" for name in names if name.partition(".")[0] in FORBIDDEN_MODULES
            )
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if called in FORBIDDEN_CALLS:
                yield f"calls {called}"
            if called in ("np.load", "numpy.load") and given.get("allow_pickle") != "False":
                yield "np.load without allow_pickle=False"
            if given.get("shell", "False") != "False":
                yield f"{called} with a shell"
            if given.get("trust_remote_code", "False") != "False":
                yield f"{called} with trust_remote_code"
            if given.get("allow_pickle", "False") != "False":
                yield f"{called} with allow_pickle"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "import pickle",
            "from pickle import loads",
            "import joblib.numpy_pickle",
            "torch.load('x')",
            "np.load(path)",
        ),
        *(
            "np.load(p, allow_pickle=True)",
            "yaml.load(text, Loader=yaml.Loader)",
            "yaml.unsafe_load(t)",
            "eval(text)",
        ),
        *("subprocess.run(c, shell=True)", "os.system(c)", "LLM(model=m, trust_remote_code=True)"),
    ],
)
def test_the_search_for_offences_finds_them(text):
    assert list(_offences(ast.parse(text)))


def test_nothing_that_reads_files_can_run_them():
    found = [
        f"{path.relative_to(REPOSITORY)}: {what}"
        for path in SOURCES
        for what in _offences(ast.parse(path.read_bytes()))
    ]
    assert len(SOURCES) > 100
    assert found == []


class _Touch:
    """Unpickling this makes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_an_array_file_that_holds_a_pickle_is_refused(tmp_path):
    """An array file that holds a pickle is refused and not unpickled."""
    made = tmp_path / "made-by-pickle"
    buffer = io.BytesIO()
    np.save(buffer, np.array([_Touch(made)], dtype=object), allow_pickle=True)
    pickle.loads(pickle.dumps(_Touch(made)))
    assert made.exists()  # the trap works
    made.unlink()
    artifact = Store(tmp_path / "store").artifact(Key("ranking", 1, {}, {}))
    artifact.write_part("docs-00000.npy", buffer.getvalue(), rows=1)
    with pytest.raises(CorruptArtifact, match=r"docs-00000.*\.npy"):
        read_array(artifact, "docs-00000.npy")
    assert not made.exists()


def test_weights_in_a_pickle_are_not_looked_at(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    made = tmp_path / "made-by-pickle"
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(_Touch(made)))
    (model / "config.json").write_text(json.dumps({"architectures": ["BertModel"]}))
    (model / "tokenizer.json").write_text("{}")
    config = EncoderConfig(name="mine", backend="onnx", model="mine", path=str(model))
    with pytest.raises(DesaError, match=r"model\.safetensors not found"):
        encoder_identity(config, model_home=tmp_path)
    assert not made.exists()


def test_an_object_in_a_users_yaml_is_refused_and_not_made(collection, refuse, tmp_path):
    made = tmp_path / "made-by-yaml"
    text = f"!!python/object/apply:os.mkdir ['{made}']"
    yaml.unsafe_load(text)
    assert made.exists()  # the trap works
    made.rmdir()
    (tmp_path / "my" / "method").mkdir(parents=True)
    (tmp_path / "my" / "method" / "mine.yaml").write_text(f"name: mine\nprompt: {text}\n")
    common = ["dataset=beir_folder", f"dataset.path={collection}", "cluster=serial"]
    refuse(["mine.yaml:2: not YAML"], "run", *common, "--config-dir", "my", "method=mine")
    assert not made.exists()
