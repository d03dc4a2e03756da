"""JSON that detects damage: a document carries the SHA-256 of its own canonical form, its seal."""

import json
from collections.abc import Mapping
from typing import Any, cast

from desa_ray.types import sha256_json

SEAL = "seal"


def seal(document: Mapping[str, Any]) -> bytes:
    """Readable JSON of `document` (plain data, no field named `seal`) with its seal, always the
    same bytes.
    """
    assert SEAL not in document
    sealed = {**document, SEAL: sha256_json(document)}
    return (
        json.dumps(sealed, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    ).encode()


def unseal(data: bytes) -> dict[str, Any]:
    """The document of `seal`.

    Raises:
        ValueError: the bytes are cut short, or any value in them was changed.
    """
    try:
        document: Any = json.loads(data.decode())
        whole = type(document) is dict and _sealed(cast(dict[str, Any], document))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not whole:
        raise ValueError("its content does not match its checksum")
    return cast(dict[str, Any], document)


def _sealed(document: dict[str, Any]) -> bool:
    """Whether a document, which loses its seal here, matches it."""
    return document.pop(SEAL, None) == sha256_json(document)
