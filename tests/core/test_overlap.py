"""Overlap of texts by hand: letters and digits count, case and punctuation do not."""

from desa_ray.core.overlap import Documents, words

DOCUMENT = "One two, three four FIVE six seven eight. Nine ten eleven twelve thirteen fourteen"


def test_words_are_letters_and_digits():
    assert words("TP53-mutant: Straße, x_1") == ["tp53", "mutant", "strasse", "x_1"]


def test_overlap_is_word_for_word_or_a_run_of_words():
    documents = Documents(["nothing of that", DOCUMENT])
    ten = "two three four five six seven eight nine ten"

    def kinds(*texts: str) -> list[str]:
        return [kind for kind, found in documents.shared(texts).items() if found]

    assert kinds("Three four five!") == ["exact"]
    assert kinds("four ive") == []  # no part of a word
    assert kinds(ten) == ["exact", "8"]
    assert kinds(f"so {ten}") == ["8"]
    assert kinds("one two three four five six seven, no eight nine ten") == []
    assert kinds(f"X {DOCUMENT[:-9]}") == ["8", "13"]  # the first thirteen words
    assert kinds("", "!") == []
    assert kinds("other words", ten) == ["exact", "8"]
