"""Analyzers of Lucene by name: they turn the texts of documents and queries into terms.

`sparse.analyzer` chooses one of those that Anserini knows by language, Lucene's own of that
language with its stop words and stemmer; `en` is Anserini's DefaultEnglishAnalyzer, whose stemmer
and stop words can be chosen too; `whitespace` divides at blanks and changes nothing else.
"""

from collections.abc import Callable
from typing import Any

ENGLISH = "DefaultEnglishAnalyzer"
WHITESPACE = "WhitespaceAnalyzer"
LANGUAGE = "language "


def analyzer_name(analyzer: str, stemmer: str | None = None, stopwords: str | None = None) -> str:
    """The name of an analyzer in keys, from the settings `sparse.analyzer`, `.stemmer` and
    `.stopwords`; the last two are of `en` alone, None for Porter's stemmer and for dropping.
    """
    if analyzer == "whitespace":
        return WHITESPACE
    if analyzer != "en":
        return LANGUAGE + analyzer
    chosen = stemmer or "porter", stopwords or "drop"
    if chosen == ("porter", "drop"):
        return ENGLISH
    return f"{ENGLISH} stemmer={chosen[0]} stopwords={chosen[1]}"


def indexer_arguments(name: str) -> list[str]:
    """How Anserini's indexers are asked for the analyzer of this name."""
    if name == WHITESPACE:
        return ["-pretokenized"]
    if name.startswith(LANGUAGE):
        return ["-language", name.removeprefix(LANGUAGE)]
    stemmer, keep = _english(name)
    return ["-stemmer", stemmer, *(["-keepStopwords"] if keep else [])]


def new_analyzer(name: str, java_class: Callable[[str], Any]) -> Any:
    """The analyzer of this name; `java_class` is pyjnius' autoclass."""
    if name == WHITESPACE:
        return java_class("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    if name.startswith(LANGUAGE):
        analyzers = java_class("io.anserini.analysis.AnalyzerMap")
        return analyzers.getLanguageSpecificAnalyzer(name.removeprefix(LANGUAGE))
    if name == ENGLISH:
        return java_class("io.anserini.index.IndexCollection").DEFAULT_ANALYZER
    stemmer, keep = _english(name)
    return java_class(f"io.anserini.analysis.{ENGLISH}").fromArguments(stemmer, keep, None)


def _english(name: str) -> tuple[str, bool]:
    """Stemmer, and whether stop words are kept."""
    if name == ENGLISH:
        return "porter", False
    _, stemmer, stopwords = name.split(" ")
    return stemmer.removeprefix("stemmer="), stopwords == "stopwords=keep"
