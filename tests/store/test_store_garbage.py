"""Cleaning up: what kept results are built on stays, what nobody needs goes, and whoever is at work
is left alone.
"""

import os
import time
from pathlib import Path

import pytest

from desa_ray.errors import DesaError
from desa_ray.jobs import store as command
from desa_ray.store.artifacts import Store
from desa_ray.store.garbage import judged, sweep_out
from desa_ray.store.keys import Key
from desa_ray.store.leases import Lease

CONTENT = "ab" * 32
CORPUS = Key("corpus", 1, {"content": CONTENT}, {})
RECORD = Key("collection", 1, {"source": "somewhere"}, {})
VECTORS = Key("vectors", 1, {"encoder": "e"}, {"corpus": CORPUS.digest})
RANKING = Key("ranking", 1, {"operator": "original"}, {"vectors": VECTORS.digest})
FUSION = Key("fusion", 1, {"kappa": "60"}, {"channel": RANKING.digest, "corpus": CORPUS.digest})
OTHER = Key("fusion", 1, {"kappa": "2"}, {"channel": RANKING.digest, "corpus": CORPUS.digest})
ALONE = Key("ranking", 1, {"operator": "residual"}, {"vectors": VECTORS.digest})
QUERIES = Key("queries", 1, {"content": "cd" * 32}, {})
TEXT = Key("generation", 2, {"generator": {"model": "m"}}, {"queries": QUERIES.digest})
RECORDED = Key("generation", 2, {"generator": "recorded"}, {"queries": QUERIES.digest})
FINISHED = (CORPUS, RECORD, VECTORS, RANKING, FUSION, OTHER, ALONE)


@pytest.fixture
def store(tmp_path) -> Store:
    """All of `FINISHED`, and one ranking that was never finished; nothing was touched
    for ten days.
    """
    store = Store(tmp_path / "store")
    for key in FINISHED:
        finish(store, key)
    store.artifact(Key("ranking", 1, {"operator": "product"}, {})).write_part(
        "docs-00000.npy", b"half", rows=1
    )
    return aged(store)


def finish(store: Store, key: Key) -> None:
    artifact = store.artifact(key)
    artifact.write_part("part-00000.npy", key.digest.encode(), rows=1)
    artifact.finish(CONTENT, counts={}, meta={"tables": {"corpus": CONTENT}})


def aged(store: Store, days: float = 10) -> Store:
    for path in Path(store.files.root).rglob("*"):
        os.utime(path, (time.time() - days * 86_400,) * 2)
    return store


def gone(store: Store, *roots: Key, older_than_s: float = 86_400, **options) -> set[str]:
    """Removes what may go; the stage and first parameter of each."""
    verdicts = judged(store, [root.digest for root in roots], older_than_s, **options)
    before = {path for path in Path(store.files.root).rglob("*") if path.is_file()}
    removed = list(sweep_out(store, verdicts))
    after = {path for path in Path(store.files.root).rglob("*") if path.is_file()}
    folders = {f"{own.stage}/{own.short}" for own in removed}
    assert {str(path.parent.relative_to(store.files.root)) for path in before - after} == folders
    return {
        f"{own.stage} {next(iter(own.key.params.values())) if own.key else '?'}" for own in removed
    }


def test_what_a_result_is_built_on_stays_and_the_rest_goes(store):
    assert gone(store, FUSION) == {"fusion 2", "ranking residual", "ranking ?"}
    for key in (CORPUS, RECORD, VECTORS, RANKING, FUSION):
        store.artifact(key).verify()
    assert gone(store, FUSION) == set()


def test_without_runs_everything_goes_but_what_is_fresh(store):
    assert gone(store, older_than_s=20 * 86_400) == set()
    assert len(gone(store)) == len(FINISHED) + 1
    assert list(store.list()) == []


def test_a_running_sweep_keeps_what_it_names_finished_or_not(store):
    unfinished = Key("ranking", 1, {"operator": "product"}, {})
    with Lease.acquire(store.files, "sweep", [OTHER.digest, unfinished.digest]):
        assert gone(store) == {"fusion 60", "ranking residual"}
    assert gone(store, OTHER) == {"ranking ?"}


def test_nothing_goes_while_a_sweep_makes_its_plan(store):
    with Lease.acquire(store.files, "sweep") as lease:
        with pytest.raises(DesaError, match="has not yet recorded what it uses: sweep"):
            judged(store, [], 0)
        lease.refer([FUSION.digest])
        assert "fusion 60" not in gone(store)


def test_a_sweep_that_begins_between_the_plan_and_the_removal(store):
    """A sweep that begins between the plan and the removal is seen."""
    verdicts = judged(store, [], 86_400)
    with Lease.acquire(
        store.files, "sweep", [key.digest for key in (FUSION, RANKING, VECTORS, CORPUS)]
    ):
        removed = {own.short for own in sweep_out(store, verdicts)}
    assert removed.isdisjoint({key.short for key in (FUSION, RANKING, VECTORS, CORPUS)})
    assert OTHER.short in removed


def test_what_changed_between_the_plan_and_the_removal_stays(store):
    verdicts = judged(store, [], 86_400)
    unfinished = store.artifact(Key("ranking", 1, {"operator": "product"}, {}))
    unfinished.write_part("docs-00001.npy", b"more", rows=1)
    removed = list(sweep_out(store, verdicts))
    assert len(removed) == len(FINISHED)
    assert set(unfinished.parts()) == {"docs-00000.npy", "docs-00001.npy"}


def test_live_text_stays_with_its_queries_unless_it_is_named(store):
    for key in (QUERIES, TEXT, RECORDED):
        finish(store, key)
    aged(store)
    assert gone(store, FUSION) == {
        "fusion 2",
        "ranking residual",
        "ranking ?",
        "generation recorded",
    }
    assert gone(store, FUSION, texts=True) == {f"queries {'cd' * 32}", "generation {'model': 'm'}"}


def test_a_damaged_manifest_of_what_is_needed_stops_the_cleaning(store):
    path = Path(store.files.root) / "ranking" / RANKING.short / "manifest.json"
    path.chmod(0o644)
    path.write_text(path.read_text().replace("original", "0riginal"))
    with pytest.raises(DesaError, match=f"is needed and damaged.*ranking/{RANKING.short}"):
        judged(store, [FUSION.digest], 0)


def test_what_killed_writers_left_goes_with_its_folder(store):
    folder = Path(store.files.root) / "fusion" / OTHER.short
    (folder / ".tmp-0123-part.npy").write_bytes(b"half a file")
    aged(store)
    gone(store, FUSION)
    assert not folder.exists()


@pytest.mark.parametrize(("older_than_s", "kept"), [(86_400, True), (0, False)])
def test_a_time_ahead_of_the_clock_counts_as_now(store, older_than_s, kept):
    """After a jump of the clock: such an artifact is neither older than a day, nor kept whatever
    the limit says.
    """
    aged(store, days=-400)
    removed = gone(store, FUSION, older_than_s=older_than_s)
    assert (removed == set()) == kept


def test_list_tells_times_that_no_calendar_has(store, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("DESA_HOME", str(tmp_path))
    assert [command._when(moment) for moment in (1e13, -1e13, 1e300)] == ["unknown"] * 3
    aged(store, days=-400)
    assert command.main(["list", "--no-runs"]) == 0
    assert "ahead of this clock" in capsys.readouterr().out


BAD = {
    "cut": b'{"key": "' + b"a" * 64,
    "not UTF-8": b'{"key": "\xff"}',
    "deep": b"[" * 100_000,
    "empty": b"",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_gc_refuses_where_what_a_file_refers_to_is_unknown(
    store, monkeypatch, capsys, tmp_path, data
):
    monkeypatch.setenv("DESA_HOME", str(tmp_path))
    outputs, entry = (
        tmp_path / "out" / "manifest.json",
        tmp_path / "outbox" / "a" / "b" / "00001.json",
    )
    for file, arguments in ((outputs, ["--keep", str(outputs.parent)]), (entry, [])):
        file.parent.mkdir(parents=True)
        file.write_bytes(data)
        with pytest.raises(DesaError, match="is damaged, so what it refers to is unknown") as told:
            command.main(["gc", *arguments])
        assert told.value.where == str(file)
        file.unlink()
