"""Real vLLM on a CPU: same seeds, same text, whatever the batch; constrained form; real retries;
errors that help.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import polars as pl
import pytest
from vllm_setting import CONF, PROMPT

from desa_ray.core.references import check_references
from desa_ray.engines.chat import Request, SamplingSettings
from desa_ray.engines.generation import GENERATION_SCHEMA
from desa_ray.engines.prompts import load_prompt
from desa_ray.engines.smollm2 import FOLDER, RECORD, smollm2_folder
from desa_ray.errors import DesaError
from tests.generated import generate_records

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900), pytest.mark.xdist_group("engine")]


def test_the_model_is_converted_once_and_checked_by_hash(model_home, tmp_path):
    folder = smollm2_folder(model_home)
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert smollm2_folder(model_home) == folder
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before
    assert set(json.loads((folder / RECORD).read_text())["sha256"]) == set(before) - {RECORD}
    assert [file.name for file in model_home.iterdir() if file.name.startswith(f".{FOLDER}-")] == []
    other = tmp_path / FOLDER
    other.mkdir()
    for file in folder.iterdir():
        (other / file.name).symlink_to(file)
    text = (other / "config.json").read_text()
    (other / "config.json").unlink()
    (other / "config.json").write_text(text.replace("8192", "8193"))
    with pytest.raises(
        DesaError, match=r"differ from their recorded hashes: config\.json \(delete the folder"
    ):
        smollm2_folder(tmp_path)


def test_text_does_not_depend_on_order_splits_or_company(engine, records, whole):
    assert records(engine, ["q6", "q5", "q4", "q3", "q2", "q1"]).equals(whole)
    parts = [records(engine, ids) for ids in (["q3", "q1"], ["q2"], ["q6", "q5", "q4"])]
    by_query = {row["query_id"]: row for part in parts for row in part.rows(named=True)}
    assert by_query == {row["query_id"]: row for row in whole.rows(named=True)}


def test_text_does_not_depend_on_when_others_join_and_leave(engine, records, whole):
    """Shards of one query each, from threads that begin while others are in the middle."""
    ids = ["q4", "q1", "q6", "q2", "q5", "q3"]
    beside = engine.submit(
        Request([{"role": "user", "content": "Count."}], 5, SamplingSettings(200, 0.7, 0.9, 20))
    )
    with ThreadPoolExecutor(len(ids)) as shards:
        parts = []
        for query in ids:
            parts.append(shards.submit(records, engine, [query]))
            time.sleep(0.3)
        found = pl.concat([part.result() for part in parts]).sort("query_id")
    assert found.equals(whole)
    assert beside.result().completion_tokens > 0


def test_the_seed_decides_the_text(engine):
    messages = [{"role": "user", "content": "Tell me about rivers."}]
    seeds = [1, 2, 2**63 - 1, 1]
    texts = [
        out.text
        for out in engine.generate(
            [Request(messages, s, SamplingSettings(16, 0.7, 0.9, 20)) for s in seeds]
        )
    ]
    assert texts[0] == texts[3]
    assert len(set(texts)) == 3


def test_records_are_complete(whole):
    assert whole.schema == GENERATION_SCHEMA
    assert whole["query_id"].to_list() == ["q1", "q2", "q3", "q4", "q5", "q6"]
    always = set(GENERATION_SCHEMA.names()) - {"reason", "revision"}
    assert {name for name in always if whole[name].null_count()} == set()
    assert whole["prompt_tokens"].min() > 100
    assert whole["completion_tokens"].min() > 5


def test_outputs_are_five_strings_or_were_cut(whole):
    for row in whole.rows(named=True):
        [raw], [reason] = row["raw"], row["finish_reasons"]
        assert reason in ("stop", "length")
        if reason == "stop":
            items = json.loads(raw)
            assert len(items) == 5
            assert all(isinstance(item, str) for item in items)


def test_real_retries_and_fallbacks_happen_and_are_told(whole):
    assert whole["retries"].sum() > 0
    for row in whole.rows(named=True):
        verdict = check_references(
            row["raw"][0], finish_reason=row["finish_reasons"][0], system_prompt=PROMPT.system
        )
        assert (row["fallback"], row["reason"]) == (not verdict.valid, verdict.reason)
        assert row["texts"] == list(verdict.texts or ())
        assert (row["retries"] == 1) == (row["rejected"][0] is not None)
        assert row["retries"] == 1 or not row["fallback"]


def test_free_text_prompts_work_with_the_same_engine(engine, records):
    short = replace(load_prompt("query2doc"), max_new_tokens=40, max_words=10)
    row = records(engine, ["q1"], short).row(0, named=True)
    assert not row["fallback"]
    assert len(row["texts"][0].split()) == 10
    assert row["raw"][0].startswith(row["texts"][0])


def test_a_request_that_does_not_fit_is_an_error_and_the_engine(engine, records, whole):
    """A request that does not fit is an error and the engine goes on."""
    endless = {"type": "array", "items": {"type": "string"}, "minItems": 500}

    def ask(words: int, tokens: int) -> Request:
        return Request(
            [{"role": "user", "content": "word " * words}],
            1,
            SamplingSettings(tokens, 0.7, 0.9, 20),
            endless,
        )

    for words in (3000, 950):
        with pytest.raises(DesaError, match=r"raise generator\.max_model_len \(now 1024\)"):
            engine.generate([ask(3, 5), ask(words, 200)])
    assert records(engine, ["q2"]).row(0) == whole.row(1)


# One process tries what cannot start, one after the other: what a failed start leaves behind must
# not stop the next.
STARTS = """
import json, sys
from dataclasses import replace
from pathlib import Path
import yaml
from pydantic import TypeAdapter
from desa_ray.config import GeneratorConfig
from desa_ray.engines.generator import load_generator
from desa_ray.errors import DesaError
conf, home, broken = sys.argv[1:4]
good = TypeAdapter(GeneratorConfig).validate_python(yaml.safe_load(Path(conf).read_text()))
bad = {
    "memory": replace(good, kv_cache_gb=100_000),
    "dtype": replace(good, dtype="bfloat16"),
    "device": replace(good, device="cuda"),
    "context": replace(good, max_model_len=99_999),
    "weights": replace(good, path=broken),
    "absent": replace(good, path=broken + "-absent"),
}
told = {}
for name, config in bad.items():
    try:
        load_generator(config, model_home=Path(home))
    except DesaError as error:
        told[name] = str(error)
print(json.dumps(told))
"""


def test_failed_starts_are_told_by_cause(model_home, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(
        model_home / FOLDER, broken, ignore=shutil.ignore_patterns("model.safetensors", RECORD)
    )
    (broken / "model.safetensors").write_bytes(
        (model_home / FOLDER / "model.safetensors").read_bytes()[: 1 << 20]
    )
    command = [sys.executable, "-c", STARTS, str(CONF), str(model_home), str(broken)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    told = json.loads(result.stdout.splitlines()[-1])
    assert "too little memory: about" in told["memory"]
    assert "bfloat16 texts depend on batches on a CPU" in told["dtype"]
    assert "cuda was requested, but this vLLM runs on cpu" in told["device"]
    assert "generator.max_model_len is longer than the model's own context" in told["context"]
    assert "the model's weights cannot be read" in told["weights"]
    assert "no such folder" in told["absent"]
    assert all("\n" not in message for message in told.values())


def test_nothing_of_a_shard_is_returned_when_a_request_fails(engine):
    with pytest.raises(DesaError):
        generate_records(
            engine,
            load_prompt("query2doc"),
            generator="smollm2",
            dataset="demo",
            draw=0,
            query_ids=["a", "b"],
            query_texts=["short", "long " * 5000],
        )
