"""Notes in Markdown, as a parser of Markdown reads them, and the addresses that are printed."""

import json
import re
from urllib.parse import parse_qs, unquote

import pytest
from markdown_it import MarkdownIt

from desa_ray.tracking.entries import TAG_LIMIT
from desa_ray.tracking.last import links
from desa_ray.tracking.notes import about, cell_note, data_sets, sweep_note

COMMAND = "desa run -m method=desa,original fusion.kappa=2,60"


def _html(text: str) -> str:
    return MarkdownIt("commonmark").enable("table").render(text)


def _cells(html: str) -> list[str]:
    return re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", html)


def _end(rows: int, **more) -> dict:
    results = [
        {"name": f"scifact/desa/k{n}", "metrics": {"ndcg_at_10": n / 7, "depth_dense": 12.34}}
        for n in range(rows)
    ]
    metrics = {"cells": float(rows), "cells_failed": 0.0}
    return {"metrics": metrics, "results": results, "command": COMMAND, **more}


def test_a_sweep_shows_its_cells_and_its_command():
    html = _html(sweep_note(_end(2)))
    assert _cells(html) == [
        *("cell", "nDCG@10", "L_D"),
        *("scifact/desa/k0", "0.0000", "12.3"),
        *("scifact/desa/k1", "0.1429", "12.3"),
    ]
    assert f'<code class="language-sh">{COMMAND}\n</code>' in html
    assert "2 cells, 0 failed." in html


def test_a_sweep_of_any_size_fits_a_tag():
    note = sweep_note(_end(1000))
    assert len(note) <= TAG_LIMIT
    (left,) = re.findall(r"(\d+) more rows", note)
    rows = _html(note).count("<tr>") - 1
    assert rows + int(left) == 1000


def test_a_cell_shows_its_settings_and_means():
    document = {
        "params": {"dataset": "sci*fact*", "method": "desa", "encoder": "None", "kappa": "60"},
        "metrics": {"ndcg_at_10": 0.71234, "depth_sparse": 101.26, "cut_same_top": 1.0},
        "command": "",
    }
    html = _html(cell_note(document))
    assert _cells(html)[2:] == [
        *("dataset", "sci*fact*", "method", "desa", "kappa", "60"),
        *("nDCG@10", "0.7123", "L_S", "101.3"),
    ]
    assert "reproduce" not in html


@pytest.mark.parametrize(
    "text",
    ["![x](http://e/x.png)", "<img src=x>", "[a](javascript:1)", "# h", "a|b", "`c`", "\n\n- item"],
)
def test_foreign_text_is_shown_as_it_is(text):
    """In names, labels and commands: no picture, link, heading, cell or item comes of it."""
    row = {"name": text, "metrics": {"ndcg_at_10": 1.0}}
    cell = {"params": {"dataset": text, "method": "m"}, "metrics": {}, "command": f"``` {text}"}
    for note in (sweep_note(_end(0, results=[row], command=text)), cell_note(cell)):
        html = _html(note)
        assert not re.findall(r"<(?:a|img|h\d|em|li|strong)\b", html)
        assert {len(own.split("<td")) for own in html.split("<tr>")[2:]} <= {3}


def test_source_commit_and_user_are_named():
    commit = "0123456789abcdef" * 2 + "01234567"
    found = about({"tags": {"commit": commit}})
    assert found["mlflow.source.git.commit"] == commit
    assert found["mlflow.source.name"] == "desa run"
    assert found["mlflow.user"]
    assert "mlflow.source.git.commit" not in about({"tags": {"commit": "None"}})


def test_data_sets_carry_a_digest_and_counts():
    own = {"name": "scifact", "digest": "ab" * 32, "source": "/d", "counts": {"documents": 5183}}
    (found,) = data_sets([own])
    assert (found.dataset.name, found.dataset.digest) == ("scifact", "ab" * 18)
    assert json.loads(found.dataset.profile or "") == {"documents": 5183}


def test_links_open_experiment_sweep_and_comparison():
    noted = {"experiment_id": "3", "run_ids": ["p", "a", "b"], "sweep": True}
    lines = links("http://h:5000/", noted)
    assert lines[:2] == [
        "experiment: http://h:5000/#/experiments/3/runs?workflowType=machine_learning",
        "sweep: http://h:5000/#/experiments/3/runs/p?workflowType=machine_learning",
    ]
    asked = parse_qs(lines[2].partition("?")[2])
    assert lines[2].startswith("compare: http://h:5000/#/compare-runs?")
    assert json.loads(asked["runs"][0]) == ["a", "b"]
    assert json.loads(asked["experiments"][0]) == ["3"]
    many = links("http://h", {**noted, "run_ids": ["p", *(f"c{n}" for n in range(51))]})
    assert "runs?searchFilter=tags.`mlflow.parentRunId` = 'p'&" in unquote(many[2])
    assert links("http://h", {**noted, "sweep": False, "run_ids": ["a"]})[1:] == [
        "run: http://h/#/experiments/3/runs/a?workflowType=machine_learning"
    ]


@pytest.mark.parametrize(
    "noted", [{}, {"experiment_id": 3}, {"experiment_id": "3/../x"}, {"experiment_id": "<b>"}]
)
def test_a_damaged_note_gives_no_links(noted):
    assert links("http://h", noted) == []
    assert len(links("http://h", {"experiment_id": "3", "run_ids": [noted]})) == 1
