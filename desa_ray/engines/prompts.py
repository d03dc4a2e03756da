"""Prompts as data: `prompts/<name>.yaml` holds the words, where they come from, and how they are
decoded.

A prompt asks for `requests` outputs of `texts_per_request` texts each for every query and draw.
Templates of the user's turn are keyed by data set, `default` serving all others, and hold `{query}`
(the text as it is) or `{query_json}` (as a JSON string).
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from desa_ray.crash import one_line
from desa_ray.errors import DesaError
from desa_ray.types import canonical_json, sha256_json

FOLDER = Path(__file__).with_name("prompts")


def _default(templates: dict[str, str]) -> dict[str, str]:
    if "default" not in templates:
        raise ValueError("there is no template `default`")
    return templates


def _template(text: str) -> str:
    if text.count("{query}") + text.count("{query_json}") != 1:
        raise ValueError("the template must hold {query} or {query_json} once")
    return text


Template = Annotated[str, AfterValidator(_template)]
Outputs = Annotated[int, Field(ge=1, le=1000)]


class _Shape(BaseModel):
    """What a prompt's file holds; values are taken as they stand, as they enter the hash."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    source: str
    system: str
    user: Annotated[dict[str, Template], AfterValidator(_default)]
    requests: Outputs
    texts_per_request: Outputs
    structured: bool
    max_new_tokens: Annotated[int, Field(ge=1, le=10**6)]
    temperature: Annotated[float, Field(ge=0, le=100)]
    top_p: Annotated[float, Field(gt=0, le=1)]
    top_k: Annotated[int, Field(ge=-1, le=10**6)]
    max_words: Annotated[int, Field(ge=1, le=10**5)] | None = None
    systems: dict[str, str] | None = None


_SHAPE = TypeAdapter(_Shape)


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        name: its name in records and recordings.
        source: where the words come from; not part of the hash.
        system: system text, "" for none.
        user: data set name or `default` -> template.
        requests: outputs asked for a query and draw, each under its own seed.
        texts_per_request: texts in one output.
        structured: the output must be a JSON array of exactly `texts_per_request` strings.
        max_new_tokens, temperature, top_p, top_k: decoding.
        max_words: each text is cut after so many words; None for no cut.
        systems: data set name -> system text in place of `system`.
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

    @property
    def text_count(self) -> int:
        """Texts a query and draw."""
        return self.requests * self.texts_per_request

    @cached_property
    def hash(self) -> str:
        """Hex SHA-256 of everything that decides what is generated."""
        values = asdict(self)
        del values["source"]
        if self.systems is None:  # which most prompts have not, and had not when they were stored
            del values["systems"]
        return sha256_json(values)

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


def prompt_names() -> list[str]:
    """The names `load_prompt` knows."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


@cache
def load_prompt(name: str) -> Prompt:
    """The prompt of that name.

    Raises:
        DesaError: there is none (lists those there are), or its file is not a prompt.
    """
    if name not in prompt_names():
        raise DesaError(
            f"unknown prompt {name!r}",
            where="method.prompt",
            hint=f"choose {', '.join(prompt_names())}",
        )
    file = FOLDER / f"{name}.yaml"
    try:
        values = yaml.safe_load(file.read_bytes().decode())
        _SHAPE.validate_python(values)
        return Prompt(name=name, **values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        what = f"{place}: {first['msg']}" if place else first["msg"]
    except yaml.YAMLError as error:
        what = f"not YAML: {one_line(error)}"
    except (
        ValueError,
        RecursionError,
    ) as error:  # not UTF-8, numbers of thousands of digits, deep nesting
        what = one_line(error)
    raise DesaError(
        what, where=str(file), hint="correct that file; the others in its folder show the form"
    )
