"""Certified search: exact tops of lists in memory, SQLite and a server that misbehaves."""

import json
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

import desa_ray
from desa_ray.certified import certified_search
from desa_ray.engine_channels import ListChannel, Page, PagedChannel, SqliteChannel, search_after
from desa_ray.errors import DesaError


class Plain:
    """A ranking that can only be read in order."""

    def __init__(self, name, ids, approximate=False):
        self.own = ListChannel(name, ids)
        self.name, self.approximate = name, approximate

    def next(self, n):
        return self.own.next(n)


def rankings(seed, documents=400, length=300):
    random_ = random.Random(seed)
    near = {f"d{n:03}": random_.random() for n in range(documents)}
    found = []
    for _ in range(2):
        noisy = {d: x + 0.3 * random_.random() for d, x in near.items()}
        found.append(sorted(noisy, key=lambda d: -noisy[d])[: random_.randint(5, length)])
    return found


@pytest.mark.parametrize("kind", [Plain, ListChannel])
def test_the_top_is_that_of_whole_lists(kind):
    """By sorted access within a page of the depths; by look-ups with fewer reads."""
    for seed in range(12):
        lists = rankings(seed)
        whole = desa_ray.fuse(lists, k=7)
        found = certified_search([kind("a", lists[0]), kind("b", lists[1])], 7, page=5)
        assert found.documents == whole.documents
        assert found.complete
        assert found.relative == ()
        for depth, read in zip(whole.depths, found.read.values(), strict=True):
            assert read <= depth + 5
        assert bool(sum(found.looked_up.values())) == (kind is ListChannel)


def test_weights_and_short_lists():
    lists = [["x", "y"], ["z", "y", "x", "w"], []]
    whole = desa_ray.fuse(lists, weights=[1, "1/2", 2], kappa=1, k=10)
    channels = [Plain(name, own) for name, own in zip("abc", lists, strict=True)]
    found = certified_search(channels, 10, 1, weights=[1, "1/2", 2], page=1)
    assert found.documents == whole.documents
    assert found.ended == {"a": True, "b": True, "c": True}


def test_a_budget_gives_a_beginning_and_intervals():
    """What is proved holds whatever follows; intervals hold the final ranks."""
    beginnings = 0
    for seed in range(12):
        lists = rankings(seed)
        order = list(desa_ray.fuse(lists, k=400).documents)
        channels = [Plain("a", lists[0]), Plain("b", lists[1], approximate=True)]
        found = certified_search(channels, 10, budget=60, page=10)
        assert sum(found.read.values()) <= 60
        assert order[: len(found.documents)] == list(found.documents)
        beginnings += 0 < len(found.documents) < 10
        for document, (best, worst) in found.intervals.items():
            rank = order.index(document) + 1
            assert best <= rank <= (worst or 400)
        assert found.relative == ("b",)
        assert "relative to the lists that b return" in str(found)
    assert beginnings


def test_sqlite_is_read_and_asked():
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE docs USING fts5(id UNINDEXED, text)")
    random_, words = random.Random(2), ["star", "moon", "sea", "tree", "stone"]
    rows = [(f"d{n:03}", " ".join(random_.choices(words, k=9))) for n in range(200)]
    connection.executemany("INSERT INTO docs VALUES (?, ?)", rows)
    ranked = "SELECT id FROM docs WHERE docs MATCH ? ORDER BY bm25(docs), id"
    lists = [[d for (d,) in connection.execute(ranked, (q,))] for q in ("star moon", "sea")]
    channels = [
        SqliteChannel(name, connection, "docs", "id", query)
        for name, query in (("a", "star moon"), ("b", "sea"))
    ]
    found = certified_search(channels, 5, page=4)
    whole = desa_ray.fuse(lists, k=5)
    assert found.documents == whole.documents
    assert sum(found.read.values()) < sum(whole.depths)
    assert max(found.read.values()) <= 72  # kappa + 2k, in pages of 4
    with pytest.raises(DesaError, match="SQLite error"):
        certified_search([SqliteChannel("a", connection, "gone", "id", "x")], 1)


class Engine(BaseHTTPRequestHandler):
    """Elasticsearch's search_after over a fixed ranking, with a fault from the second page on."""

    ids: ClassVar[list[str]] = []
    fault = ""
    asked = 0

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind = type(self)
        kind.asked += 1
        after = body.get("search_after")
        start = kind.ids.index(after[1]) + 1 if after else 0
        page = kind.ids[start : start + body["size"]]
        second = after is not None and kind.asked == 2
        if second and kind.fault == "repeat":
            page = kind.ids[: body["size"]]
        if second and kind.fault == "drop":
            page = kind.ids[start + body["size"] : start + 2 * body["size"]]
        if second and kind.fault == "reorder":
            page = page[::-1]
        if second and kind.fault == "time out":
            time.sleep(0.6)
        if second and kind.fault == "fail":
            self.send_error(503)
            return
        hits = [{"_id": d, "_score": self.score(d), "sort": [self.score(d), d]} for d in page]
        total = {"value": len(kind.ids), "relation": "eq"}
        text = json.dumps({"timed_out": False, "hits": {"total": total, "hits": hits}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def score(self, document):
        return 100.0 - type(self).ids.index(document)

    def log_message(self, *_):
        pass


@contextmanager
def engine(ids, fault) -> Iterator[str]:
    kind = type("Own", (Engine,), {"ids": ids, "fault": fault, "asked": 0})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/index/_search"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("", None),
        ("time out", None),
        ("fail", None),
        ("repeat", "has score 100.0, after one with"),
        ("reorder", "after one with"),
        ("drop", "the list ends after"),
    ],
)
def test_faults_of_pages_are_mended_or_refused(fault, what):
    """Late and failed pages are asked for again; others are no list that anything is proved of."""
    ids, other = [f"d{n:02}" for n in range(40)], [f"d{n:02}" for n in range(39, -1, -1)]
    with engine(ids, fault) as url:
        server = search_after("bm25", url, {"match_all": {}}, tie="id", timeout_s=0.3)
        channels = [server, Plain("dense", other)]
        if what is None:
            found = certified_search(channels, 5, page=6)
            assert found.documents == desa_ray.fuse([ids, other], k=5).documents
        else:
            with pytest.raises(DesaError, match=what):
                certified_search(channels, 5, page=6)


def test_what_cannot_be_a_list_is_refused():
    for ids, what in (
        (["x", "x"], "'x' is listed twice"),
        (["x", "y", "z"], "but 2 were requested"),
    ):
        channel = Plain("a", ids)
        channel.next = lambda n, ids=ids: ids
        with pytest.raises(DesaError, match=what):
            certified_search([channel, Plain("b", ["w"])], 3, page=2)
    late = PagedChannel("a", lambda cursor, n: (_ for _ in ()).throw(TimeoutError("late")))
    with pytest.raises(DesaError, match="no answer in 3 attempts: late"):
        certified_search([late], 1)
    grown = PagedChannel("a", lambda cursor, n: Page([("x", 1.0)], 1, 3 if cursor else 2))
    with pytest.raises(DesaError, match="the total changes from 2 to 3 hits"):
        certified_search([grown], 5)
    for settings, what in (({"k": 0}, "k is 0"), ({"kappa": -1}, "kappa is -1")):
        with pytest.raises(DesaError, match=what):
            certified_search([Plain("a", [])], **settings)
    with pytest.raises(DesaError, match="two channels have the same name"):
        certified_search([Plain("a", []), Plain("a", [])])


class Told(Plain):
    """A ranking that tells ranks of its own."""

    def __init__(self, name, ids, told):
        super().__init__(name, ids)
        self.told = told

    def ranks(self, ids):
        return {
            document: self.told(document, rank) for document, rank in self.own.ranks(ids).items()
        }


@pytest.mark.parametrize(
    ("told", "what"),
    [
        (lambda _, rank: rank - 1, "rank was told as|has rank"),
        (lambda _, rank: float(rank), "has rank"),
        (lambda _, rank: str(rank), "has rank"),
        (lambda _, rank: True, "has rank"),
        (lambda _, rank: 0, "has rank 0"),
        (lambda _, rank: rank + 40, "rank was told as"),
    ],
)
def test_ranks_that_cannot_be_are_refused(told, what):
    """Otherwise the proof would be of other lists."""
    one, two = [f"d{n}" for n in range(60)], [f"d{n}" for n in reversed(range(60))]
    channels = [Told("a", one, told), Told("b", two, told)]
    with pytest.raises(DesaError, match=what):
        certified_search(channels, 60, page=3)


def test_a_rank_of_what_was_not_asked_changes_nothing():
    one, two = ["x", "y", "z"], ["z", "w", "x", "v"]
    whole = desa_ray.fuse([one, two], k=3)

    class Chatty(ListChannel):
        def ranks(self, ids):
            return {**ListChannel.ranks(self, ids), "x": 1, "y": 1, "unknown": 1}

    with pytest.raises(DesaError, match=r"has rank 1, after|rank was told as"):
        certified_search([ListChannel("a", one), Chatty("b", two)], 3, page=1)
    found = certified_search([ListChannel("a", one), ListChannel("b", two)], 3, page=1)
    assert found.documents == whole.documents


@pytest.mark.parametrize("ids", [["a", None], ["a", 1], ["\ud800"], "abc", {"a", "b"}, [("a", 1)]])
def test_what_is_no_list_of_ids_is_refused(ids):
    class Odd(Plain):
        def next(self, n):
            del n
            return ids

    with pytest.raises(DesaError, match="odd: "):
        certified_search([Odd("odd", [])], 2)


def test_a_channel_that_was_read_is_refused():
    """A second search would count ranks from where the first one stopped."""
    channel = ListChannel("a", ["x", "y", "z"])
    assert certified_search([channel], 1, page=1).documents == ("x",)
    with pytest.raises(DesaError, match=r"a: has been read already.*make the channel again"):
        certified_search([channel], 1)


@pytest.mark.parametrize("value", [0, -1, 2.5, "3", True, float("nan"), 10**30])
def test_counts_that_are_no_counts_are_refused(value):
    for name in ("k", "page", "budget"):
        with pytest.raises(DesaError, match=f"{name}: {name} is "):
            certified_search([ListChannel("a", ["x"])], **{name: value})


def test_numeric_ids_of_sqlite_are_looked_up():
    """Ids that SQLite keeps as integers are found under their digits."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(id UNINDEXED, text)")
    rows = [(n, "fish " * (n % 7 + 1) + "swim " * (n % 3)) for n in range(40)]
    connection.executemany("INSERT INTO t VALUES (?, ?)", rows)

    def channels():
        words = (("a", "fish"), ("b", "swim"))
        return [SqliteChannel(name, connection, "t", "id", word) for name, word in words]

    lists = [list(own.next(100)) for own in channels()]
    assert all(isinstance(document, str) for own in lists for document in own)
    whole = desa_ray.fuse(lists, k=10)
    found = certified_search(channels(), 10, page=2)
    assert found.documents == whole.documents
    assert sum(found.looked_up.values()) > 0
    connection.execute("INSERT INTO t VALUES (NULL, 'fish')")
    with pytest.raises(DesaError, match="a: a row has no id in column 'id'"):
        certified_search(channels(), 50)


@pytest.mark.parametrize(
    "page",
    [
        Page([("a", "1")], None),
        Page([("a", None)], None),
        Page([("a", True)], None),
        Page([(1, 1.0)], None),
        Page([("", 1.0)], None),
        Page([("a", 1.0)], None, "5"),
        Page([("a", 1.0)], None, -1),
        Page([("a", 1.0)], None, True),
    ],
)
def test_pages_of_other_types_are_refused(page):
    channel = PagedChannel("p", lambda cursor, n: page)
    with pytest.raises(DesaError, match=r"p: .*(is not a hit|is not a count)"):
        channel.next(3)


@pytest.mark.parametrize("weights", [{1, 2}, {"a": 1, "b": 2}, "12", 5, [1], [1, 0], [1, "x"]])
def test_weights_without_order_or_number_are_refused(weights):
    """A set would give each channel any of the weights."""
    channels = [ListChannel("a", ["x", "y"]), ListChannel("b", ["y", "x"])]
    with pytest.raises(DesaError, match=r"weight|is not a list"):
        certified_search(channels, 1, weights=weights)
