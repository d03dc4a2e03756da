"""Methods as data: every shipped YAML is sound, and each way of writing a wrong one is named with
what there is.
"""

from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter

from desa_ray.config import ChannelConfig, GeneratorConfig, MethodConfig
from desa_ray.core.operators import DENSE_OPERATORS, SPARSE_OPERATORS
from desa_ray.engines.prompts import prompt_names
from desa_ray.experiment.methods import (
    ORIGINAL,
    check_generator_map,
    check_method,
    generator_label,
    options,
    prompt_of,
    prompts,
    texts_used,
)

CONF = Path(__file__).resolve().parents[2] / "conf" / "method"
RECORDED = GeneratorConfig(name="recorded", kind="recorded")
STAND_INS = GeneratorConfig(
    name="recorded", kind="recorded", map={"hyde": "references", "mugi": "references"}
)


def shipped(name: str) -> MethodConfig:
    return TypeAdapter(MethodConfig).validate_python(
        yaml.safe_load((CONF / f"{name}.yaml").read_text())
    )


def channel(kind, operator, **more) -> ChannelConfig:
    return ChannelConfig(**{"name": kind, "kind": kind, "operator": operator, **more})


DENSE, SPARSE = channel("dense", "residual"), channel("sparse", "product")


def found(method: MethodConfig, generator: GeneratorConfig = RECORDED, n_refs: int = 5) -> str:
    return "\n".join(str(problem) for problem in check_method(method, generator, n_refs))


@pytest.mark.parametrize("name", [file.stem for file in CONF.glob("*.yaml")])
def test_every_shipped_method_is_sound(name):
    method = shipped(name)
    assert method.name == name
    assert found(method) == ""
    assert found(method, n_refs=1) == ""


# method.md section 5, row by row: dense and sparse operators.
TABLE = {
    "original": ["original", "original"],
    "shared": ["contextual", "rewrite"],
    "dense_only": ["residual", "original"],
    "sparse_only": ["original", "product"],
    "desa": ["residual", "product"],
    "contextual_dense": ["contextual", "original"],
    "rewrite_sparse": ["original", "rewrite"],
    "binary_mask": ["residual", "mask"],
    "references_only": ["residual", "references_only"],
    "references_product": ["residual", "references_product"],
    "bm25": ["original"],
    "dense_original": ["original"],
    "hyde": ["hyde", "original"],
    "query2doc": ["query2doc", "query2doc"],
    "mugi": ["mugi", "mugi"],
}


@pytest.mark.parametrize("name", TABLE)
def test_the_papers_methods_have_the_papers_operators(name):
    assert [own.operator for own in shipped(name).channels] == TABLE[name]


@pytest.mark.parametrize(
    "name",
    [
        "qudar_complete",
        "qudar_weighted",
        "qudar_top1000",
        "qudar_weighted_top1000",
        "qudar_score",
        "qudar_score_confidence",
    ],
)
def test_qudar_reads_its_four_channels_in_the_papers_order(name):
    method = shipped(name)
    read = [(own.kind, own.operator) for own in method.channels]
    assert read == [
        ("sparse", "original"),
        ("dense", "original"),
        ("sparse", "rewrite"),
        ("dense", "contextual"),
    ]
    own = {"qudar_weighted", "qudar_weighted_top1000", "qudar_score_confidence"}
    assert method.weighting == ("confidence" if name in own else "fixed")
    assert method.prefix == (1000 if "1000" in name or "score" in name else None)
    if method.weighting == "fixed":
        assert [own.weight for own in method.channels] == [Fraction(1, 4)] * 4


def test_every_operator_is_used_by_some_shipped_method():
    used = {
        (own.kind, own.operator)
        for file in CONF.glob("*.yaml")
        for own in shipped(file.stem).channels
    }
    assert used == {("dense", name) for name in DENSE_OPERATORS} | {
        ("sparse", name) for name in SPARSE_OPERATORS
    }


WRONG = {
    "unknown operator": (
        [DENSE, channel("sparse", "rotate")],
        {},
        ["channel sparse", "rotate", "known: original, product, rewrite, mask"],
    ),
    "an operator of the other kind": (
        [channel("dense", "product")],
        {},
        ["unknown dense operator", "residual"],
    ),
    "no prompt": ([DENSE, SPARSE], {"prompt": None}, ["names no prompt", "hyde", "references"]),
    "unknown prompt": ([DENSE], {"prompt": "haiku"}, ["'haiku'", "known: ", "query2doc"]),
    "unknown prompt of a channel": (
        [channel("dense", "residual", prompt="haiku")],
        {},
        ["'haiku'", "known: "],
    ),
    "weight 0": ([channel("dense", "residual", weight=0), SPARSE], {}, ["weight 0", "above 0"]),
    "weight below 0": ([channel("dense", "residual", weight="-1/4"), SPARSE], {}, ["weight -1/4"]),
    "two channels of one name": (
        [channel("dense", "residual", name="a"), channel("sparse", "product", name="a")],
        {},
        ["two channels named a"],
    ),
    "no channels": ([], {}, ["no channels"]),
    "unknown option": (
        [channel("sparse", "relax_count", options={"cuont": 3})],
        {},
        ["'cuont'", "options: count"],
    ),
    "option of an operator without any": (
        [channel("dense", "residual", options={"beta": 1})],
        {},
        ["has none"],
    ),
    "missing option": ([channel("sparse", "relax_count")], {}, ["needs the option 'count'"]),
    "option out of range": (
        [channel("sparse", "relax_share", options={"share": 2})],
        {},
        ["share", "above 1"],
    ),
    "unknown fusion": ([DENSE], {"fusion": "borda"}, ["borda", "known: rrf, exp4fuse"]),
    "score fusion of more scores than are kept": (
        [DENSE, SPARSE],
        {"fusion": "score", "prefix": 1001},
        ["prefix is 1001", "at most 1000"],
    ),
    "score fusion of complete lists": ([DENSE], {"fusion": "score"}, ["add prefix: 1000"]),
    "written weights beside computed ones": (
        [channel("dense", "residual", weight=2), SPARSE],
        {"weighting": "confidence"},
        ["weighting is confidence"],
    ),
    "logarithms in a score fusion": (
        [DENSE, channel("sparse", "geometric", options={"share": "1/2"})],
        {"fusion": "score", "prefix": 1000},
        ["channel sparse", "minus infinity", "fusion: rrf"],
    ),
    "a prompt nobody uses": ([channel("dense", "original")], {}, ["no channel uses the prompt"]),
    "a prompt for an operator without text": (
        [channel("dense", "original", prompt="hyde"), SPARSE],
        {},
        ["uses no text"],
    ),
    "several texts for an operator of one": (
        [channel("dense", "query2doc")],
        {},
        ["takes one text", "gives 5", "query2doc"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_method_is_named_with_what_there_is(case):
    channels, more, words = WRONG[case]
    text = found(
        MethodConfig(
            **{"name": "mine", "channels": tuple(channels), "prompt": "references", **more}
        )
    )
    for word in ("method mine", *words):
        assert word in text, (word, text)


def test_all_mistakes_of_a_method_are_reported_together():
    broken = (channel("dense", "rotate", weight=0), channel("sparse", "relax_count", name="dense"))
    problems = check_method(MethodConfig(name="mine", channels=broken), RECORDED, 5)
    # Two of one name, unknown operator, weight, missing option, no prompt
    assert len(problems) == 5


def test_more_references_than_the_prompt_asks_for_are_refused():
    assert "n_refs is 6" in found(shipped("desa"), n_refs=6)
    assert found(shipped("query2doc"), n_refs=6) == ""


def test_a_channels_own_prompt_comes_before_the_methods():
    method = shipped("dvcqr")
    assert prompts(method) == ["semantic_rewrite", "lexical_rewrite"]
    assert prompts(ORIGINAL) == []
    assert prompts(shipped("qudar_complete")) == ["references"]
    assert prompt_of(shipped("qudar_complete"), shipped("qudar_complete").channels[0]) is None


def test_stand_ins_are_labelled_and_use_at_most_what_the_prompt():
    """Stand ins are labelled and use at most what the prompt would give."""
    assert generator_label(shipped("hyde"), STAND_INS) == "recorded:hyde<-references"
    assert generator_label(shipped("hyde"), RECORDED) == "recorded"
    assert generator_label(shipped("desa"), STAND_INS) == "recorded"
    assert generator_label(ORIGINAL, STAND_INS) is None
    both = GeneratorConfig(
        name="recorded",
        kind="recorded",
        map={"semantic_rewrite": "query2doc", "lexical_rewrite": "references"},
    )
    label = generator_label(shipped("dvcqr"), both)
    assert label == "recorded:semantic_rewrite<-query2doc,lexical_rewrite<-references"
    assert texts_used("references", STAND_INS, 3) == 3
    # HyDE's eight, of which there are five; n_refs is the references' own
    assert texts_used("hyde", STAND_INS, 3) == 5
    assert texts_used("hyde", RECORDED, 3) == 8
    assert texts_used("lexical_rewrite", both, 3) == 1


@pytest.mark.parametrize(
    ("stand_ins", "words"),
    [
        ({"hide": "references"}, ["hide", "known: ", "hyde"]),
        ({"hyde": "refs"}, ["refs", "references"]),
        ({"hyde": "mugi", "mugi": "references"}, ["'mugi' replaces 'hyde'"]),
        ({"hyde": "hyde"}, ["'hyde' replaces 'hyde'"]),
    ],
)
def test_a_map_of_prompts_that_leads_nowhere_is_refused(stand_ins, words):
    problems = check_generator_map(GeneratorConfig(name="recorded", kind="recorded", map=stand_ins))
    text = "\n".join(map(str, problems))
    for word in ("generator.map", *words):
        assert word in text
    assert check_generator_map(STAND_INS) == []
    assert set(prompt_names()) >= {"hyde", "mugi", "references"}


def test_options_have_their_defaults_filled_in():
    assert options(shipped("mugi").channels[1]) == {"min_repeats": 0}
    assert options(channel("sparse", "mugi", options={"min_repeats": 1})) == {"min_repeats": 1}
    assert options(shipped("relaxed_count").channels[1]) == {"count": 10}
    assert options(shipped("relaxed_share").channels[1]) == {"share": Fraction(1, 2)}
    assert options(DENSE) == {}
