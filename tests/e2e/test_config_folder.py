"""Files below --config-dir: what is allowed composes, and nothing else is even shown to Hydra."""

import os
from importlib import resources
from itertools import pairwise
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore

from desa_ray.errors import DesaError
from desa_ray.experiment.spec import CellSpec
from desa_ray.jobs.cli.app import hydra_app
from desa_ray.jobs.cli.config_folder import MAX_TOTAL, offered, read_folder
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


# What is not


CONTENTS = {
    "a package header": (
        "# @package _global_\nname: mine\n",
        ["mine.yaml:1", "package header", "remove that line"],
    ),
    "a header below a comment": (
        "# note\n\n  #  @package  hydra.job\nname: a\n",
        ["mine.yaml:3", "package header"],
    ),
    "a header after a line separator": (
        "#\u2028# @package _global_\nname: a\n",
        ["package header"],
    ),
    "a header after a byte order mark": (
        "\ufeff#@package _global_\nname: a\n",
        ["mine.yaml:1", "package header"],
    ),
    "an object to make": (
        MINE + "_target_: os.system\n",
        ["mine.yaml:5", "no such setting", "_target_"],
    ),
    "an object deeper": (
        MINE.replace("dense}", "dense}").replace("operator:", "_target_: x, operator:"),
        ["_target_"],
    ),
    "settings of Hydra": (
        MINE + "hydra: {job: {env_set: {A: b}}}\n",
        ["mine.yaml:5", "no such setting: hydra"],
    ),
    "another group's key": (MINE + "kappa: 3\n", ["mine.yaml:5", "no such setting: kappa"]),
    "the environment": (
        MINE + "fusion: ${oc.env:DESA_TEST_SECRET}\n",
        ["mine.yaml:5", "write the value itself"],
    ),
    "the environment, nested": (
        MINE + "fusion: '${${fusion.k}:x}'\n",
        ["mine.yaml:5", "one setting"],
    ),
    "the environment, spliced": (
        MINE + "fusion: '$${encoder.query_prefix}{oc.env:X}'\n",
        ["mine.yaml:5", "one setting"],
    ),
    "the environment, escaped": (
        MINE + 'fusion: "\\x24{oc.env:HOME}"\n',
        ["mine.yaml:5", "one setting"],
    ),
    "the environment, folded": (
        MINE + "fusion: >-\n  ${oc.env:\n  HOME}\n",
        ["mine.yaml:5", "one setting"],
    ),
    "the environment, decoded": (MINE + "fusion: '${oc.decode:${oc.env:HOME}}'\n", ["one setting"]),
    "the environment in a key": (
        MINE + "'${oc.env:HOME}': 1\n",
        ["mine.yaml:5", "no such setting"],
    ),
    "a computed option": (
        MINE.replace("residual}", "residual, options: {'${oc.env:A}': 1}}"),
        ["plain name"],
    ),
    "the time": (MINE + "fusion: ${now:%Y}\n", ["one setting"]),
    "Hydra's own settings": (MINE + "fusion: ${hydra:runtime.cwd}\n", ["one setting"]),
    "a reference into hydra": (MINE + "fusion: ${hydra.job.name}\n", ["no setting with a value"]),
    "a relative reference": (MINE + "fusion: ${..kappa}\n", ["one setting"]),
    "a reference to a whole group": (MINE + "fusion: ${method}\n", ["no setting with a value"]),
    "two references": (MINE + "fusion: ${fusion.k}${fusion.k}\n", ["one setting"]),
    "defaults of another group": (
        f"defaults:\n  - /hydra/job_logging: x\n{MINE}",
        ["mine.yaml:2", "job_logging"],
    ),
    "defaults that override Hydra": (
        f"defaults:\n  - override /hydra/launcher: x\n{MINE}",
        ["mine.yaml:2"],
    ),
    "defaults with a package": (
        f"defaults:\n  - desa@hydra.job\n{MINE}",
        ["mine.yaml:2", "desa@hydra.job"],
    ),
    "defaults with a package renamed": (
        f"defaults:\n  - /method@_here_: desa\n{MINE}",
        ["mine.yaml:2"],
    ),
    "optional defaults": (f"defaults:\n  - optional /method: desa\n{MINE}", ["mine.yaml:2"]),
    "defaults from above": (f"defaults:\n  - ../config\n{MINE}", ["mine.yaml:2", "../config"]),
    "computed defaults": (f"defaults:\n  - ${{oc.env:HOME}}\n{MINE}", ["mine.yaml:2"]),
    "defaults that are not there": (
        f"defaults: [nope, _self_]\n{MINE}",
        ["method nope, which is not there"],
    ),
    "defaults in a circle": (f"defaults: [mine, _self_]\n{MINE}", ["come back"]),
    "defaults that would win in silence": (f"defaults: [desa]\n{MINE}", ["add _self_"]),
    "defaults that are no list": (f"defaults: {{method: desa}}\n{MINE}", ["are a list"]),
    "a name twice": ("name: a\nname: b\n", ["mine.yaml:2", "'name' stands twice"]),
    "a second document": (f"{MINE}---\n{MINE}", ["mine.yaml:5", "a second document"]),
    "merged keys": ("x: &x {name: a}\n<<: *x\n", ["mine.yaml:2", "merge"]),
    "an alias of itself": ("name: &a [*a]\n", ["mine.yaml:1", "alias"]),
    "a tag": ("name: !!binary aGk=\n", ["mine.yaml:1", "tag"]),
    "a lone surrogate": ('name: "\\ud800"\n', ["mine.yaml:1", "UTF-8"]),
    "UTF-16": (MINE.encode("utf-16"), ["not UTF-8"]),
    "too many bytes": ("#" * (300 << 10), ["larger than 256 KiB"]),
    "a long number": ("prefix: 1" + "0" * 5000, ["a number of 5001 characters"]),
    "a wrong shape": ("name: {a: b}\n", ["mine.yaml:1", "a single value"]),
    "a list for a file": ("- name\n", ["holds a list"]),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_that_says_too_much_is_refused(name):
    content, words = CONTENTS[name]
    write("method/mine.yaml", content)
    refused("method/mine.yaml", *words)


def test_an_alias_bomb_is_refused_at_once():
    letters = "abcdefghi"
    rows = [f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]" for a, b in pairwise(letters)]
    write("method/mine.yaml", "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "\n".join(rows))
    refused("method/mine.yaml", "more than 20000 values")


def test_defaults_that_multiply_are_refused():
    write("method/f0.yaml", MINE)
    for number in range(1, 40):
        write(
            f"method/f{number}.yaml", f"defaults: [f{number - 1}, f{number - 1}, _self_]\nname: x\n"
        )
    refused("method/f39.yaml", "more than 50 files")


PLACES = {
    "a configuration of the same name": ("config.yaml", ["not in a known group"]),
    "no group": ("notes/mine.yaml", ["not in a known group", "GROUP/NAME.yaml"]),
    "deeper in a group": ("method/sub/mine.yaml", ["not in a known group"]),
    "a group in capitals": ("Method/mine.yaml", ["not in a known group"]),
    "the other ending": ("method/mine.yml", [".yaml", "rename it to mine.yaml"]),
    "the ending in capitals": ("method/mine.YAML", ["rename it to mine.yaml"]),
    "no plain name": ("method/my file.yaml", ["its name cannot be a choice"]),
    "the name of a device": (
        "method/con.yaml",
        ["its name cannot be a choice: the name of a device"],
    ),
    "a name that the platform has": (
        "method/desa.yaml",
        ["the platform brings a method desa", "another name"],
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_file_in_another_place_is_refused(name):
    path, words = PLACES[name]
    write(path, MINE)
    refused(path, *words)


@pytest.mark.parametrize("path", ["hydra/launcher/x.yaml", "hydra/x.txt", "Hydra/readme"])
def test_a_folder_of_hydras_is_refused(path):
    write(path, "a: b\n")
    refused(path.partition("/")[0], "not a known group")


def test_links_out_of_the_folder_and_what_is_no_plain_file(tmp_path):
    """Links out of the folder and what is not a plain file are refused."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine.yaml").write_text(MINE)
    write("method/a.yaml", MINE)
    (Path("my") / "method" / "mine.yaml").symlink_to(outside / "mine.yaml")
    (Path("my") / "encoder").symlink_to(outside)
    (Path("my") / "method" / "loop.yaml").symlink_to("loop.yaml")
    os.mkfifo(Path("my") / "method" / "pipe.yaml")
    refused("method/mine.yaml", "a link that leads out")
    refused("encoder", "a link that leads out")
    refused("method/loop.yaml")
    refused("method/pipe.yaml", "not a plain file")


def test_the_folder_as_a_whole_has_a_limit():
    for number in range(MAX_TOTAL // (200 << 10) + 2):
        write(f"method/m{number:02}.yaml", MINE + "#" * (200 << 10))
    with pytest.raises(DesaError, match="split the folder"):
        read_folder(Path("my"))


EXPERIMENTS = {
    "no header": ("n_refs: 3\n", ["no package header", "# @package _global_"]),
    "another package": (
        "# @package hydra\nn_refs: 3\n",
        ["x.yaml:1", "another package than _global_"],
    ),
    "two packages": (f"{GLOBAL}# @package hydra\nn_refs: 3\n", ["x.yaml:2", "another package"]),
    "the job's environment": (
        f"{GLOBAL}hydra: {{job: {{env_set: {{A: b}}}}}}",
        ["x.yaml:2", "hydra.job"],
    ),
    "where outputs go": (f"{GLOBAL}hydra: {{run: {{dir: /etc}}}}", ["x.yaml:2", "hydra.run"]),
    "the search path": (
        f"{GLOBAL}hydra: {{searchpath: ['file:///x']}}",
        ["x.yaml:2", "hydra.searchpath"],
    ),
    "another sweeper": (
        f"{GLOBAL}hydra: {{sweeper: {{_target_: x, params: {{}}}}}}",
        ["hydra.sweeper"],
    ),
    "callbacks": (
        f"{GLOBAL}hydra: {{callbacks: {{x: {{_target_: os.system}}}}}}",
        ["hydra.callbacks"],
    ),
    "a mode": (f"{GLOBAL}hydra: {{mode: '${{oc.env:A}}'}}", ["is not a mode"]),
    "a sweep over Hydra": (
        f"{GLOBAL}hydra: {{sweeper: {{params: {{hydra/launcher: basic}}}}}}",
        ["no such setting"],
    ),
    "a sweep over a package": (
        f"{GLOBAL}hydra: {{sweeper: {{params: {{method@hydra.job: a}}}}}}",
        ["no such setting"],
    ),
    "a sweep of computed values": (
        f"{GLOBAL}hydra: {{sweeper: {{params: {{tracking.experiment: 'a,$\\{{oc.env:A\\}}'}}}}}}",
        ["not a list of plain values"],
    ),
    "a sweep over an address": (
        f"{GLOBAL}hydra: {{sweeper: {{params: {{tracking.uri: x}}}}}}",
        ["command line"],
    ),
    "a sweep without end": (
        f"{GLOBAL}hydra: {{sweeper: {{params: {{n_refs: 'range(1,9)'}}}}}}",
        ["plain values"],
    ),
    "a key of no group": (f"{GLOBAL}foo: 3\n", ["x.yaml:2", "no such setting: foo"]),
    "the environment": (
        f"{GLOBAL}tracking: {{experiment: '${{oc.env:HOME}}'}}\n",
        ["x.yaml:2", "one setting"],
    ),
    "a launcher": (f"{GLOBAL}defaults:\n  - override /hydra/launcher: basic\n", ["x.yaml:3"]),
    "one group twice": (
        f"{GLOBAL}defaults:\n  - override /method: a\n  - override /method: b\n",
        ["x.yaml:4", "once"],
    ),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_that_says_too_much_is_refused(name):
    content, words = EXPERIMENTS[name]
    write("experiment/x.yaml", content)
    refused("experiment/x.yaml", *words)


@pytest.mark.parametrize(
    ("group", "key", "value"),
    [
        ("sparse", "java_home", "my/jdk"),
        ("generator", "api_key_env", "AWS_SECRET_ACCESS_KEY"),
        ("cluster", "address", "ray://far:10001"),
        ("tracking", "uri", "http://far:5000"),
        ("store", "root", "/elsewhere"),
    ],
)
def test_what_hands_over_control_is_set_on_the_command_line_only(group, key, value):
    write(f"{group}/x.yaml", f"{key}: {value}\n")
    write("experiment/x.yaml", f"{GLOBAL}{group}: {{{key}: '{value}'}}\n")
    refused(f"{group}/x.yaml:1", f"{group}.{key}=...", "command line")
    refused("experiment/x.yaml:2", f"{group}.{key}=...", "command line")
    write(f"{group}/x.yaml", f"{key}: null\n")
    write("experiment/x.yaml", GLOBAL)
    assert len(read_folder(Path("my"))) == 2


@pytest.mark.parametrize(
    "override",
    [
        "hydra.run.dir=/etc",
        "store.root=/x",
        "method@hydra.job=a",
        "+foo=1",
        "fusion.kappa=${oc.env:HOME}",
    ],
)
def test_expectations_choose_settings_of_ours_only(override):
    row = f"{{overrides: ['{override}'], metric: AP, value: 1, tolerance: 0, source: me}}"
    write("expected/x.yaml", f"expected:\n  - {row}\n")
    refused("expected/x.yaml:2")


def test_published_numbers_are_plain_data():
    write(
        "compare/x.yaml",
        "name: x\nsetting: {encoder: '${oc.env:HOME}'}\nqueries: {}\n_target_: x\n",
    )
    refused("compare/x.yaml:2", "not a plain text")
    refused("compare/x.yaml:4", "no such setting")
