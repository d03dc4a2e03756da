"""`prompt=`: a prompt of the platform or of --config-dir in the place of the method's own."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from desa_ray.config import GeneratorConfig, MethodConfig, PromptConfig
from desa_ray.config_check import checked
from desa_ray.engines.prompts import load_prompt, prompt_from, shipped_prompts
from desa_ray.errors import DesaError
from desa_ray.experiment.build import Builder
from desa_ray.experiment.checks import setting_problems
from desa_ray.experiment.methods import check_method, generator_label
from desa_ray.experiment.prepare import prepare_cell
from desa_ray.experiment.records import config_hash, labels
from desa_ray.experiment.settings import cell_settings
from desa_ray.jobs.cli.config_folder import read_folder
from desa_ray.store.artifacts import Store
from tests.desa_fixtures import dataset
from tests.e2e.test_config_folder import composed, write

EIGHT = """
name: eight
system: Write eight passages as a JSON array of eight strings.
user: {default: '{"query":{query_json}}'}
requests: 1
texts_per_request: 8
structured: true
max_new_tokens: 400
temperature: 0.7
top_p: 0.9
top_k: 20
"""
RECORDED = GeneratorConfig(name="recorded", kind="recorded")


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))


def eight(**changes) -> PromptConfig:
    return checked(PromptConfig, yaml.safe_load(EIGHT) | changes)


def shipped(group: str, name: str) -> dict:
    file = Path(__file__).parents[2] / "conf" / group / f"{name}.yaml"
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def method(name: str) -> MethodConfig:
    return checked(MethodConfig, shipped("method", name))


def test_the_platforms_prompts_are_choices_and_keep_their_hashes():
    folder = Path(__file__).parents[2] / "conf" / "prompt"
    assert shipped_prompts() == sorted(file.stem for file in folder.glob("*.yaml"))
    for name in shipped_prompts():
        config = checked(PromptConfig, shipped("prompt", name))
        assert prompt_from(config) == load_prompt(name)
    chosen = composed("prompt=references", "prompt.temperature=1").config.prompt
    assert chosen is not None
    assert prompt_from(chosen).hash == replace(load_prompt("references"), temperature=1.0).hash


def test_a_prompt_of_ones_own_gives_more_references(collection, tmp_path):
    """Eight texts: rankings use the first n_refs of them, and more are refused."""
    write("prompt/eight.yaml", EIGHT)
    texts = [
        {"query_id": q, "prompt": "eight", "draw": 0, "texts": [f"{q} {n}" for n in range(8)]}
        for q in ("q1", "q2")
    ]
    file = collection / "generations" / "eight.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in texts))
    chosen = ["--config-dir", "my", *dataset(collection), "prompt=eight", "draws=1"]
    chosen += ["encoder=minilm_l3", "method=desa"]
    store = Store(str(tmp_path / "store"))
    found = {}
    base = composed(*chosen).config
    assert base.prompt == eight()
    for n_refs in (5, 8):
        config = replace(base, n_refs=n_refs)
        cell = Builder(prepare_cell(config, store, tmp_path)).cell()
        fused = cell.fused[0]
        ranking = fused.inputs["channel:sparse"]
        text = fused.inputs["generation:references"].params
        assert (text["prompt"], text["count"], ranking.params["texts"]) == ("eight", 8, n_refs)
        assert labels(cell)["n_refs"] == n_refs
        assert labels(cell)["generator"].startswith("recorded:references<-eight@")
        found[n_refs] = fused.key.digest
    assert len(set(found.values())) == 2
    (problem,) = setting_problems(replace(base, n_refs=9))
    assert str(problem).startswith("n_refs: n_refs is 9, but the prompt eight asks for 8 ")
    (problem,) = setting_problems(replace(base, n_refs=6, prompt=None))
    assert "the prompt asks for 5 references" in str(problem)


def test_records_tell_prompts_apart():
    references = checked(PromptConfig, shipped("prompt", "references"))
    warm = replace(references, temperature=1.0)
    label = generator_label(method("desa"), RECORDED, warm)
    assert label == f"recorded:references<-references@{prompt_from(warm).hash[:8]}"
    assert generator_label(method("desa"), RECORDED, references) == "recorded"
    assert generator_label(method("original"), RECORDED, warm) is None
    hyde = checked(PromptConfig, shipped("prompt", "hyde"))
    assert generator_label(method("desa"), RECORDED, hyde) == "recorded:references<-hyde"


def test_decoding_is_a_group_that_can_be_swept(collection, tmp_path):
    """Files of --config-dir, single settings, and what engines are asked; the label stays."""
    write("decoding/cool.yaml", "defaults: [greedy, _self_]\nmax_tokens: 64\n")
    chosen = ["--config-dir", "my", *dataset(collection), "generator=openai_server"]
    chosen += ["generator.model=any", "encoder=minilm_l3", "draws=1"]
    store = Store(str(tmp_path / "store"))
    told, prompts, hashes = {}, {}, set()
    for own in (
        (),
        ("decoding=cool",),
        ("decoding=cool", "decoding.seed=7"),
        ("decoding.top_p=1",),
    ):
        cell = Builder(prepare_cell(composed(*chosen, *own).config, store, tmp_path)).cell()
        prompts[own] = cell.fused[0].inputs["generation:references"].work.prompt
        told[own] = cell_settings(cell)
        hashes.add(config_hash(cell))
        assert labels(cell)["generator"] == "openai_server"
    assert len(hashes) == len({prompt.hash for prompt in prompts.values()}) == 4
    cool = prompts["decoding=cool",]
    assert (cool.temperature, cool.top_p, cool.top_k, cool.max_new_tokens) == (0, 1, -1, 64)
    assert prompts[()] == load_prompt("references")
    seen = {name.removeprefix("decoding."): own for name, own in told[()].items() if "deco" in name}
    assert seen == {"temperature": "0.7", "top_p": "0.9", "top_k": "20", "max_tokens": "256"}
    differ = told["decoding=cool", "decoding.seed=7"].items() ^ told["decoding=cool",].items()
    assert differ == {("decoding.seed", "7")}


def test_recorded_texts_take_no_decoding(collection):
    given = composed(*dataset(collection), "method=desa", "decoding=greedy").config
    (problem,) = setting_problems(given)
    assert str(problem).startswith("decoding: temperature, top_k, top_p given, but recorded")
    assert setting_problems(replace(given, method=method("original"))) == []


def problems(own: MethodConfig, prompt: PromptConfig | None = None, **replaced: str) -> str:
    generator = replace(RECORDED, map=replaced)
    return "\n".join(map(str, check_method(own, generator, 5, prompt)))


def test_where_a_prompt_fits_and_where_not():
    assert problems(method("original"), eight()) == ""  # which uses no text
    assert problems(method("hyde"), eight()) == ""
    assert "replaces no prompt of dvcqr" in problems(method("dvcqr"), eight())
    one = problems(method("query2doc"), eight())
    assert "takes one text, but the prompt eight gives 8" in one
    both = problems(method("hyde"), eight(), hyde="mugi")
    assert "'hyde' is replaced here and by prompt=eight" in both
    mine = replace(method("desa"), name="mine", prompt="eight")
    assert problems(mine, eight()) == ""
    assert "chosen by prompt=eight" in problems(mine)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"user": {"default": "{query.__class__} {query}"}}, "'{query.__class__}' is not a place"),
        ({"user": {"default": "{query} {{ 1 }}"}}, "'{{' is not a placeholder"),
        ({"user": {"default": "{query} {% set x=1 %}"}}, "'{%' is not a placeholder"),
        ({"user": {"default": "{query} {dataset}"}}, "'{dataset}' is not a placeholder"),
        ({"user": {"default": "{query} {query}"}}, "must hold {query} or {query_json}, once"),
        ({"user": {"default": "none"}}, "must hold {query} or {query_json}, once"),
        ({"user": {"scifact": "{query}"}}, "has no entry `default`"),
        ({"system": "Answer {query}"}, "'{query}' is not a placeholder"),
        ({"temperature": True}, "true and false are not numbers"),
        ({"requests": 0}, "greater than or equal to 1"),
        ({"tempo": 1}, "no such setting"),
    ],
)
def test_what_is_no_prompt_is_refused_by_name(change, words):
    with pytest.raises(DesaError) as caught:
        eight(**change)
    assert words in str(caught.value)


def test_words_that_only_look_like_templates_stay_as_they_are():
    """JSON in a prompt, and a query that itself looks like a template."""
    prompt = prompt_from(eight(system='Reply as {"texts": ["..."]}, or {}.'))
    system, user = prompt.messages("{query_json} {0.__class__}", "x")
    assert system["content"] == 'Reply as {"texts": ["..."]}, or {}.'
    assert user["content"] == '{"query":"{query_json} {0.__class__}"}'


def test_a_prompts_file_of_others_is_held_to_the_allow_list():
    for name, text, words in (
        ("secret", "system: '${oc.env:HOME}'", "more than a reference"),
        ("other", "_target_: os.getcwd", "no such setting: '_target_'"),
        ("nested", "user: {default: {x: 1}}", "holds names with values"),
        ("references", "name: references", "the platform has a prompt references"),
    ):
        file = write(f"prompt/{name}.yaml", text + "\n")
        with pytest.raises(DesaError, match=words):
            read_folder(Path("my"))
        file.unlink()
