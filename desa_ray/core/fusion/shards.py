"""How many documents each shard of an index must return for a list's first L documents (method.md
section 6.11).
"""

from math import exp, lgamma, log, log1p

RISK = 0.01


def shard_window(length: int, shards: int, risk: float = RISK) -> int:
    """The smallest m such that all of a list's first `length` documents are among the first m of
    their shards with a probability of at least 1 - risk.

    Documents are spread over shards independently and evenly, as by a hash of their ids. Shard
    loads are binomial, and some load is above m with a probability of at most the sum over shards
    (the union bound), so m may be one or two larger than need be. With certainty only `length`
    itself suffices: one shard can hold all of them.

    Args:
        length: L, 1 or more.
        shards: 1 or more.
        risk: above 0.
    """
    if shards == 1:
        return length
    tail, m = 0.0, length  # tail = P(one shard's load > m)
    while m > 0:
        above = tail + _load(length, shards, m)
        if shards * above > risk:
            return m
        tail, m = above, m - 1
    return m


def _load(length: int, shards: int, count: int) -> float:
    """P(a shard holds `count` of `length` documents)."""
    ways = lgamma(length + 1) - lgamma(count + 1) - lgamma(length - count + 1)
    rest = (length - count) * log1p(-1 / shards)
    return exp(ways - count * log(shards) + rest)
