"""A method that nobody here knows goes through every table as the paper's own does."""

import ast
import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import desa_ray.report
from desa_ray.core.statistics.inference import holm
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.errors import DesaError
from desa_ray.report.build import build_report
from desa_ray.report.families import families_table
from desa_ray.report.names import PRIMARY
from desa_ray.report.paper import CONSTRUCTIONS, PAPER
from desa_ray.report.results import main_table
from desa_ray.report.roles import Roles
from desa_ray.report.study import Study
from tests.report.made_up import cell, study_records

FEW = Sampling(resamples=200, seed=1)
MINE = replace(PAPER, subject="mine", main=(), ablations=("binary_mask",))


def renamed(records: pl.DataFrame) -> pl.DataFrame:
    return records.with_columns(method=pl.col("method").replace({"desa": "mine"}))


def told(report) -> dict[str, list[list[str]]]:
    """Table -> title, headings and rows in print, the subject by one name, rows in any order."""
    found = {}
    for table in report.all_tables():
        columns = [column for column in table.columns if column.key != "construction"]
        lines = [[table.title], [column.title for column in columns]]
        rows = []
        for row in table.rows:
            rows.append([c.show(row.values.get(c.key), row.forms.get(c.key)) for c in columns])
        flat = "\n".join("|".join(line) for line in lines + sorted(rows))
        parts = re.sub(r"\bDESA\b", "mine", flat).split("\n")
        found[table.name] = [parts[:2], sorted(parts[2:])]
    return found


def test_a_method_of_ones_own_goes_through_all_tables():
    """The same numbers under another name give the same tables and figures."""
    methods = ("original", "shared", "dense_only", "sparse_only", "desa", "binary_mask")
    frames = [study_records(("scifact",), (*methods, "qudar_complete"))]
    for labels in ({"kappa": "2"}, {"corpus_docs": 1000, "qrels_hash": "small"}):
        frames.append(study_records(("scifact",), ("original", "shared", "desa"), **labels))
    records = pl.concat(frames, how="diagonal_relaxed")
    papers = build_report(Study(records), FEW)
    mine = build_report(Study(renamed(records), roles=MINE), FEW)
    names = {table.name for table in papers.all_tables()}
    assert {"main", "primary_tests", "channel_evidence", "external", "qudar_effects"} <= names
    assert {"ablations", "cutoffs", "transitions", "mechanism", "robustness"} <= names
    assert {"mechanism_quartiles", "correlations", "per_dataset"} <= names
    assert {"cutoffs_by_method", "mechanism_by_method", "robustness_by_method"} <= names
    assert told(mine) == told(papers)
    assert [f.name for f in mine.figures] == [f.name for f in papers.figures]


def test_only_the_papers_preset_knows_its_method():
    """No other module of the report names it in a string or in a name."""
    folder = Path(desa_ray.report.__file__).parent
    verbs = r"desa (run|report|verify|compare|depth|plan)\b"
    for file in sorted(folder.glob("*.py")):
        if file.name.startswith("paper"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else getattr(node, "id", "")
            if isinstance(text, str):
                rest = re.sub(verbs, "", text)
                assert not re.search(r"(?i)(?<![a-z$])desa(?!_ray|_home|error)", rest), (
                    file.name,
                    text,
                )


def test_without_settings_the_sweep_says_who_is_compared():
    """A method of one's own is the subject; all others with two channels are its baselines."""
    methods = ("original", "shared", "bm25", "mine", "desa")
    records = study_records(("scifact",), methods)
    one_channel = pl.when(pl.col("method") != "bm25").then(pl.col("depth_dense"))
    roles = Study(records.with_columns(depth_dense=one_channel)).roles
    assert (roles.subject, roles.reference) == ("mine", "original")
    assert list(roles.baselines) == ["original", "shared", "desa"]
    roles = Study(study_records(("scifact",), ("original", "shared"))).roles
    assert (roles.subject, list(roles.baselines)) == ("shared", ["original"])
    roles = Study(study_records(("scifact",), ("original", "desa", "hyde"))).roles
    assert (roles.subject, list(roles.baselines)) == ("desa", ["original", "shared"])
    roles = Study(study_records(("scifact",), ("mine",))).roles
    assert (roles.subject, roles.reference) == ("mine", None)
    assert not any(t.name == "primary_tests" for t in alone("mine").all_tables())


def alone(method: str):
    return build_report(Study(study_records(("scifact",), (method,))), FEW)


def test_methods_that_are_not_there_are_refused():
    records = study_records(("scifact",), ("original", "mine"))
    with pytest.raises(DesaError, match=r"no records of method minee.*did you mean mine\?"):
        Study(records, roles=Roles(subject="minee"))
    with pytest.raises(DesaError, match="no records of method shared"):
        Study(records, roles=Roles(families={"a": [("mine", "shared")]}))
    assert Study(records, roles=PAPER).roles.subject == "mine"


def test_named_families_are_adjusted_together():
    roles = Roles(subject="mine", families={"both": [("mine", "shared"), ("shared", "original")]})
    records = study_records(methods=("original", "shared", "mine"))
    study = Study(records, roles=roles)
    own = [row.values for row in families_table(study, FEW).rows]
    assert len(own) == 2 * len(PRIMARY)
    assert [v["p_holm"] for v in own] == pytest.approx(holm([v["p"] for v in own]))
    every = replace(roles, families={}, all_pairs=True)
    rows = families_table(Study(records, roles=every), FEW).rows
    pairs = {(r.about["method"], r.about["comparator"]) for r in rows}
    assert {frozenset(pair) for pair in pairs} == {
        frozenset(pair)
        for pair in (("mine", "shared"), ("mine", "original"), ("shared", "original"))
    }


def test_the_main_table_says_which_cells_it_took():
    """The first of a sweep's values, or the one named; a preset chooses as the paper."""
    records = pl.concat(
        [
            study_records(("scifact",), ("original", "desa"), kappa="2"),
            study_records(("scifact",), ("original", "desa"), kappa="60"),
            cell("scifact", "desa", n_refs=1, kappa="2"),
            study_records(
                ("scifact",), ("original", "desa"), kappa="2", corpus_docs=1000, qrels_hash="small"
            ),
        ],
        how="diagonal_relaxed",
    )

    def about(**options) -> str:
        table = main_table(Study(records, **options))
        assert table
        return table.about

    assert "κ 2;" in about()
    assert "5 references" in about()
    assert "SciFact: 5,183 documents, 30 queries" in about()
    assert "κ 60;" in about(primary={"kappa": "60"})
    assert "1,000 documents" in about(primary={"corpus_docs": 1000})
    assert "κ 60;" in about(usual=True, roles=PAPER)
    small = pl.col("corpus_docs") == 1000
    small_first = pl.concat([records.filter(small), records.filter(~small)])
    assert "1,000 documents" in main_table(Study(small_first)).about
    assert "5,183 documents" in main_table(Study(small_first, usual=True)).about


def test_the_papers_preset_shows_its_five_methods():
    """The paper's main table holds its five constructions, whatever else was run."""
    records = study_records(("scifact",), (*CONSTRUCTIONS, "hyde", "binary_mask"))
    table = main_table(Study(records, roles=PAPER, usual=True))
    assert [row.about["method"] for row in table.rows] == list(CONSTRUCTIONS)
    assert {"hyde", "binary_mask"} <= {r.about["method"] for r in main_table(Study(records)).rows}
