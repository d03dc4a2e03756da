"""The expressions of the Grafana dashboards, with Grafana's variables filled in."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.infra.programs import REPOSITORY

FOLDER = REPOSITORY / "dashboards" / "grafana"
# Filled only where there are GPUs or vLLM servers.
ELSEWHERE = re.compile(r"vllm:|ray_node_g(pus|ram)_")


@dataclass(frozen=True)
class Expression:
    dashboard: str
    panel: str
    text: str

    @property
    def metrics(self) -> set[str]:
        return set(re.findall(r"\b(?:ray_|vllm:)[a-z0-9_]+", self.text))

    def filled(self, window: str) -> str:
        return self.text.replace("$__rate_interval", window).replace("$__range", window)


def expressions() -> Iterator[Expression]:
    for file in sorted(FOLDER.glob("*.json")):
        board = json.loads(file.read_text())
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield Expression(board["title"], panel["title"], target["expr"])
