"""A search with Optuna: better than chance, in parallel, and never twice for the same."""

import statistics
from os import getpid

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from desa_ray.errors import DesaError
from desa_ray.experiment.contents import content_hashes
from desa_ray.experiment.search import Choices, Numbers, Search, minimised
from hydra_plugins.desa_optuna import DesaOptunaSweeper, _searched
from tests.experiment.test_prepare import config

KAPPA = {"fusion.kappa": Numbers(1, 200, 1, whole=True)}
TRIALS, BATCH = 30, 5


def planted(kappa: float, best: float = 137.0) -> float:
    """1 at the optimum, falling off as nDCG does around a good kappa."""
    return 1 / (1 + ((kappa - best) / 25) ** 2)


def searched(seed: int) -> float:
    search, found = Search(KAPPA, ["ndcg_at_10"], seed=seed), []
    for _ in range(TRIALS // BATCH):
        trials = search.ask(BATCH)  # all of them before any is told
        for trial in trials:
            found.append(planted(float(trial.values["fusion.kappa"])))
            search.tell(trial, {"ndcg_at_10": found[-1]})
    assert search.finished == TRIALS
    return max(found)


def test_thirty_trials_of_two_hundred_beat_random_search():
    """The median over ten seeds, with five trials at a time."""
    ours = [searched(seed) for seed in range(10)]
    drawn = []
    for seed in range(10):
        values = np.random.default_rng(seed).integers(1, 201, TRIALS)
        drawn.append(max(planted(value) for value in values))
    assert statistics.median(ours) > statistics.median(drawn)


def test_a_search_goes_on_where_it_was_left(tmp_path):
    """What was told is not asked again; what was asked and never told comes first."""
    storage = f"sqlite:///{tmp_path / 'searches.db'}"

    def left() -> Search:
        return Search(KAPPA, ["ndcg_at_10"], storage=storage)

    first = left()
    asked = first.ask(4)
    for trial in asked[:2]:
        first.tell(trial, {"ndcg_at_10": planted(float(trial.values["fusion.kappa"]))})
    second = left()  # as after kill -9: nothing was closed
    assert second.finished == 2
    again = second.ask(3)
    assert [one.values for one in again[:2]] == [one.values for one in asked[2:]]
    assert again[2].values not in [one.values for one in asked]
    for trial in again:
        second.tell(trial, {"ndcg_at_10": 0.0})
    assert second.finished == 5
    others = [Search(KAPPA, ["ndcg_at_10"], **own) for own in ({"seed": 1}, {"fixed": ["k=1"]})]
    assert len({first.name, second.name, *(own.name for own in others)}) == 3


def test_a_search_is_one_commands_at_a_time(tmp_path):
    """The second is refused in one line that names the first, and goes on when that has ended."""
    storage, locks = f"sqlite:///{tmp_path / 'searches.db'}", tmp_path / "locks"

    def command(**own) -> Search:
        return Search(KAPPA, ["ndcg_at_10"], storage=storage, locks=locks, **own)

    first = command()
    asked = first.ask(2)
    with pytest.raises(DesaError, match=rf"search {first.name} is running .*process {getpid()} on"):
        command()
    command(seed=1).close()  # another search
    first.tell(asked[0], {"ndcg_at_10": 0.5})  # its trials are still its own
    first.close()
    second = command()
    assert (second.finished, second.ask(1)[0].values) == (1, asked[1].values)
    second.close()


def test_contents_of_data_are_hashed(collection):
    """The collection, and the recordings of the methods; neither their place nor their method."""
    one = config(collection, "method=desa")
    found = [content_hashes([one]), content_hashes([one, config(collection, "method=shared")])]
    assert found[0] == found[1]
    assert set(content_hashes([config(collection, "method=original")])) < set(found[0])
    for name in ("generations/references.jsonl", "corpus.jsonl"):
        file = collection / name
        file.write_text(file.read_text().replace("a", "b", 1))
        found.append(content_hashes([one]))
    assert len(set(map(tuple, found))) == 3
    assert len(found[0]) == 2


def test_an_interrupted_search_asks_what_it_would_have_asked(tmp_path):
    def batch(search: Search) -> list[dict]:
        trials = search.ask(4)
        for trial in trials:
            search.tell(trial, {"r": planted(float(trial.values["fusion.kappa"]))})
        return [dict(trial.values) for trial in trials]

    storage = f"sqlite:///{tmp_path / 'searches.db'}"
    whole = Search(KAPPA, ["r"])
    first, second = batch(whole), batch(whole)
    assert batch(Search(KAPPA, ["r"], storage=storage)) == first
    assert batch(Search(KAPPA, ["r"], storage=storage)) == second


def test_failures_and_values_without_a_number_are_told():
    search = Search(KAPPA, ["ndcg_at_10", "depth_total"])
    trials = search.ask(3)
    search.tell(trials[0], None)
    search.tell(trials[1], {"ndcg_at_10": None, "depth_total": 1.0})
    search.tell(trials[2], {"ndcg_at_10": 0.5, "depth_total": 3.0})
    assert [row["state"] for row in search.table()] == ["fail", "fail", "complete"]
    assert search.best() == [trials[2]]
    with pytest.raises(DesaError, match=r"no metric 'ndcg_at_10' \(did you mean ndcg_at_100"):
        search.tell(search.ask(1)[0], {"ndcg_at_100": 1.0})


def searched_for(text: str):
    return _searched(OverridesParser.create().parse_override(text))


def test_what_values_mean_to_a_search():
    """Choices as they are written; ranges with their last value; intervals whole where cast so."""
    assert searched_for("a=1/2,x,true,3") == Choices(("1/2", "x", True, 3))
    assert searched_for("a=range(1,201)") == Numbers(1, 200, 1, whole=True)
    assert searched_for("a=range(10,1,-3)") == Numbers(4, 10, 3, whole=True)
    assert searched_for("a=range(0.5,2,0.5)") == Numbers(0.5, 1.5, 0.5)
    assert searched_for("a=interval(1,9)") == Numbers(1, 9)
    assert searched_for("a=int(interval(1,9))") == Numbers(1, 9, whole=True)
    assert searched_for("a=tag(log,interval(1,9))") == Numbers(1, 9, log=True)
    for text in ("a=[1],[2]", "a=glob(*)"):
        with pytest.raises(DesaError, match="a: cannot be searched"):
            searched_for(text)
    # Hydra executes the modules of its plug-ins anew when it scans, so that an object of a class
    # imported before cannot be set up by it.
    sweeper = DesaOptunaSweeper.__new__(DesaOptunaSweeper)
    sweeper.grids, sweeper.together, sweeper.seed, sweeper.params = None, 5, 0, None
    sweeper.objectives = ["ndcg_at_10"]
    for trials, words in ((0, "trials: is 0"), (1, "no setting is searched")):
        sweeper.trials = trials
        with pytest.raises(DesaError, match=words):
            sweeper._divided(["fusion.kappa=3"])


def test_several_objectives_give_a_front():
    search = Search({"a": Choices((1, 2, 3))}, ["ndcg_at_10", "depth_total"])
    seen = {}
    for trial in search.ask(12):
        value = trial.values["a"]
        seen[value] = trial
        search.tell(trial, {"ndcg_at_10": {1: 0.5, 2: 0.6, 3: 0.4}[value], "depth_total": value})
    front = {trial.values["a"] for trial in search.best()}
    assert front == {1, 2} & set(seen)
    assert [minimised(name) for name in ("depth_total", "ndcg_at_10")] == [True, False]
