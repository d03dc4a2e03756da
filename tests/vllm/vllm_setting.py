"""What the tests with real vLLM ask."""

from dataclasses import replace
from pathlib import Path

from desa_ray.engines.prompts import load_prompt

CONF = Path(__file__).resolve().parents[2] / "conf" / "generator" / "smollm2.yaml"
# Prompt 1 with fewer tokens, to save time: more outputs are cut, which serves these tests as well.
PROMPT = replace(load_prompt("references"), max_new_tokens=96)
QUERIES = {
    "q1": "read a file line by line",
    "q2": "sort a dictionary by value",
    "q3": "parse command line arguments",
    "q4": "compress data with gzip",
    "q5": "regular expression groups",
    "q6": "date arithmetic with time zones",
}
