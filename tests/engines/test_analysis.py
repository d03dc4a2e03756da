"""Analyzers by language: terms, postings and scores are those of an index that Anserini's own
IndexCollection builds with `-language`.
"""

import json
from pathlib import Path
from typing import get_args

import lucene_process
import numpy as np
import pytest

from desa_ray.config import SparseConfig
from desa_ray.config_check import checked
from desa_ray.config_values import Analyzer
from desa_ray.engines.analysis import analyzer_name, indexer_arguments
from desa_ray.engines.bm25 import BM25
from desa_ray.errors import Problems

TEXTS = json.loads((Path(__file__).parent.parent / "reference" / "languages.json").read_text())
ENGLISH = ["Running trains and the bakers' ponies", "of the and", "Bakers bake; a pony ran."]
# Lucene's class of analyzer for each language of Anserini's map.
CLASSES = {
    "ar": "ArabicAnalyzer",
    "bn": "BengaliAnalyzer",
    "da": "DanishAnalyzer",
    "de": "GermanAnalyzer",
    "es": "SpanishAnalyzer",
    "fa": "PersianAnalyzer",
    "fi": "FinnishAnalyzer",
    "fr": "FrenchAnalyzer",
    "hi": "HindiAnalyzer",
    "hu": "HungarianAnalyzer",
    "id": "IndonesianAnalyzer",
    "it": "ItalianAnalyzer",
    "ja": "JapaneseAnalyzer",
    "ko": "KoreanAnalyzer",
    "nl": "DutchAnalyzer",
    "no": "NorwegianAnalyzer",
    "pl": "MorfologikAnalyzer",
    "pt": "PortugueseAnalyzer",
    "ru": "RussianAnalyzer",
    "sv": "SwedishAnalyzer",
    "te": "TeluguAnalyzer",
    "tr": "TurkishAnalyzer",
    "uk": "UkrainianMorfologikAnalyzer",
    "zh": "CJKAnalyzer",
}
PACKAGES = {"CJKAnalyzer": "cjk", "MorfologikAnalyzer": "morfologik"}


def analyzer_class(language: str) -> str:
    name = CLASSES[language]
    return f"org.apache.lucene.analysis.{PACKAGES.get(name, language)}.{name}"


def counted(postings) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for place in range(postings.n_terms):
        start, end = postings.indptr[place : place + 2]
        docs, freqs = postings.docs[start:end].tolist(), postings.freqs[start:end].tolist()
        found[postings.term(place).decode()] = dict(zip(docs, freqs, strict=True))
    return found


def assert_as_indexed(in_lucene_process, name: str, texts: list[str], query: str, java: str):
    """Terms, frequencies, lengths and scores equal those of IndexCollection's index."""
    postings, _ = in_lucene_process(lucene_process.postings, texts, None, name)
    frequencies, lengths, hits = in_lucene_process(
        lucene_process.indexed_as, texts, query, indexer_arguments(name), java
    )
    assert counted(postings) == frequencies
    assert postings.norms.tolist() == lengths
    (terms,) = in_lucene_process(lucene_process.analyse, [query], name)
    docs, scores = BM25(postings).scores(terms)
    assert sorted(zip(docs.tolist(), scores.tolist(), strict=True)) == sorted(
        (number, float(np.float32(score))) for number, score in hits
    )
    assert len(docs) > 0


def test_every_language_that_is_offered_has_texts_here():
    assert set(get_args(Analyzer)) - {"en", "whitespace"} == set(CLASSES) == set(TEXTS) - {"en"}


@pytest.mark.parametrize("language", sorted(CLASSES))
def test_an_index_is_that_of_anserini(in_lucene_process, language):
    """Three documents and a query of each language."""
    texts, query = TEXTS[language]["documents"], TEXTS[language]["query"]
    name = analyzer_name(language)
    assert_as_indexed(in_lucene_process, name, texts, query, analyzer_class(language))


def test_whitespace_divides_at_blanks_alone(in_lucene_process):
    java = "org.apache.lucene.analysis.core.WhitespaceAnalyzer"
    name = analyzer_name("whitespace")
    assert_as_indexed(in_lucene_process, name, ENGLISH, "Bakers the the ran.", java)
    (terms,) = in_lucene_process(lucene_process.analyse, ["The cat's  RUNS, the"], name)
    assert terms == ["The", "cat's", "RUNS,", "the"]


@pytest.mark.parametrize(
    ("stemmer", "stopwords", "expected"),
    [
        (None, None, ["run", "train", "baker", "poni"]),
        ("krovetz", None, ["running", "train", "baker", "pony"]),
        ("none", None, ["running", "trains", "bakers", "ponies"]),
        ("none", "keep", ["running", "trains", "and", "the", "bakers", "ponies"]),
        (None, "keep", ["run", "train", "and", "the", "baker", "poni"]),
    ],
)
def test_english_with_other_stemmers_and_stop_words(
    in_lucene_process, stemmer, stopwords, expected
):
    name = analyzer_name("en", stemmer, stopwords)
    (terms,) = in_lucene_process(lucene_process.analyse, ENGLISH[:1], name)
    assert terms == expected
    postings, _ = in_lucene_process(lucene_process.postings, ENGLISH, None, name)
    analysed = in_lucene_process(lucene_process.analyse, ENGLISH, name)
    assert set(counted(postings)) == {term for terms in analysed for term in terms}


def test_the_default_keeps_the_name_that_keys_have():
    assert analyzer_name("en") == analyzer_name("en", "porter", "drop") == "DefaultEnglishAnalyzer"


@pytest.mark.parametrize("value", ["th", "german", "EN"])
def test_an_analyzer_that_is_not_offered_is_refused(value):
    with pytest.raises(Problems, match=f"analyzer.*{value}"):
        checked(SparseConfig, {"analyzer": value})
