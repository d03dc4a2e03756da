"""What a configuration's sparse side is made of: BM25's analysis and parameters, or the stages of
learned impacts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from desa_ray.config import RunConfig, SparseConfig
from desa_ray.core.feedback import FEEDBACK
from desa_ray.core.operators import SPARSE_OPERATORS
from desa_ray.core.reweighting import SPARSE_TERMS
from desa_ray.engines.analysis import analyzer_name
from desa_ray.engines.learned_sparse import load_splade, load_weigher
from desa_ray.errors import DesaError
from desa_ray.experiment.pools import scorer_pool
from desa_ray.pipeline.provenance import installed
from desa_ray.pipeline.stage import Pool, Stage
from desa_ray.stages.collection import CollectionStages
from desa_ray.stages.document_texts import DocumentTextsWork, document_texts_stage
from desa_ray.stages.impacts import (
    ImpactFileWork,
    ImpactPostingsWork,
    QueryVectorsWork,
    SpladeWork,
    impact_postings_stage,
    impacts_stage,
    query_vectors_stage,
)
from desa_ray.types import sha256_json

# Settings of kinds
OWN = {
    "bm25 splade": ("document_texts",),
    "impact splade": ("scale", "query_scale", "combine"),
    "impact": ("impacts", "tokenizer", "token_weights", "query_vectors"),
    "splade": (
        *("model", "revision", "package", "weights", "path", "max_tokens"),
        *("pooling", "activation"),
    ),
}
Identity = Mapping[str, Mapping[str, Any]]  # of `engines.learned_sparse.sparse_identity`


def analysis(sparse: SparseConfig) -> dict[str, str]:
    """Analyzer and Lucene version, for keys."""
    name = analyzer_name(sparse.analyzer, sparse.stemmer, sparse.stopwords)
    return {"analyzer": name, "pyserini": installed()["pyserini"]}


def scoring_params(sparse: SparseConfig) -> dict[str, Any]:
    """What decides how a sparse channel scores, beside its postings and query."""
    if sparse.kind != "bm25":
        return {"learned": 1}
    own: dict[str, Any] = {"k1": sparse.k1, "b": sparse.b}
    return own | ({"scores": sparse.scores} if sparse.scores != "raw" else {})


def file_impacts(config: RunConfig, collection: CollectionStages, learned: Identity) -> Stage:
    """The impacts of the documents, of a file."""
    documents = collection.documents
    work = ImpactFileWork(str(config.sparse.impacts), collection.whole or documents)
    return impacts_stage(documents, learned["documents"], work)


def indexed_documents(config: RunConfig, collection: CollectionStages, learned: Identity) -> Stage:
    """The documents that the sparse channel indexes: with the texts of a file, where one is set."""
    documents = collection.documents
    if "texts" not in learned:
        return documents
    path, whole = str(config.sparse.document_texts), collection.whole or documents
    return document_texts_stage(documents, learned["texts"], DocumentTextsWork(path, whole))


def query_vectors(
    config: RunConfig, collection: CollectionStages, learned: Identity
) -> Stage | None:
    """The weights of the queries, of a file; None where they are weighed as texts."""
    if "vectors" not in learned:
        return None
    whole = collection.whole_queries or collection.queries
    known = None if config.dataset.queries else whole
    work = QueryVectorsWork(str(config.sparse.query_vectors), known)
    return query_vectors_stage(collection.queries, learned["vectors"], work)


def file_stages(
    config: RunConfig, collection: CollectionStages, learned: Identity
) -> Iterator[Stage]:
    """What is read from the user's files, before anything expensive starts."""
    if config.sparse.kind == "impact" and "documents" in learned:
        yield file_impacts(config, collection, learned)
    if "texts" in learned:
        yield indexed_documents(config, collection, learned)
    if vectors := query_vectors(config, collection, learned):
        yield vectors


def learned_postings(
    config: RunConfig, collection: CollectionStages, learned: Identity, model_home: Path
) -> Stage:
    """The postings of the documents' impacts."""
    work = ImpactPostingsWork(scorer_pool(config, dense=False), config.cluster.range_documents)
    if config.sparse.kind == "impact":
        return impact_postings_stage(file_impacts(config, collection, learned), work)
    pool = splade_pool(config, learned, model_home)
    weigh = SpladeWork(pool, config.cluster.shard_documents)
    documents = indexed_documents(config, collection, learned)
    return impact_postings_stage(impacts_stage(documents, learned["documents"], weigh), work)


def splade_pool(config: RunConfig, learned: Identity, model_home: Path) -> Pool:
    """SPLADE models, of documents and of queries: one per actor, `encoder_cpus` threads each."""
    cluster = config.cluster
    model = {name: own for name, own in learned["documents"].items() if name != "scale"}
    load = partial(
        load_splade,
        config.sparse,
        threads=cluster.encoder_cpus,
        model_home=model_home,
        batch_size=cluster.batch_size,
    )
    name = f"splade:{config.sparse.name}:{sha256_json(model)[:12]}"
    return Pool(name, load, size=cluster.encoders, cpus=cluster.encoder_cpus)


def weigher_pool(config: RunConfig, lucene: Pool, learned: Identity, model_home: Path) -> Pool:
    """What weighs the terms of query-side texts; `lucene`, the pool of JVMs, one of which it is
    where Lucene's analyzer makes the terms.
    """
    if config.sparse.kind == "splade":
        return splade_pool(config, learned, model_home)
    own = learned["queries"]
    load = partial(load_weigher, config.sparse, own.get("analyzer", ""))
    name = f"weigher:{sha256_json(own)[:12]}"
    if "analyzer" in own:
        return replace(lucene, name=f"{name}:{lucene.name}", factory=load)
    return Pool(name, load, size=1)


def learned_problems(config: RunConfig) -> Iterator[DesaError]:
    """What only BM25 has, asked for of learned impacts; or the other way round."""
    sparse = config.sparse
    for kind, names in OWN.items():
        for name in names if sparse.kind not in kind.split() else ():
            if getattr(sparse, name) is not None:
                what = f"is not of sparse={sparse.kind}"
                hint = f"leave it out, or use sparse={kind.split()[0]}"
                yield DesaError(what, where=f"sparse.{name}", hint=hint)
    if sparse.kind == "bm25":
        return
    if sparse.scores != "raw":
        what = f"scores={sparse.scores} is of sparse=bm25 alone"
        yield DesaError(what, where="sparse.scores", hint="leave it out")
    for channel in config.method.channels:
        own = SPARSE_OPERATORS.get(channel.operator) if channel.kind == "sparse" else None
        if own is not None and {*own.texts} & {*FEEDBACK, *SPARSE_TERMS}:
            what = f"operator {channel.operator!r} weighs terms of BM25"
            where = f"method {config.method.name}, channel {channel.name}"
            yield DesaError(what, where=where, hint="use sparse=bm25, or another operator")
