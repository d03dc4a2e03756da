"""The table of benchmarks in docs/benchmarks.md, from the JSON of the last run."""

import json
from pathlib import Path

START, END = "<!-- benchmarks -->", "<!-- /benchmarks -->"


def rows(results: Path) -> list[str]:
    """Markdown lines, a benchmark each."""
    lines = ["| what | against | result | target |", "|---|---|---|---|"]
    for own in json.loads(results.read_text())["results"]:
        value = f"{own['value']:,.0f}" if own["value"] >= 100 else f"{own['value']:.3g}"
        baseline = own["baseline"] if own["baseline_s"] is not None else "(its own time)"
        missed = " (missed)" if own["met"] is False else ""
        target = "" if own["target"] is None else own["target"] + missed
        lines.append(f"| {own['ours']} | {baseline} | {value} {own['unit']} | {target} |")
    return lines


def put_into_page(results: Path, page: Path) -> None:
    """Replaces what stands between the two marks."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(START)
    _, after = rest.split(END)
    table = "\n".join(rows(results))
    page.write_text(f"{before}{START}\n{table}\n{END}{after}", encoding="utf-8")
