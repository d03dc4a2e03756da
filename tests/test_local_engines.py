"""Engines in this process: certified search over their lists, and audits of their own fusions."""

import json
from fractions import Fraction

import pytest

import desa_ray
from desa_ray.certified import CountingChannel, ScoringChannel, certified_search
from desa_ray.core.audit.evidence import Evidence, evidence_of
from desa_ray.core.audit.explain import explain
from desa_ray.core.audit.impossible import by_rule
from desa_ray.errors import DesaError
from desa_ray.jobs.audit import main
from desa_ray.local_channels import QdrantList, edge_search, qdrant_search, tantivy_search
from desa_ray.rules import rule_from
from tests.local_engines import QUERIES, LocalEngines, words

KINDS = ("sqlite", "tantivy", "qdrant dense", "qdrant words", "edge dense", "edge words")
PAIRS = [
    ("sqlite", "qdrant dense"),
    ("tantivy", "qdrant dense"),
    ("tantivy", "edge dense"),
    ("edge words", "edge dense"),
    ("sqlite", "tantivy", "qdrant words"),
]
LEGS, LIMIT = 50, 20
FUSIONS = {
    "rrf": ({"name": "rrf", "kappa": "1"}, "reciprocal rank fusion, kappa 1 with ranks from 1"),
    "rrf 61": ({"name": "rrf", "kappa": "60"}, "reciprocal rank fusion, kappa 60 with ranks from"),
    "dbsf": ({"name": "dbsf"}, "sum of dbsf scores"),
    "weighted": ({"name": "qdrant_rrf", "kappa": "2", "weights": ["3", "1"]}, None),
}


@pytest.fixture(scope="module")
def engines(demo_slice, tmp_path_factory) -> LocalEngines:
    return LocalEngines(demo_slice, tmp_path_factory.mktemp("shards"))


def order_of(lists: list[list[str]], kappa: int = 60) -> list[str]:
    """Reciprocal rank fusion of complete lists, by definition."""
    scores: dict[str, Fraction] = {}
    for own in lists:
        for rank, document in enumerate(own, 1):
            scores[document] = scores.get(document, Fraction(0)) + Fraction(1, kappa + rank)
    return sorted(scores, key=lambda document: (-scores[document], document))


@pytest.mark.parametrize("kind", KINDS)
def test_pages_are_the_engines_own_list(engines, kind):
    """Read by 17 they are what one call of the engine gives, with its scores, to the end."""
    for text in engines.queries[:24:2]:
        whole, channel = engines.whole(kind, text), engines.channel(kind, text)
        read: list[str] = []
        while len(page := channel.next(17)) == 17:
            read += page
        assert [*read, *page] == [document for document, _ in whole]
        some = whole[::7]
        assert isinstance(channel, ScoringChannel)
        assert channel.scores([*(d for d, _ in some), "absent", "7"]) == dict(some)
        assert isinstance(channel, CountingChannel) == (kind == "sqlite")


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_certified_tops_are_those_of_complete_lists(engines, pair):
    saved = 0
    for text in engines.queries[:8]:
        lists = [[document for document, _ in engines.whole(kind, text)] for kind in pair]
        order = order_of(lists)
        for k in (1, 5, 10, 30):
            channels = [engines.channel(kind, text) for kind in pair]
            found = certified_search(channels, k, page=5)
            assert found.complete
            assert list(found.documents) == order[:k]
            assert set(found.no_ranks) == {*pair} - {"sqlite"}
            assert found.relative == ()
            depths = desa_ray.fuse(lists, k=k).depths
            for kind, depth in zip(pair, depths, strict=True):
                assert found.read[kind] <= depth + 5
            saved += sum(map(len, lists)) - sum(found.read.values())
    assert saved > 0


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_a_budget_gives_a_certified_prefix(engines, pair):
    beginnings = 0
    for text in engines.queries[:16]:
        lists = [[document for document, _ in engines.whole(kind, text)] for kind in pair]
        order = order_of(lists)
        channels = [engines.channel(kind, text) for kind in pair]
        found = certified_search(channels, 10, budget=24, page=6)
        assert sum(found.read.values()) <= 24
        assert list(found.documents) == order[: len(found.documents)]
        beginnings += len(found.documents) > 0
        for document, (best, worst) in found.intervals.items():
            assert best <= order.index(document) + 1 <= (worst or len(order))
    assert beginnings


def test_a_cosine_list_of_local_mode_is_read_once():
    """Local mode normalises its vectors again for each query, which moves scores."""
    from qdrant_client import QdrantClient, models

    client = QdrantClient(":memory:")
    size = models.VectorParams(size=3, distance=models.Distance.COSINE)
    client.create_collection("docs", size)
    rows = [[float(n % 7), float(n % 11), float(n % 13) + 0.5] for n in range(60)]
    client.upsert("docs", [models.PointStruct(id=n, vector=row) for n, row in enumerate(rows)])
    channel = qdrant_search("dense", client, "docs", QdrantList([0.3, 0.2, 0.1]))
    read: list[str] = []
    while page := channel.next(7):
        read += page
        client.query_points("docs", query=[0.3, 0.2, 0.1], limit=60)
    assert sorted(read, key=int) == [*map(str, range(60))]
    assert set(channel.scores(["3", "03", "x", "60"])) == {"3"}
    far = models.Filter(must=[models.HasIdCondition(has_id=[1, 2])])
    assert len(qdrant_search("d", client, "docs", QdrantList(rows[1], condition=far)).next(9)) == 2


def test_distances_are_turned_round():
    """Euclidean distances: the nearest first."""
    from qdrant_client import QdrantClient, models

    client = QdrantClient(":memory:")
    size = models.VectorParams(size=1, distance=models.Distance.EUCLID)
    client.create_collection("docs", size)
    points = [models.PointStruct(id=n, vector=[float(n)]) for n in (5, 1, 3)]
    client.upsert("docs", points)
    channel = qdrant_search("near", client, "docs", QdrantList([0.0], distances=True))
    assert channel.next(9) == ["1", "3", "5"]
    assert channel.scores(["3"]) == {"3": -3.0}


def test_what_engines_refuse_is_one_line(engines):
    title = " ".join(words(engines.queries[-1]))
    gone = qdrant_search("dense", engines.qdrant, "docs", QdrantList([0.1], "none"))
    unnamed = qdrant_search("d", engines.qdrant, "docs", QdrantList([0.1] * 32, "dense", "title"))
    for channel, what in (
        (gone, "dense: Qdrant says "),
        (unnamed, "has no text 'title' .*key="),
        (edge_search("e", engines.edge, QdrantList([0.1], "none")), "e: Qdrant Edge says "),
        (tantivy_search("t", engines.tantivy, title, key="text"), "no text field 'text'"),
    ):
        with pytest.raises(DesaError, match=what):
            certified_search([channel], 1)


def test_a_list_that_changes_is_refused(engines):
    """Points that come between two pages move what was read."""
    import qdrant_edge as edge

    text = engines.queries[0]
    config = edge.EdgeConfig({"dense": edge.EdgeVectorParams(32, edge.Distance.Dot)})
    folder = engines.scratch / "changing"
    folder.mkdir()
    shard = edge.EdgeShard.create(str(folder), config)

    def add(ids, factor):
        vector = [factor * x for x in engines.dense(text)]
        points = [edge.Point(n, {"dense": [x + n / 1e3 for x in vector]}) for n in ids]
        shard.update(edge.UpdateOperation.upsert_points(points))

    add(range(60), 1.0)
    channel = edge_search("dense", shard, QdrantList(engines.dense(text), "dense"))
    channel.next(5)
    add(range(60, 70), 9.0)
    with pytest.raises(DesaError, match="had rank 5, and has another now"):
        channel.next(5)


def fused(engines: LocalEngines, engine: str, fusion: str, text: str) -> Evidence:
    """The engine's own answer and its legs."""
    if engine == "qdrant":
        from qdrant_client import models

        how = {
            "rrf": models.FusionQuery(fusion=models.Fusion.RRF),
            "rrf 61": models.RrfQuery(rrf=models.Rrf(k=61)),
            "dbsf": models.FusionQuery(fusion=models.Fusion.DBSF),
            "weighted": models.RrfQuery(rrf=models.Rrf(k=2, weights=[3.0, 1.0])),
        }[fusion]
        found = engines.qdrant_fused(text, how, LEGS, LIMIT).points
        answer = [(point.payload["id"], point.score) for point in found]
        legs = [engines.qdrant_leg(leg, text, LEGS) for leg in ("dense", "words")]
    else:
        import qdrant_edge as edge

        how = {
            "rrf": edge.Fusion.Rrf(2),
            "rrf 61": edge.Fusion.Rrf(61),
            "dbsf": edge.Fusion.Dbsf(),
            "weighted": edge.Fusion.Rrf(2, [3.0, 1.0]),
        }[fusion]
        answer = engines.edge_fused(text, how, LEGS, LIMIT)
        legs = [engines.edge_leg(leg, text, LEGS) for leg in ("dense", "words")]
    named = zip(("dense", "words"), legs, strict=True)
    lists = [(name, *split(leg)) for name, leg in named]
    return evidence_of(split(answer), lists)


def split(hits: list[tuple[str, float]]) -> tuple[list[str], list[float]]:
    return [document for document, _ in hits], [score for _, score in hits]


@pytest.mark.parametrize("count", [10, pytest.param(QUERIES, marks=pytest.mark.long)])
@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("engine", ["qdrant", "edge"])
def test_own_fusions_are_explained_without_alarm(engines, engine, fusion, count):
    """Which rule it is, its constant counted in both ways; no rank is called impossible."""
    given, formula = FUSIONS[fusion]
    rule = rule_from(given, 2)
    for text in engines.queries[:count]:
        evidence = fused(engines, engine, fusion, text)
        assert len(evidence.answer) == LIMIT
        assert by_rule(evidence, rule, cut=False) is None
        if formula is not None:
            found = explain(evidence)
            assert found is not None
            assert found.formula.startswith(formula)
            assert (found.weights, found.odd) == ((1.0, 1.0), "")


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("engine", ["qdrant", "edge"])
def test_the_first_spoilt_rank_is_named(engines, engine, fusion):
    """Two documents change places, or one is dropped: the rank where the higher one should be."""
    rule, spoilt = rule_from(FUSIONS[fusion][0], 2), 0
    for number, text in enumerate(engines.queries[:15]):
        evidence = fused(engines, engine, fusion, text)
        order, scores = list(evidence.answer), evidence.scores
        upper, lower = number % 6, 7 + number % 9
        if scores[upper] - scores[upper + 1] < 1e-4:
            continue
        swapped = [*order]
        swapped[upper], swapped[lower] = order[lower], order[upper]
        for wrong in (swapped, [*order[:upper], *order[upper + 1 :]]):
            ids = [evidence.ids[document] for document in wrong]
            legs = zip(evidence.names, evidence.legs, strict=True)
            lists = [
                (name, [evidence.ids[d] for d in leg.documents], list(leg.scores))
                for name, leg in legs
            ]
            own = evidence_of((ids, []), lists)
            found = by_rule(own, rule, cut=False)
            assert found is not None
            assert (found.rank, own.ids[found.before]) == (upper + 1, evidence.ids[order[upper]])
            spoilt += 1
    assert spoilt >= 10


def test_audit_reads_what_qdrants_client_gives(engines, tmp_path, capsys):
    """`desa audit` on the JSON of real answers, right and spoilt."""
    from qdrant_client import models

    text = engines.queries[1]
    rrf = models.FusionQuery(fusion=models.Fusion.RRF)
    answer = engines.qdrant_fused(text, rrf, LEGS, LIMIT)
    paths = []
    for leg, query in (("dense", engines.dense(text)), ("words", engines.qdrant_sparse(text))):
        paths.append(tmp_path / f"{leg}.json")
        found = engines.qdrant.query_points("docs", query, using=leg, limit=LEGS)
        paths[-1].write_text(found.model_dump_json())
    right, wrong = tmp_path / "right.json", tmp_path / "wrong.json"
    right.write_text(answer.model_dump_json())
    tree = json.loads(answer.model_dump_json())
    tree["points"][0], tree["points"][9] = tree["points"][9], tree["points"][0]
    wrong.write_text(json.dumps(tree))
    legs = ["--legs", *map(str, paths)]
    assert main([str(right), *legs]) == 0
    assert "explained by: reciprocal rank fusion, kappa 1 with" in capsys.readouterr().out
    assert main([str(wrong), *legs, "--rule", "rrf", "--kappa", "1"]) == 1
    assert "rank 1 is impossible" in capsys.readouterr().out
