"""The settings of a cell, under their names on the command line, as its records hold them.

A report uses them to distinguish cells with equal labels. Settings that enter no key are left out,
and so are those that labels already contain; a setting that has no effect on a cell (its
`config_hash` shows that) is left out there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from desa_ray.config import DEFAULT_RULE, RunConfig
from desa_ray.engines.prompts import Prompt
from desa_ray.experiment.build import Cell
from desa_ray.experiment.methods import RECORDED, given_prompt, own_prompts, prompts
from desa_ray.pipeline.stage import Stage

GROUPS = ("encoder", "generator", "sparse", "method", "fusion", "evaluation")
VALUES = ("ranking", "n_refs", "draws")
DECODING = {  # setting -> what a prompt calls it
    **{name: name for name in ("temperature", "top_p", "top_k", "seed")},
    "max_tokens": "max_new_tokens",
}
LABELLED = (
    *("encoder.name", "encoder.path", "generator.name", "generator.map", "method.name"),
    *("fusion.kappa", "fusion.k", "n_refs"),
)
NO_KEY = (
    "encoder.scorer",
    *("sparse.name", "sparse.java_home", "sparse.heap"),
    *("generator.folder", "generator.path", "generator.revision_note", "generator.device"),
    *("generator.batch_invariant", "generator.tensor_parallel_size", "generator.kv_cache_gb"),
    *("generator.gpu_memory_utilization", "generator.max_num_seqs", "generator.max_model_len"),
    *("generator.base_url", "generator.api_key_env", "generator.concurrency"),
    *("generator.request_timeout_s", "generator.max_attempts", "generator.backoff_s"),
    "generator.max_backoff_s",
    "evaluation.access_depths",
)

LEARNED = ("impacts", "query_weights", "query_vectors", "document_texts")  # stages
FILES = ("impacts", "tokenizer", "token_weights", "query_vectors", "document_texts")
HASHED = {  # setting -> what their parameters call its contents
    **{f"sparse.{name}": f"{name}_sha256" for name in FILES},
    "sparse.path": "weights_sha256",
}

# A setting that came with a later version stands where it differs from what was done before it:
# records of both versions then agree.
LATER = {
    "sparse.analyzer": "en",
    "sparse.kind": "bm25",
    "fusion.rule": DEFAULT_RULE,
    "evaluation.exponential_cutoffs": "false",
    "encoder.engine": "cpu",
    "generator.seed_bits": "63",
}


def cell_settings(cell: Cell) -> dict[str, str]:
    """Dotted name -> value, in the order of the names; what is not set (null) is left out. Files of
    learned sparse weights are listed by the first digits of their hashes.

    A prompt whose texts the cell uses is listed as `prompt.NAME` with the first digits of its hash,
    which covers its words and its own decoding; how a live generator decodes is listed as
    `decoding.*`, from the prompt or from a setting.
    """
    config = cell.config
    found: dict[str, str] = {}
    for group in GROUPS:
        found |= dict(_flat(getattr(config, group), group))
    found |= {name: str(getattr(config, name)) for name in VALUES}
    found["encoder.engine"] = cell.engine  # what `auto` became
    if config.sparse.kind != "bm25" or config.sparse.document_texts is not None:
        found |= {name: own for name, own in _learned_files(cell.fused[0]).items() if name in found}
    own = own_prompts(config.method, config.prompt)
    used = [given_prompt(name, config.generator, own) for name in prompts(config.method)]
    found |= {f"prompt.{prompt.name}": prompt.hash[:12] for prompt in used}
    if config.generator.kind != RECORDED:
        found |= _decoding([prompt.decoded(config.decoding) for prompt in used])
    left_out = {*LABELLED, *NO_KEY, *(name for name, was in LATER.items() if found[name] == was)}
    return {name: found[name] for name in sorted(found) if name not in left_out}


def flat_settings(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Every setting of a configuration by its dotted name; what is not set (null) is left out."""
    for setting in fields(config):
        yield from _flat(getattr(config, setting.name), setting.name)


def _learned_files(fused: Stage) -> dict[str, str]:
    """`sparse.NAME` -> the first digits of the hash of the file, as keys hold it."""
    found: dict[str, str] = {}
    waiting = list(fused.inputs.values())
    while waiting:
        stage = waiting.pop()
        waiting += stage.inputs.values()
        given = {**stage.params, **stage.params.get("weights", {})} if stage.name in LEARNED else {}
        for name, key in HASHED.items():
            if digest := given.get(key):
                found[name] = digest[:12]
    return found


def _decoding(used: Sequence[Prompt]) -> dict[str, str]:
    """How prompts are decoded, by the names of settings; values that differ are joined by `+`."""
    found: dict[str, str] = {}
    for name, own in DECODING.items():
        values = dict.fromkeys(getattr(prompt, own) for prompt in used)
        if set(values) - {None}:
            found[f"decoding.{name}"] = "+".join(map(str, values))
    return found


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """A value's leaves with their dotted names."""
    if is_dataclass(value):
        for field in fields(value):
            yield from _flat(getattr(value, field.name), f"{name}.{field.name}")
    elif isinstance(value, Mapping):
        for key, own in value.items():
            yield from _flat(own, f"{name}.{key}")
    elif isinstance(value, tuple) and value and is_dataclass(value[0]):
        for place, own in enumerate(value):
            yield from _flat(own, f"{name}.{place}")
    elif isinstance(value, tuple | list):
        yield name, f"[{','.join(map(str, value))}]"
    elif isinstance(value, bool):
        yield name, str(value).lower()
    elif value is not None:
        yield name, str(value)
