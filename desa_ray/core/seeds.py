"""The seed of a request for generated text (method.md section 2.3)."""

import hashlib

from desa_ray.types import canonical_json


def request_seed(
    *,
    protocol_version: int | str,
    dataset: str,
    prompt_hash: str,
    query_id: str,
    draw: int,
    item: int,
) -> int:
    """The request seed, 0 <= seed < 2^63, which depends only on what is asked (method.md
    section 2.3).
    """
    identity = canonical_json([protocol_version, dataset, prompt_hash, query_id, draw, item])
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "big") & (2**63 - 1)
