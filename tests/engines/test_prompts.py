"""Prompts as data: the paper's words, the templates of method.md section 2, and what a model is
sent.
"""

import json
import re
from dataclasses import replace
from importlib import resources

import pytest
import yaml

from desa_ray.engines.prompts import load_prompt, prompt_names
from desa_ray.errors import DesaError
from tests.reference import REFERENCE

QUERY = 'a "quoted" {query} ü🧬\n\\'


def words(text: str) -> str:
    return " ".join(text.split())


def test_prompt_1_is_the_papers_word_for_word() -> None:
    paper = (REFERENCE / "paper.tex").read_text(encoding="utf-8")
    printed = re.search(r"\\textbf\{System prompt\}(.*?)\\par\\smallskip", paper, re.DOTALL)
    assert printed is not None
    assert words(load_prompt("references").system) == words(printed.group(1))


def test_prompt_1_sends_the_query_as_a_canonical_json_object() -> None:
    system, user = load_prompt("references").messages(QUERY, "scifact")
    assert (system["role"], user["role"]) == ("system", "user")
    assert user["content"] == '{"query":"a \\"quoted\\" {query} ü🧬\\n\\\\"}'
    assert json.loads(user["content"]) == {"query": QUERY}


@pytest.mark.parametrize(
    ("dataset", "user"),
    [
        (
            "scifact",
            (
                "Please write a scientific paper passage to support/refute the claim.\nClaim:"
                " Q\nPassage:"
            ),
        ),
        (
            "trec-covid",
            (
                "Please write a scientific paper passage to answer the question.\nQuestion:"
                " Q\nPassage:"
            ),
        ),
        (
            "fiqa",
            (
                "Please write a financial article passage to answer the question.\nQuestion:"
                " Q\nPassage:"
            ),
        ),
        (
            "arguana",
            "Please write a counter argument for the passage.\nPassage: Q\nCounter Argument:",
        ),
        ("nfcorpus", "Please write a passage to answer the question.\nQuestion: Q\nPassage:"),
    ],
)
def test_hyde_words_its_task_by_data_set(dataset: str, user: str) -> None:
    assert load_prompt("hyde").messages("Q", dataset) == [{"role": "user", "content": user}]


def test_query2doc_and_mugi_send_the_words_of_their_papers() -> None:
    expected = "Write a passage that answers the given query:\nQuery: Q\nPassage:"
    assert load_prompt("query2doc").messages("Q", "x") == [{"role": "user", "content": expected}]
    system, user = load_prompt("mugi").messages("Q", "x")
    assert (
        system["content"]
        == "You are PassageGenGPT, an AI capable of generating concise, informative, and clear"
        " pseudo passages on specific topics."
    )
    assert (
        user["content"] == "Generate one passage that is relevant to the following query: 'Q'. "
        "The passage should be concise, informative, and clear"
    )


def test_the_query_stands_in_the_message_as_it_is() -> None:
    for name in ("hyde", "query2doc", "mugi"):
        assert QUERY in load_prompt(name).messages(QUERY, "x")[-1]["content"]


def test_counts_and_decoding_are_those_of_the_specification() -> None:
    found = {
        name: (load_prompt(name).text_count, load_prompt(name).max_new_tokens)
        for name in prompt_names()
    }
    printed = {"references": (5, 256), "hyde": (8, 512), "query2doc": (1, 256), "mugi": (5, 256)}
    short = {"hyde_short": (8, 512), "mugi_short": (5, 256), "query2doc_short": (1, 256)}
    short |= {"hyde_short_five": (5, 256)}
    own = {"lexical_rewrite": (1, 64), "semantic_rewrite": (1, 64), "plain": (5, 256)}
    assert found == printed | short | own | dict.fromkeys(TRANSLATED, (5, 384))
    one = load_prompt("references")
    assert (one.temperature, one.top_p, one.top_k, one.structured) == (0.7, 0.9, 20, True)


TRANSLATED = {
    "references_de": ("genau fünf", "Deutsch"),
    "references_es": ("exactamente cinco", "español"),
    "references_fr": ("exactement cinq", "français"),
    "references_it": ("esattamente cinque", "italiano"),
    "references_zh": ("恰好五个", "中文"),
}


@pytest.mark.parametrize("name", TRANSLATED)
def test_translated_prompts_differ_in_words_and_length_alone(name: str) -> None:
    own, english = load_prompt(name), load_prompt("references")
    same = replace(own, name=english.name, source="", system="", max_new_tokens=256)
    assert same == replace(english, source="", system="")
    assert own.system.count("\n\n") == english.system.count("\n\n")
    for words in (*TRANSLATED[name], "JSON", "Markdown"):
        assert words in own.system
    query = 'Häuser "niños" 面包'
    told = own.messages(query, "scifact")[-1]["content"]
    assert told == '{"query":"Häuser \\"niños\\" 面包"}'


def test_the_plain_prompt_asks_for_text_alone() -> None:
    prompt = load_prompt("plain")
    expected = [{"role": "user", "content": "Write a passage about: how do bees fly"}]
    assert prompt.messages("how do bees fly", "scifact") == expected
    assert not prompt.structured


SHORT = ("hyde_short", "hyde_short_five", "mugi_short", "query2doc_short")


@pytest.mark.parametrize("name", SHORT)
def test_short_prompts_ask_once_for_an_array(name: str) -> None:
    """The release's structure: a system text, the query as JSON, one array of n strings."""
    prompt = load_prompt(name)
    assert (prompt.requests, prompt.structured, prompt.max_words) == (1, True, None)
    assert (prompt.temperature, prompt.top_p, prompt.top_k) == (0.7, 0.9, 20)
    system, user = prompt.messages('say "x"', "nfcorpus")
    assert system["content"] == prompt.system
    assert user["content"] == '{"query":"say \\"x\\""}'
    counts = {"hyde_short": "eight", "hyde_short_five": "five", "mugi_short": "five"}
    count = counts.get(name, "one")
    assert f"JSON array of exactly {count} " in prompt.system
    assert ("120 words" if name == "query2doc_short" else "25 words") in prompt.system


def test_budget_baselines_ask_for_as_many_words_and_tokens() -> None:
    """+experiment=budget: one request of 256 tokens, 120 to 125 words in all, for every method."""
    file = resources.files("desa_ray.conf") / "experiment" / "budget.yaml"
    chosen = yaml.safe_load(file.read_text(encoding="utf-8"))
    for slot in ("references", "hyde", "query2doc", "mugi"):
        prompt = load_prompt(chosen["generator"]["map"].get(slot, slot))
        assert (prompt.requests, prompt.max_new_tokens) == (1, 256)
        for text in (prompt.system, *(prompt.systems or {}).values()):
            each = re.search(r"at most\s+(\d+)\s+words", text)
            assert each, slot
            assert 120 <= int(each[1]) * prompt.text_count <= 125


def test_short_hyde_words_its_task_by_data_set_too() -> None:
    prompt = load_prompt("hyde_short")
    told = {
        name: prompt.messages("Q", name)[0]["content"]
        for name in ("scifact", "trec-covid", "fiqa", "arguana", "scidocs")
    }
    assert len(set(told.values())) == 5
    assert all("JSON array of exactly eight" in text for text in told.values())
    assert "supports or refutes the claim" in told["scifact"]
    assert "counter-argument" in told["arguana"]
    assert replace(prompt, systems=None).hash != prompt.hash


def test_the_hash_follows_the_words_and_not_their_source() -> None:
    one = load_prompt("references")
    assert replace(one, source="elsewhere").hash == one.hash
    assert replace(one, system=one.system + ".").hash != one.hash
    assert replace(one, temperature=0.6).hash != one.hash
    assert len({load_prompt(name).hash for name in prompt_names()}) == len(prompt_names())


def test_query2doc_is_cut_after_120_words() -> None:
    prompt = load_prompt("query2doc")
    long = "  one\n" + "two  " * 200
    assert prompt.cut(long).split() == long.split()[:120]
    assert long.startswith(prompt.cut(long))
    for short in ("two " * 119, "two " * 119 + "two", "", " "):
        assert prompt.cut(short).split() == short.split()
    assert load_prompt("hyde").cut(long) == long


def test_an_unknown_prompt_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        DesaError,
        match=r"unknown prompt 'hide' \(did you mean hyde\? known: hyde, hyde_short, hyde_short_",
    ):
        load_prompt("hide")
