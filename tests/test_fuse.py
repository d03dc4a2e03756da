"""`desa_ray.fuse` and `desa fuse`, for people who bring their own rankings."""

import gzip
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import desa_ray
from desa_ray.data.trec import read_run
from desa_ray.errors import DesaError
from desa_ray.jobs.cli.given_runs import run_names
from desa_ray.jobs.fuse import main
from tests.reference import GOLDEN


@pytest.mark.parametrize(
    "step", [4, pytest.param(1, marks=pytest.mark.slow)], ids=["a quarter", "all"]
)
def test_golden_cases_through_the_public_function(step):
    for path in GOLDEN[::step]:
        case = json.loads(path.read_text(encoding="utf-8"))
        expected = case["expected"]
        result = desa_ray.fuse(
            case["channels"], weights=case["weights"], kappa=case["kappa"], k=case["K"]
        )
        assert list(result.documents) == expected["topk"], path.name
        assert [str(score) for score in result.scores] == expected["scores"][
            : len(expected["topk"])
        ], path.name
        assert list(result.depths) == expected["depths"], path.name
        assert list(result.exhausted) == expected["exhausted"], path.name
        assert result.steps == expected["steps"], path.name


def test_defaults_are_equal_weights_kappa_60_and_the_first_20():
    result = desa_ray.fuse([["a", "b"], ["b", "c"]])
    assert result.documents == ("b", "a", "c")
    assert result.scores == (Fraction(123, 3782), Fraction(1, 61), Fraction(1, 62))
    assert result.exhausted == (True, True)
    assert (result.depths, result.steps) == ((2, 2), 4)
    many = [str(n) for n in range(100)]
    assert desa_ray.fuse([many, many]).documents == tuple(many[:20])


def test_weights_of_zero_make_a_channel_absent():
    with_zero = desa_ray.fuse([["a", "b"], ["z"], ["b", "a"], []], weights=[1, 0, "1/2", 0], k=2)
    without = desa_ray.fuse([["a", "b"], ["b", "a"]], weights=[Fraction(1), 0.5], k=2)
    assert with_zero.documents == without.documents == ("a", "b")
    assert with_zero.scores == without.scores
    assert with_zero.depths == (without.depths[0], 0, without.depths[1], 0)
    assert with_zero.exhausted == (without.exhausted[0], False, without.exhausted[1], True)


def test_proportional_weights_change_scores_only():
    channels = [["a", "b", "c"], ["c", "d", "a"]]
    one, quarter = (desa_ray.fuse(channels, weights=[w, w], k=2) for w in (1, "1/4"))
    assert (one.documents, one.depths, one.steps) == (
        quarter.documents,
        quarter.depths,
        quarter.steps,
    )
    assert [4 * score for score in quarter.scores] == list(one.scores)


def test_any_rational_kappa_above_minus_one_is_exact():
    result = desa_ray.fuse([["a", "b"], ["b", "a"]], kappa="-1/2", k=1)
    assert result.documents == ("a",)
    assert result.scores == (Fraction(2) + Fraction(2, 3),)
    assert desa_ray.fuse([["a"]], kappa=0.1).scores == (Fraction(10, 11),)
    assert desa_ray.fuse([["a"]], kappa=np.float64(0.5)).scores == (Fraction(2, 3),)
    assert desa_ray.fuse([["a"]], kappa="1/1000000000000000000000").documents == ("a",)


@pytest.mark.parametrize(
    ("channels", "options", "message"),
    [
        ([["a"], ["b", "c", "b"]], {}, "channel 1: document 'b' is listed twice"),
        ([["a", 3]], {}, "channel 0: document id 3 is not a string"),
        (["abc"], {}, "channel 0: 'abc' is not a list of document ids"),
        ([["\ud800"]], {}, r"channel 0: document id '\\ud800' holds a lone surrogate"),
        ([["a"], ["\ud800"]], {"weights": [1, 0]}, "channel 1: document id"),
        ([["a"], ["b"]], {"weights": [1, -1]}, "channel 1: weight -1 is negative"),
        ([["a"], ["b"]], {"weights": [1]}, "2 channels but 1 weights"),
        ([["a"]], {"weights": [0]}, "no channel has a positive weight"),
        ([["a"]], {"weights": ["much"]}, "weight 'much' is not a number"),
        ([["a"]], {"weights": ["1/0"]}, "weight '1/0' is not a number"),
        ([["a"]], {"weights": [float("nan")]}, "weight nan is not a number"),
        ([], {}, "there are no channels"),
        ([["a"]], {"kappa": -1}, "kappa is -1, expected a number above -1"),
        ([["a"]], {"k": -1}, "k: k is -1 .use 0 or more"),
        ([["a"]], {"k": 1.5}, "k 1.5 is not a whole number"),
    ],
)
def test_bad_input_is_refused_in_one_printable_line(channels, options, message):
    with pytest.raises(DesaError, match=message) as refused:
        desa_ray.fuse(channels, **options)
    str(refused.value).encode()
    assert "\n" not in str(refused.value)


def test_a_dict_is_ordered_by_score_and_ties_by_id():
    scores = {"c": 1.0, "a": 0.5, "d": 7, "b": Fraction(1, 2), "e": -3, "f": np.float32(2)}
    expected = ["d", "f", "c", "a", "b", "e"]
    assert list(desa_ray.fuse([scores]).documents) == expected
    assert list(desa_ray.fuse([dict(reversed(scores.items()))]).documents) == expected
    mixed = desa_ray.fuse([scores, ["e", "d"]], k=3)
    assert mixed == desa_ray.fuse([expected, ["e", "d"]], k=3)
    assert list(desa_ray.fuse([{"a": 1, "B": 1, "é": 1, "Z": 1.0}]).documents) == [
        "B",
        "Z",
        "a",
        "é",
    ]
    near = {"a": 2**53, "b": 2.0**53 + 2, "c": 2**53 + 1}  # compared exactly, not as floats
    assert list(desa_ray.fuse([near]).documents) == ["b", "c", "a"]
    assert desa_ray.fuse([{}, ["a"]]).documents == ("a",)


@pytest.mark.parametrize(
    ("channel", "what"),
    [
        ({"a", "b"}, "a set has no order"),
        (frozenset("ab"), "a frozenset has no order"),
        ({"a": 1, "b": 2}.keys(), "a dict_keys has no order"),
        ({"a": 1, "b": 2}.items(), "a dict_items has no order"),
        ({"a": "b"}.values(), "a dict_values has no order"),
        ((name for name in "ab"), "a generator is not a list"),
        (iter(["a"]), "a list_iterator is not a list"),
        (map(str, [1]), "a map is not a list"),
        ("ab", "'ab' is not a list"),
        (b"ab", "b'ab' is not a list"),
        (None, "a NoneType is not a list"),
        (7, "a int is not a list"),
        ([("a", 1.0)], "is not a string (give pairs of ids and scores as a dict)"),
        ([["a", 1.0]], "is not a string"),
        ({"a": float("nan"), "b": 1}, "score nan of document 'a' is not a finite number"),
        ({"a": float("inf")}, "score inf of document 'a'"),
        ({"a": np.float64("nan")}, "of document 'a' is not a finite number"),
        ({"a": "1"}, "score '1' of document 'a'"),
        ({"a": True}, "score True of document 'a'"),
        ({"a": None}, "score None of document 'a'"),
        ({1: 1.0}, "document id 1 is not a string"),
        ({"\ud800": 1.0}, "holds a lone surrogate"),
    ],
)
def test_channels_without_an_order_or_a_score_are_refused(channel, what):
    for channels in ([channel], [["x"], channel]):
        with pytest.raises(DesaError) as refused:
            desa_ray.fuse(channels)
        assert refused.value.where == f"channel {len(channels) - 1}"
        assert what in str(refused.value)
        if not isinstance(channel, list | str | bytes | dict):
            assert "give a list" in refused.value.hint


@pytest.mark.parametrize(
    "channels", [{"bm25": ["a"]}, {("a", "b")}, "ab", (own for own in [["a"]])]
)
def test_channels_themselves_must_have_an_order(channels):
    with pytest.raises(DesaError, match=r"channels: .* have no order") as refused:
        desa_ray.fuse(channels)
    assert refused.value.hint == "give a list of channels"


def test_a_thousand_channels_are_fused_exactly():
    rng = np.random.default_rng(1)
    names = [f"d{n}" for n in range(60)]
    channels = [[names[n] for n in rng.permutation(60)[: rng.integers(0, 30)]] for _ in range(1000)]
    result = desa_ray.fuse(channels, k=5)
    scores = {name: Fraction(0) for name in names}
    for channel in channels:
        for rank, name in enumerate(channel, 1):
            scores[name] += Fraction(1, 60 + rank)
    assert list(result.documents) == sorted(names, key=lambda name: (-scores[name], name))[:5]
    assert result.scores[0] == max(scores.values())
    assert len(result.depths) == 1000


def test_importing_the_package_stays_light():
    program = (
        "import sys, desa_ray; print([m for m in ('numba', 'numpy', 'polars', 'ray', 'mlflow') if m"
        " in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
    assert desa_ray.__version__


def test_third_party_rrf_is_reproduced_rank_for_rank(treccovid_runs, tmp_path, capsys):
    """All 35 topics x 1000 ranks of a published RRF of three runs, exact ties included, and its
    scores within 1e-6.

    Its authors break exact ties by ascending id as we do, so no rank is excepted.
    """
    folder = treccovid_runs
    paths = [folder / f"r2.{name}.trec.gz" for name in ("abstract", "fulltext", "paragraph")]
    assert main([*map(str, paths), "--kappa", "60", "--k", "20", "--out", str(tmp_path)]) == 0
    published = read_run(folder / "r2.rrf60.trec.gz")
    fused = read_run(tmp_path / "fused.trec")
    assert len(fused) == 35
    assert fused == published

    scores = {}
    for line in gzip.decompress((folder / "r2.rrf60.trec.gz").read_bytes()).decode().splitlines():
        query, _, document, _, score, _ = line.split()
        scores[query, document] = float(score)
    runs = [read_run(path) for path in paths]
    depths = pl.read_parquet(tmp_path / "depths.parquet")
    for query, documents in fused.items():
        result = desa_ray.fuse([run[query] for run in runs], k=300)
        assert list(result.documents) == documents[:300]
        for document, score in zip(result.documents, result.scores, strict=True):
            assert float(score) == pytest.approx(scores[query, document], abs=1e-6)
        row = depths.row(by_predicate=pl.col("query_id") == query, named=True)
        shallow = desa_ray.fuse([run[query] for run in runs])
        assert (
            tuple(row[f"depth_r2.{name}"] for name in ("abstract", "fulltext", "paragraph"))
            == shallow.depths
        )
        assert row["steps"] == shallow.steps
    assert pl.read_csv(tmp_path / "depths.csv", schema=depths.schema).equals(depths)
    assert "35 queries" in capsys.readouterr().out


def test_a_query_that_a_run_lacks_is_an_empty_channel(tmp_path):
    """A query that a run lacks is an empty channel and counted."""
    for name, text in (
        ("a", "q1 Q0 x 1 2 t\nq1 Q0 y 2 1 t\nq2 Q0 z 1 1 t\n"),
        ("b", "q1 Q0 y 1 1 t\n"),
    ):
        (tmp_path / f"{name}.trec").write_text(text)
    runs = [str(tmp_path / "a.trec"), str(tmp_path / "b.trec")]
    assert (
        main([*runs, "--out", str(tmp_path / "new" / "out"), "--weights", "1,1/2", "--depth", "1"])
        == 0
    )
    assert read_run(tmp_path / "new" / "out" / "fused.trec") == {"q1": ["y"], "q2": ["z"]}
    depths = pl.read_parquet(tmp_path / "new" / "out" / "depths.parquet")
    assert depths["query_id"].to_list() == ["q1", "q2"]
    assert depths["length_b"].to_list() == [1, 0]
    assert depths["exhausted_b"].to_list() == [True, True]
    assert depths["depth_a"].to_list() == [2, 1]
    assert depths["fused"].to_list() == [2, 1]


def test_runs_of_one_file_name_keep_their_columns_apart(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.trec").write_text("q Q0 x 1 2 t\n")
    main(
        [
            str(tmp_path / "one" / "run.trec"),
            str(tmp_path / "two" / "run.trec"),
            "--out",
            str(tmp_path),
        ]
    )
    assert {"depth_one_run", "depth_two_run"} <= set(
        pl.read_parquet(tmp_path / "depths.parquet").columns
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--weights", "1"], "2 runs but 1 weights"),
        (["--weights", "1,0"], "weight 0 is not above 0"),
        (["--kappa", "-1"], "--kappa: kappa is -1"),
        (["--kappa", "sixty"], "kappa 'sixty' is not a number"),
        (["--kappa", "1_0"], "kappa '1_0' is not a number"),
        (["--kappa", "\u0663"], "kappa .* is not a number"),
        (["--k", "-1"], r"--k: -1 is out of range \(use 0 or more"),
    ],
)
def test_the_command_refuses_numbers_out_of_range(tmp_path, options, message):
    run = tmp_path / "a.trec"
    run.write_text("q Q0 x 1 2 t\n")
    with pytest.raises(DesaError, match=message):
        main([str(run), str(run), "--out", str(tmp_path), *options])


@pytest.mark.parametrize("kappa", ["1e999999999", "1e-999999999", "2E1000"])
def test_an_exponent_that_takes_for_ever_is_refused_at_once(kappa):
    with pytest.raises(DesaError, match=f"kappa '{kappa}' is not a number"):
        desa_ray.fuse([["d1"], ["d1"]], kappa=kappa, k=1)


@pytest.mark.parametrize("weights", [1, "12", {1: 2}, {1, 2}, b"12"])
def test_weights_without_order_are_refused(weights):
    with pytest.raises(DesaError, match=r"^weights: .*one weight per channel"):
        desa_ray.fuse([["a"], ["b"]], weights=weights)


@pytest.mark.parametrize(
    "given", [{"channels": 3}, {"channels": None}, {"k": "9" * 5000}, {"kappa": "x" * 9000}]
)
def test_odd_arguments_are_one_short_error(given):
    with pytest.raises(DesaError) as refused:
        desa_ray.fuse(**{"channels": [["a"]], **given})
    assert len(str(refused.value)) < 300
    assert next(iter(given)) in str(refused.value)
    assert refused.value.hint


def test_every_run_has_a_name_of_its_own():
    """A name that a number was added to may be that of a third run; a file's name need not be
    text.
    """
    paths = [Path("F/a.trec"), Path("F/a.trec.gz"), Path("F/a_1.trec")]
    assert len(set(run_names(paths))) == 3
    assert run_names([Path("x/a.trec"), Path("y/a.trec"), Path("y/b")]) == ["x_a", "y_a", "y_b"]
    assert run_names([Path("F/a\udcff.trec"), Path("F/b\x1b")]) == [r"a\udcff", r"b\x1b"]
