"""What a folder for `--config-dir` may not say is refused by file and line before Hydra starts."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from desa_ray.errors import DesaError
from desa_ray.jobs.cli.config_folder import MAX_TOTAL, read_folder
from tests.e2e.test_config_folder import (
    GLOBAL,
    MINE,
    refused,
    surroundings,
    write,
)

__all__ = ["surroundings"]


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
    "defaults in a circle": (f"defaults: [mine, _self_]\n{MINE}", ["lead back"]),
    "defaults that would win in silence": (f"defaults: [desa]\n{MINE}", ["add _self_"]),
    "defaults that are no list": (f"defaults: {{method: desa}}\n{MINE}", ["are a list"]),
    "a name twice": ("name: a\nname: b\n", ["mine.yaml:2", "'name' occurs twice"]),
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
    "no plain name": ("method/my file.yaml", ["its name cannot be used as a choice"]),
    "the name of a device": (
        "method/con.yaml",
        ["its name cannot be used as a choice: the name of a device"],
    ),
    "a name that the platform has": (
        "method/desa.yaml",
        ["the platform has a method desa", "another name"],
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
    refused("method/mine.yaml", "a link to a place outside")
    refused("encoder", "a link to a place outside")
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
        ["x.yaml:1", "a package other than _global_"],
    ),
    "two packages": (f"{GLOBAL}# @package hydra\nn_refs: 3\n", ["x.yaml:2", "a package other"]),
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
