"""`desa depth`: windows for people's own runs, against plain loops over exact fractions."""

import random
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from desa_ray.core.fusion import reference
from desa_ray.core.fusion.shards import shard_window
from desa_ray.core.fusion.windows import certified_window
from desa_ray.data.trec_writing import write_run
from desa_ray.errors import DesaError
from desa_ray.jobs.depth import main
from desa_ray.report.depth_advice import Advice, Case, advise, numbered_queries, windows_table

CASE = Case(Fraction(60), (Fraction(1), Fraction(1)), 5)


def made_up(queries: int, length: int, seed: int = 1) -> dict[str, dict[str, list[str]]]:
    """Two runs whose lists agree in part: noise moves each document of a common order."""
    random_ = random.Random(seed)
    runs: dict[str, dict[str, list[str]]] = {"a": {}, "b": {}}
    for query in range(queries):
        for run in runs.values():
            places = {f"d{n}": n + random_.gauss(0, 15) for n in range(4 * length)}
            run[f"q{query}"] = sorted(places, key=places.__getitem__)[:length]
    return runs


def test_shares_equal_those_of_plain_loops():
    runs = made_up(40, 300)
    queries = numbered_queries(runs)
    advice = advise(queries, CASE)
    assert advice.windows == (10, 20, 50, 100, 200, 300)
    for row, (query, (ids, lists)) in enumerate(queries.items()):
        proof = certified_window(lists, CASE.weights, CASE.kappa, CASE.k)
        assert advice.needed[row] == (0 if proof is None else proof[0])
        if proof is None:
            assert not advice.ordered[row].any()
            continue
        truth = reference.fuse_order(lists, CASE.weights, CASE.kappa, CASE.k).tolist()
        for place, length in enumerate(advice.windows):
            cut = [own[:length] for own in lists]
            top = reference.fuse_order(cut, CASE.weights, CASE.kappa, CASE.k).tolist()
            assert advice.ordered[row, place] == (top == truth)
            assert advice.same[row, place] == (set(top) == set(truth))
            assert advice.tops[place][query] == [ids[n] for n in top]
    proved = (advice.needed > 0)[:, None] & (advice.needed[:, None] <= np.array(advice.windows))
    assert (proved <= advice.ordered).all(), "what is proved is exact"


def advice_of(ordered: list[list[int]], needed: list[int]) -> Advice:
    exact = np.array(ordered, bool)
    windows = tuple(10 * (n + 1) for n in range(exact.shape[1]))
    queries = tuple(f"q{n}" for n in range(len(exact)))
    tops: tuple[dict[str, list[str]], ...] = tuple({} for _ in windows)
    return Advice(CASE, queries, windows, np.array(needed), exact, exact, tops)


def test_a_window_counts_only_if_all_larger_ones_hold():
    """Exactness is not monotone: the second query is right at 20, wrong at 30, right at 40."""
    advice = advice_of([[1, 1, 1, 1], [0, 1, 0, 1]], [10, 40])
    assert advice.smallest(0.95) == 40
    assert advice.smallest(0.5) == 10
    assert advice_of([[0, 0], [1, 1]], [0, 10]).smallest(0.95) is None


def test_queries_without_a_truth_widen_the_shares():
    table = windows_table(advice_of([[0, 1], [0, 0], [1, 1], [1, 1]], [20, 0, 10, 10]), None, [])
    first, second = (row.values for row in table.rows)
    assert (first["ordered"], second["ordered"]) == ((50.0, 75.0), (75.0, 100.0))
    assert (first["proved"], second["proved"]) == (50.0, 75.0)
    low, high = second["interval"]  # pyright: ignore[reportGeneralTypeIssues]
    assert low == pytest.approx(30.06, abs=0.01)  # Wilson, 3 of 4
    assert high == pytest.approx(100.0)
    text = "\n".join(table.notes)
    assert "1 of 4 queries" in text
    assert "at least 95 % of the queries are exact from L = more than 20 on" in text


def test_percentiles_that_runs_do_not_reach_are_bounds():
    """Of five queries two are unknown: the median is known, P95 and P99 are more than the runs."""
    table = windows_table(advice_of([[0, 1]] * 3 + [[0, 0]] * 2, [12, 15, 17, 0, 0]), None, [])
    wanted = "L = 17 (median), more than 20 (P95), more than 20 (P99)"
    assert wanted in "\n".join(table.notes)


def test_shards_hold_what_the_window_says():
    """Against all 3^6 ways to spread six documents, and random spreads of a hundred."""
    for length, shards in ((6, 3), (5, 2)):
        loads = [max(map(way.count, way)) for way in product(range(shards), repeat=length)]
        for risk in (0.5, 0.1, 0.01):
            found = shard_window(length, shards, risk)
            assert np.mean(np.array(loads) > found) <= risk
            assert found == length or np.mean(np.array(loads) > found - 1) > risk / shards
    spread = np.random.default_rng(2).multinomial(100, [0.2] * 5, size=20_000).max(axis=1)
    found = shard_window(100, 5)
    assert (spread > found).mean() <= 0.01 < (spread > found - 2).mean()
    assert shard_window(50, 1) == 50
    table = windows_table(advice_of([[1, 1]], [10]), None, [], [5])
    assert f"request {shard_window(10, 5)} for L = 10, " in "\n".join(table.notes)


def test_the_verb_writes_what_it_prints(tmp_path: Path, capsys):
    runs = made_up(12, 120)
    for name, run in runs.items():
        write_run(tmp_path / f"{name}.trec", run, tag=name)
    qrels = [f"{query} 0 d{n} 1" for query in runs["a"] for n in (0, 3)]
    (tmp_path / "qrels.txt").write_text("\n".join(qrels) + "\n")
    files = [str(tmp_path / "a.trec"), str(tmp_path / "b.trec")]
    options = ["--k", "3,5", "--kappa", "20,60", "--qrels", str(tmp_path / "qrels.txt")]
    assert main([*files, *options, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "top 3, kappa 20: 12 queries" in printed
    table = pl.read_csv(tmp_path / "out" / "windows.csv")
    assert table["case"].n_unique() == 4
    costs = table.filter(pl.col("window") == 120)["nDCG@10"].to_list()
    assert costs == [0.0] * 4
    queries = pl.read_csv(tmp_path / "out" / "queries.csv")
    assert queries.height == 48
    page = (tmp_path / "out" / "depth.html").read_text()
    assert "top 5, kappa 60" in page
    assert len(list((tmp_path / "out").glob("windows_*.svg"))) == 4


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (["--k", "0"], "--k"),
        (["--k", "x"], "--k"),
        (["--shards", "0"], "--shards"),
        (["--kappa", "-1"], "--kappa"),
        (["--weights", "1"], "--weights"),
        (["--weights", "0,1"], "--weights"),
    ],
)
def test_what_is_out_of_range_is_named_before_a_run_is_read(options, where, tmp_path):
    with pytest.raises(DesaError, match=rf"^{where}: "):
        main(["missing.trec", "missing2.trec", *options])
