"""One engine over several devices (here: worker processes), its prefix cache, and what is left when
it is killed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from vllm_setting import CONF, QUERIES

from desa_ray.engines.generation import GENERATION_SCHEMA

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900), pytest.mark.xdist_group("platform")]

# Loads an engine, asks it twice, says what it saw, and stays until its input ends.
PROGRAM = """
import json, subprocess, sys
from dataclasses import replace
from contextlib import suppress
from pathlib import Path
import psutil, yaml
from pydantic import TypeAdapter
from desa_ray.config import GeneratorConfig
from desa_ray.engines import vllm_generator
from desa_ray.engines.generator import load_generator
from desa_ray.engines.generation import generation_frame
from desa_ray.engines.live_generator import generated_rows
from desa_ray.engines.prompts import load_prompt
from desa_ray.errors import DesaError

def runs(pid):  # a dead process whose parent has not looked yet holds nothing
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

def main(conf, home, changes, watched, query):
    good = TypeAdapter(GeneratorConfig).validate_python(yaml.safe_load(Path(conf).read_text()))
    config = replace(good, max_model_len=1024, batch_invariant=False, **json.loads(changes))
    start, seen = vllm_generator.start, {}
    def started(*arguments):
        seen["left"] = [pid for pid in json.loads(watched) if runs(pid)]
        return start(*arguments)
    vllm_generator.start = started
    try:
        engine = load_generator(config, model_home=Path(home))
    except DesaError as error:
        print(json.dumps({**seen, "error": str(error)}), flush=True)
        return
    steps, cached = engine.loop.engine, []
    output = steps._output
    def noted(result, request):
        cached.append(result.num_cached_tokens)
        return output(result, request)
    steps._output = noted
    prompt = replace(load_prompt("references"), max_new_tokens=24)
    for draw in (0, 1):
        found = generated_rows(engine, prompt, generator="smollm2", dataset="demo", draw=draw,
                               query_ids=["a"], query_texts=[query])
        rows = generation_frame([row.fields for row in found])
    children = psutil.Process().children()
    workers = [child.pid for child in children if child.name().startswith("VLLM::Worker")]
    # one more of the group, which notices nothing
    helper = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL).pid
    seen |= {"row": rows.to_dicts()[0], "workers": workers, "helper": helper, "cached": cached}
    print(json.dumps(seen), flush=True)
    sys.stdin.read()

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


class Engine:
    """The program in a process of its own; `said` is what it saw. Its children are those of the
    engine.
    """

    def __init__(
        self, folder: Path, model_home: Path, *, watched: Sequence[int] = (), **changes: Any
    ):
        program, self.log = folder / "program.py", folder / "log"
        program.write_text(PROGRAM)
        arguments = [
            str(CONF),
            str(model_home),
            json.dumps(changes),
            json.dumps(watched),
            QUERIES["q2"],
        ]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(program), *arguments],
                env={**os.environ, "TMPDIR": str(folder)},  # where engines are noted
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        line = next((line for line in self.process.stdout if line.startswith("{")), None)
        assert line is not None, self.log.read_text()[-3000:]
        self.said: dict[str, Any] = json.loads(line)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("spread")


@pytest.fixture(scope="module")
def spread(model_home, folder) -> Iterator[Engine]:
    """An engine over three worker processes: SmolLM2 has nine attention heads, three of them for
    keys and values.
    """
    own = Engine(folder, model_home, tensor_parallel_size=3)
    yield own
    own.end()


def test_an_engine_over_several_workers_gives_whole_records(spread):
    assert len(spread.said["workers"]) == 3
    row = spread.said["row"]
    assert list(row) == list(GENERATION_SCHEMA)
    assert (row["query_id"], row["draw"], row["model"]) == (
        "a",
        1,
        "HuggingFaceTB/SmolLM2-135M-Instruct",
    )
    assert row["raw"]
    assert all(row["raw"])


def test_what_requests_share_is_read_from_the_prefix_cache(spread):
    first, *others = spread.said["cached"]
    assert first == 0
    assert others
    # A block holds some tokens; the system prompt and the template fill several. The second draw
    # shares the query too.
    assert all(tokens > 0 for tokens in others)


def test_what_a_killed_engine_leaves_is_gone_before_the_next(spread, model_home, folder):
    """What a killed engine leaves is gone before the next one starts; a model that cannot be spread
    as that one is asked to is told by cause.
    """
    workers, helper = spread.said["workers"], spread.said["helper"]
    held = sum(psutil.Process(worker).memory_info().rss for worker in workers)
    assert held > 300 << 20
    spread.end()  # its guard ends the group at once, or the next engine does
    following = Engine(folder, model_home, watched=[*workers, helper], tensor_parallel_size=2)
    following.end()
    assert following.said["left"] == []
    assert "the model cannot be spread over that many GPUs" in following.said["error"]
    assert "change generator.tensor_parallel_size" in following.said["error"]
