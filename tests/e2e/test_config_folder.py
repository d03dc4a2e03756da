"""Files below --config-dir: what is allowed composes, and nothing else is even shown to Hydra."""

from importlib import resources
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore

from desa_ray.errors import DesaError
from desa_ray.experiment.spec import CellSpec
from desa_ray.jobs.cli.app import hydra_app
from desa_ray.jobs.cli.config_folder import offered, read_folder
from desa_ray.jobs.cli.settings import spec_of

SECRET = "hush-5f1d"
CHANNELS = "channels:\n  - {name: dense, kind: dense, operator: residual}\n"
MINE = f"name: mine\nprompt: references\n{CHANNELS}"
GLOBAL = "# @package _global_\n"


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DESA_TEST_SECRET", SECRET)


def write(path: str, content: str | bytes) -> Path:
    file = Path("my") / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def composed(*arguments: str) -> CellSpec:
    """The one cell that `desa run` would run."""
    orders: list[CellSpec] = []
    hydra_app(
        "run", "config", list(arguments), lambda config: orders.append(spec_of(config, Path()))
    )
    return orders[0]


def refused(path: str, *words: str) -> None:
    """Reading the folder says each of the words in one line that begins with the file."""
    with pytest.raises(DesaError) as caught:
        read_folder(Path("my"))
    lines = [line for line in str(caught.value).splitlines() if line.startswith(f"my/{path}")]
    assert lines, str(caught.value)
    for word in words:
        assert any(word in line for line in lines), (word, lines)
    assert SECRET not in str(caught.value)


# What is allowed


def test_a_method_an_encoder_and_a_generator_of_ones_own():
    write("method/mine.yaml", MINE.replace("residual}", 'residual, weight: "1/2", options: {}}'))
    write("encoder/e.yaml", "name: e\nbackend: onnx\nmodel: a/b\npath: /models/e\npooling: cls\n")
    write(
        "generator/g.yaml",
        "name: g\nkind: openai\nmodel: m\nbase_url: http://127.0.0.1:1/v1\nmap: {hyde: mugi}\n",
    )
    config = composed("--config-dir", "my", "method=mine", "encoder=e", "generator=g").config
    assert (config.method.name, str(config.method.channels[0].weight)) == ("mine", "1/2")
    assert (config.encoder.path, config.generator.map) == ("/models/e", {"hyde": "mugi"})


@pytest.mark.parametrize(
    "flag", [["--config-dir", "my"], ["--config-dir=my"], ["-cd", "my"], ["--config-d", "my"]]
)
@pytest.mark.parametrize("first", [True, False])
def test_the_flag_in_any_spelling_and_place(flag, first):
    write("method/mine.yaml", MINE)
    arguments = [*flag, "method=mine"] if first else ["method=mine", *flag]
    assert composed(*arguments).config.method.name == "mine"
    write("method/mine.yaml", MINE + "_target_: os.getcwd\n")
    with pytest.raises(DesaError, match="_target_"):
        composed(*arguments)


def test_files_build_on_others_and_refer_to_settings():
    write("method/child.yaml", "defaults: [desa, _self_]\nname: child\nprefix: ${fusion.k}\n")
    write("method/grand.yaml", "defaults: [child, _self_]\nname: grand\n")
    method = composed("--config-dir", "my", "method=grand", "fusion.k=7").config.method
    assert (method.name, method.prefix, len(method.channels)) == ("grand", 7, 2)


def test_experiments_set_settings_and_say_what_they_sweep(capsys):
    write(
        "experiment/one.yaml",
        GLOBAL + "n_refs: 3\nfusion: {kappa: 1/3}\ntracking: {experiment: 'x-${dataset.name}'}",
    )
    found = composed("--config-dir", "my", "+experiment=one").config
    assert (found.n_refs, str(found.fusion.kappa), found.tracking.experiment) == (
        3,
        "1/3",
        "x-demo",
    )
    sweep = (
        "hydra: {mode: MULTIRUN, sweeper: {params: {method: 'original, desa', fusion.kappa:"
        " '2,20'}}}\n"
    )
    write(
        "experiment/own.yaml",
        f"# note\n{GLOBAL}defaults:\n  - override /encoder: minilm_l3\n{sweep}",
    )
    write("experiment/more.yaml", f"{GLOBAL}defaults: [demo, _self_]\nn_refs: 1\n")
    for name, wanted in (("own", "fusion.kappa: 2,20"), ("more", "original,shared,dense_only")):
        hydra_app(
            "run",
            "config",
            ["--cfg", "hydra", "--config-dir", "my", f"+experiment={name}"],
            lambda _: None,
        )
        assert wanted in capsys.readouterr().out


def test_expectations_of_ones_own_are_read(refuse):
    row = (
        "{overrides: [method=nope, 'evaluation.measures=[AP,R@100]'], metric: AP, value: 1,"
        " tolerance: 0, source: me}"
    )
    for header in ("", GLOBAL):
        write("expected/own.yaml", f"{header}expected:\n  - {row}\n")
        refuse(["no method 'nope'"], "verify", "--config-dir", "my", "expected=own")


def test_all_of_our_own_files_pass_under_other_names():
    """But the group `parity`: it speaks of all settings, which people do in experiments."""
    conf = Path(str(resources.files("desa_ray.conf")))
    ours = [file for file in conf.glob("*/*.yaml") if file.parent.name != "parity"]
    for file in ours:
        write(f"{file.parent.name}/my_{file.name}", file.read_bytes())
    assert len(read_folder(Path("my"))) == len(ours) > 60


def test_a_parity_of_ones_own_is_refused(refuse):
    write("parity/mine.yaml", GLOBAL + "fusion: {replay: release}\n")
    refuse(["parity/mine.yaml: ", "experiment"], "run", "--config-dir", "my", "parity=mine")


def test_what_is_no_yaml_and_what_is_hidden_is_passed_over():
    write("method/mine.yaml", b"\xef\xbb\xbf" + MINE.encode())  # a byte order mark is not a text
    write("README.md", "${oc.env:DESA_TEST_SECRET}")
    write("notes/texts.jsonl", "!!evil")
    write(".git/config.yaml", "!!evil")
    write("method/.hidden.yaml", "!!evil")
    assert [file.name for file in read_folder(Path("my"))] == ["mine"]


def test_links_within_the_folder_are_followed():
    write("..data/method/mine.yaml", MINE)  # as Kubernetes mounts a ConfigMap
    (Path("my") / "method").symlink_to("..data/method")
    assert composed("--config-dir", "my", "method=mine").config.method.name == "mine"


def test_hydra_composes_what_was_checked_whatever_becomes():
    """Hydra composes what was checked whatever becomes of the files."""
    file = write("method/mine.yaml", MINE)
    files = read_folder(Path("my"))
    file.write_text("# @package hydra\n_target_: os.getcwd\n")
    with offered(files):
        assert composed("method=mine").config.method.name == "mine"
    assert "mine.yaml" not in ConfigStore.instance().repo["method"]
    with pytest.raises(DesaError, match="no method 'mine'"):
        composed("method=mine")
