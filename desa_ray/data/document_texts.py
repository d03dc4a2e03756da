"""Files of texts that are appended to documents, such as the queries that doc2query predicts for
them: one JSON object per line, {"id": ..., "texts": [...]}; other fields are not looked at.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from desa_ray.data.id_files import IdFile, Place, read_by_id
from desa_ray.lines import Findings, has_lone_surrogate, shown_value

DOCUMENT_TEXTS = IdFile(
    setting="sparse.document_texts",
    noun="document",
    nouns="documents",
    holds="texts",
    hint='write one line per document: {"id": ..., "texts": ["...", ...]}; the list may be empty',
)


def read_document_texts(
    path: Path, wanted: Sequence[str], known: Collection[str]
) -> list[list[str]]:
    """The texts of documents, in the order of `wanted`.

    Args:
        wanted: ids of the documents, each of which the file must have.
        known: ids that the file may have: those of the whole collection.

    Raises:
        Problems: the file cannot be read, or is wrong: every kind of fault once.
    """
    found = read_by_id(path, DOCUMENT_TEXTS, (wanted, known, ()), _texts)
    return [texts or [] for texts in found]


def expanded(text: str, texts: Sequence[str]) -> str:
    """A document's text and those appended to it, one per line."""
    return "\n".join([text, *texts])


def _texts(row: Mapping[str, Any], place: Place, findings: Findings) -> list[str]:
    texts, hint = cast(Any, row.get("texts")), DOCUMENT_TEXTS.hint
    if not isinstance(texts, list):
        what = f"texts is {shown_value(texts)}, expected a list of texts"
        findings.line(*place, "no texts", what, hint=hint)
        return []
    found: list[str] = []
    for text in cast(list[Any], texts):
        if isinstance(text, str) and not has_lone_surrogate(text):
            found.append(text)
        else:
            findings.line(*place, "not a text", shown_value(text), hint=hint)
    return found
