"""Prompts as data: `conf/prompt/<name>.yaml` holds the words, their source, and the decoding
settings.

A prompt asks for `requests` outputs of `texts_per_request` texts each for every query and draw.
Templates of the user's turn are keyed by data set, `default` serving all others, and hold `{query}`
(the text as it is) or `{query_json}` (as a JSON string); nothing else is put into them.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from importlib import resources
from typing import Any

import yaml

from desa_ray.config import DecodingConfig, PromptConfig
from desa_ray.config_check import checked
from desa_ray.crash import one_line
from desa_ray.errors import DesaError, Problems
from desa_ray.plugins import known_names, plugin, shadowed
from desa_ray.types import canonical_json, sha256_json


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        name: its name in records and recordings.
        source: where the words come from; not part of the hash.
        system: system text, "" for none.
        user: data set name or `default` -> template.
        requests: outputs asked for per query and draw, each under its own seed.
        texts_per_request: texts in one output.
        structured: the output must be a JSON array of exactly `texts_per_request` strings.
        max_new_tokens, temperature, top_p, top_k: decoding.
        max_words: each text is cut after this many words; None for no cut.
        systems: data set name -> system text in place of `system`.
        seed: makes the seeds of all requests others; None for those of 0.1.0.
    """

    name: str
    source: str
    system: str
    user: Mapping[str, str]
    requests: int
    texts_per_request: int
    structured: bool
    max_new_tokens: int
    temperature: float
    top_p: float
    top_k: int
    max_words: int | None = None
    systems: Mapping[str, str] | None = None
    seed: int | None = None

    def __hash__(self) -> int:
        return hash(self.hash)

    @property
    def text_count(self) -> int:
        """Texts per query and draw."""
        return self.requests * self.texts_per_request

    @cached_property
    def hash(self) -> str:
        """Hex SHA-256 of everything that decides what is generated."""
        values = asdict(self)
        del values["source"]
        for name in ("systems", "seed"):  # which most have not, and had not when they were stored
            if values[name] is None:
                del values[name]
        return sha256_json(values)

    def decoded(self, decoding: DecodingConfig) -> "Prompt":
        """The prompt with what settings say of its decoding."""
        given: dict[str, Any] = dict(decoding.given)
        if "max_tokens" in given:
            given["max_new_tokens"] = given.pop("max_tokens")
        return replace(self, **given) if given else self

    def messages(self, query: str, dataset: str) -> list[dict[str, str]]:
        """The chat turns of one request; the model's own chat template makes text of them."""
        template = self.user.get(dataset, self.user["default"])
        if "{query_json}" in template:
            user = template.replace("{query_json}", canonical_json(query))
        else:
            user = template.replace("{query}", query)
        text = (self.systems or {}).get(dataset, self.system)
        system = [{"role": "system", "content": text}] if text else []
        return [*system, {"role": "user", "content": user}]

    def cut(self, text: str) -> str:
        """The text up to the end of its `max_words`-th word (words are divided by white space)."""
        if self.max_words is None:
            return text
        words = re.match(rf"\s*(?:\S+\s+){{{self.max_words - 1}}}\S+", text)
        return words.group() if words else text


@cache
def _shipped() -> dict[str, Any]:
    """The files of the platform's own prompts by name."""
    folder = resources.files("desa_ray.conf") / "prompt"
    files = {file.name.removesuffix(".yaml"): file for file in folder.iterdir()}
    return {name: files[name] for name in sorted(files) if files[name].name.endswith(".yaml")}


def shipped_prompts() -> list[str]:
    """The names of the platform's own prompts."""
    return [*_shipped()]


def prompt_names() -> list[str]:
    """The names `load_prompt` knows: the platform's own prompts, then those of plug-ins."""
    return known_names("prompts", _shipped())


def prompt_from(config: PromptConfig) -> Prompt:
    """The prompt that settings describe."""
    return Prompt(**asdict(config))


@cache
def load_prompt(name: str) -> Prompt:
    """The prompt of that name.

    Raises:
        DesaError: there is none (lists those there are), or it is not a prompt.
    """
    if name not in _shipped():
        return _plugged(name)
    if clash := shadowed("prompts", name, _shipped()):
        raise clash
    file = _shipped()[name]
    try:
        values = yaml.safe_load(file.read_bytes().decode())
        return prompt_from(checked(PromptConfig, values))
    except Problems as found:
        first = found.problems[0]
        what = f"{first.where}: {first.what}"
    except yaml.YAMLError as error:
        what = f"not YAML: {one_line(error)}"
    except (
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        # Not UTF-8, numbers of thousands of digits, deep nesting
        what = one_line(error)
    raise DesaError(
        what,
        where=str(file),
        hint="correct that file; the other files in its folder show the format",
    )


def _plugged(name: str) -> Prompt:
    """A plug-in's prompt: an object that holds what a prompt's file does. Its words alone decide
    what is generated, so its hash enters the key like that of any other.
    """
    own = plugin("prompts", name, _shipped(), "method.prompt")
    values = own.load()
    if not isinstance(values, Mapping):
        raise own.wrong(
            f"is a {type(values).__name__}, expected a mapping",
            "give the keys of a file in conf/prompt",
        )
    try:
        return prompt_from(checked(PromptConfig, {"name": name, **values}))
    except Problems as found:
        first = found.problems[0]
        raise own.wrong(f"{first.where}: {first.what}", "correct the plug-in") from None
