"""Plug-ins: what identifies one, that only named ones are loaded, and what is refused."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from desa_ray.cluster.node_facts import facts
from desa_ray.config import ChannelConfig, GeneratorConfig, MethodConfig
from desa_ray.core.operators import DENSE_OPERATORS
from desa_ray.engines.prompts import load_prompt, prompt_names
from desa_ray.errors import DesaError
from desa_ray.experiment.methods import check_method
from desa_ray.jobs.cli.checkup import plug_ins
from desa_ray.plugins import offered, plugins
from desa_ray.stages.plugged import operator_of, operator_plugin, own_names, rule_of
from tests.plugins.conftest import EXAMPLE, forget

RECORDED = GeneratorConfig(name="recorded", kind="recorded")
OPERATORS = "[desa_ray.operators]"


def method(operator: str, **more) -> MethodConfig:
    channel = ChannelConfig(name="dense", kind="dense", operator=operator)
    return MethodConfig(name="mine", channels=(channel,), **more)


def found(operator: str, **more) -> str:
    return "\n".join(map(str, check_method(method(operator, **more), RECORDED, 5)))


def test_a_plug_in_is_loaded_only_when_named(installed):
    assert [*plugins("operators")] == ["my_residual", "my_root"]
    ((_, names),) = offered()
    assert sorted(names) == [
        *("encoders: my_hashes", "fusion: my_rrf", "generators: my_echo"),
        *("operators: my_residual", "operators: my_root", "prompts: my_prompt"),
        "readers: my_notes",
    ]
    (line,) = plug_ins(own_names())
    assert line.status == "ok"
    assert line.what.startswith("desa-example 1.0 (")
    assert "my_prompt" in prompt_names()
    assert not [name for name in sys.modules if name.startswith("desa_example")]
    operator_of("dense", "my_residual")
    assert "desa_example.operators" in sys.modules
    assert "desa_example.fusion" not in sys.modules


def test_a_changed_helper_module_changes_the_identity(installed):
    before = operator_plugin("dense", "my_residual")
    assert before is not None
    assert (before["distribution"], before["version"]) == ("desa-example", "1.0")
    forget()
    assert operator_plugin("dense", "my_residual") == before
    (installed / "desa_example" / "numbers.py").write_text("GAMMA = 2.0\n")
    forget()
    after = operator_plugin("dense", "my_residual")
    assert after is not None
    assert after == {**before, "sha256": after["sha256"]} != before
    with pytest.raises(DesaError, match=rf"is desa-example 1.0 \({after['sha256'][:12]}\) here"):
        operator_of("dense", "my_residual", before)
    (line,) = facts({}, [], [], {"operators: my_root": before})["plugins"]
    here, there = (f"desa-example 1.0 ({own['sha256'][:12]})" for own in (after, before))
    assert line == f"plug-in operators: my_root is {here}, not {there}"
    gone = {"operators: gone": before}
    assert "operators: gone of desa-example 1.0" in facts({}, [], [], gone)["plugins"][0]


def test_an_editable_one_is_its_source_tree(tmp_path, monkeypatch):
    """Modules and package data count; results, caches and documents beside the code do not."""
    source, place = tmp_path / "source", tmp_path / "site"
    package = source / "src" / "mine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("OPERATOR = None\n")
    (package / "table.csv").write_text("1,2\n")
    entry = place / "mine-1.dist-info"
    entry.mkdir(parents=True)
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (entry / "entry_points.txt").write_text(f"{OPERATORS}\nmine_op = mine:OPERATOR\n")
    url = {"url": source.as_uri(), "dir_info": {"editable": True}}
    (entry / "direct_url.json").write_text(json.dumps(url))
    monkeypatch.syspath_prepend(str(place))

    def identity() -> str:
        forget()
        return plugins("operators")["mine_op"].identity["sha256"]

    before = identity()
    for name, text in (
        ("outputs/run/records.csv", "x"),
        ("README.md", "x"),
        ("src/mine/__pycache__/x.pyc", "x"),
        (".venv/lib/x.py", "x"),
    ):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
        assert identity() == before, name
    seen = {before}
    for name in ("src/mine/table.csv", "src/mine/helper.py", "src/other.py", "script.py"):
        (source / name).write_text("9\n")
        seen.add(identity())
    assert len(seen) == 5
    (package / "elsewhere").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(DesaError, match="a link to a folder"):
        identity()
    forget()


def test_names_that_do_not_exist_or_are_taken(installed, offering):
    assert "did you mean my_residual?" in found("my_residul")
    assert "is a SparseOperator, and a dense channel takes a DenseOperator" in found("my_root")
    assert "unknown fusion 'my_rff'" in found("my_residual", fusion="my_rff", prompt="references")
    assert found("my_residual", fusion="my_rrf", prompt="my_prompt") == ""
    offering("two", "X = 1\n", OPERATORS, "original = two:X")
    assert "the platform itself uses that name" in found("original")
    (line, _) = sorted(plug_ins(own_names()), key=lambda one: one.status)
    assert (line.status, line.hint) == ("fail", "rename the entry point")
    offering("three", "X = 1\n", OPERATORS, "my_root = three:X")
    with pytest.raises(DesaError, match="also offers that name"):
        plugins("operators")
    offering("four", "X = 1\n", OPERATORS, "../x = four:X")
    with pytest.raises(DesaError, match="not a plain name"):
        plugins("operators")


BROKEN = """
import numpy as np
from desa_ray.core.operators import DenseOperator, SparseHits, SparseOperator
from desa_ray.core.fusion.depth import Replay
from desa_ray.core.fusion.registry import plain_fusion

def nan(vectors):
    return vectors["query"] * np.nan, {}

def error(vectors):
    raise KeyError("gone")

def scores(hits):
    return SparseHits(hits["query"].docs, np.full(hits["query"].docs.size, np.inf))

NAN = DenseOperator(nan, ("query",))
ERROR = DenseOperator(error, ("query",))
ONE = DenseOperator(lambda vectors: vectors["query"], ("query",))
UNKNOWN = DenseOperator(nan, ("question",))
ITSELF = DenseOperator(lambda vectors: (vectors["query"], {}), ("query",))
SCORES = SparseOperator(scores, ("query",))
RULE = plain_fusion(lambda channels, *_: np.repeat(channels[0], 2), None)
"""
ENTRIES = [
    f"{name.lower()} = broken:{name}"
    for name in ("NAN", "ERROR", "ONE", "UNKNOWN", "ITSELF", "SCORES")
]


def test_what_a_plug_in_returns_is_checked(offering):
    offering("broken", BROKEN, OPERATORS, *ENTRIES, "[desa_ray.fusion]", "rule = broken:RULE")
    query = np.eye(3, 8, dtype=np.float32)
    for name, words in (
        ("nan", "not finite or not of length one"),
        ("error", "failed: KeyError: 'gone'"),
        ("one", "not return a pair of float32 vectors and diagnostics"),
    ):
        with pytest.raises(DesaError, match=words) as caught:
            operator_of("dense", name).function({"query": query})
        assert str(caught.value).startswith(f"plug-in {name} (desa_ray.operators, broken): ")
    assert "asks for unknown texts question" in found("unknown")
    fresh, _ = operator_of("dense", "itself").function({"query": query})
    fresh[0] = 0  # as a fallback is written
    assert query[0].sum() == 1
    hits = DENSE_OPERATORS  # anything but a hit list
    with pytest.raises(DesaError, match="failed: KeyError"):
        operator_of("sparse", "scores").function(hits)
    with pytest.raises(DesaError, match="returned a document twice"):
        rule_of("rule").order([np.arange(3, dtype=np.int32)], [1], 60, None)


def test_a_module_that_cannot_be_imported_is_one_line(offering):
    offering("bad", "raise OSError('no\\nlibrary')\n", OPERATORS, "bad = bad:X")
    assert found("bad") == (
        "plug-in bad (desa_ray.operators, bad): cannot be loaded: OSError: no library"
        " (correct or reinstall it)"
    )


def test_a_plug_ins_prompt_is_a_prompt_like_any_other(installed, offering):
    prompt = load_prompt("my_prompt")
    assert (prompt.name, prompt.text_count) == ("my_prompt", 7)
    assert prompt.messages("Q", "x")[1]["content"] == '{"query":"Q"}'
    entry = ("[desa_ray.prompts]", "half = half:X")
    offering("half", "X = {'system': ''}\n", *entry)
    with pytest.raises(DesaError, match=r"plug-in half .*: user: is missing"):
        load_prompt("half")


def test_the_example_is_what_the_documentation_shows():
    page = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
    for name in ("operators", "fusion", "prompts", "engines", "notes"):
        code = (EXAMPLE / "src" / "desa_example" / f"{name}.py").read_text(encoding="utf-8")
        last = code.rstrip().splitlines()[-1]
        assert last in page, name
