"""Fusion and replay as the paper's authors do them: an emulation of their rules, not their code
(method.md section 6.10).

Scores are float64 sums in the order of the channels, a missing contribution is 0.0, and all
comparisons are of floats. Certification follows S1 to S12 but for two things: the bound on unread
documents is ignored once as many documents were seen as the union of the lists holds, and a K above
that union is an error. So it differs from `desa_ray.core.fusion.depth` where sums tie exactly, or
nearly, and where a list is read until nothing unread can exist.

Plain steps, one read after another, with the K best kept sorted: some milliseconds per query.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.fusion.cutoffs import renumbered
from desa_ray.core.fusion.depth import Replay
from desa_ray.core.fusion.exact import checked
from desa_ray.core.fusion.release_kernels import read_until_certain
from desa_ray.errors import DesaError

Ranking = NDArray[np.int32]


def fuse_order(
    channels: Sequence[Ranking],
    weights: Sequence[Fraction],
    kappa: Fraction,
    m: int | None = None,
) -> Ranking:
    """The first m documents (all of them for None) by float sum descending, ties by number."""
    checked(channels, weights, kappa)
    numbers, small = renumbered(channels)
    scores_N = np.zeros(numbers.size)
    for channel, weight in zip(small, weights, strict=True):
        shares = float(weight) / (float(kappa) + np.arange(1, channel.size + 1))
        scores_N[channel] += shares
    return numbers[np.argsort(-scores_N, kind="stable")[:m]]


def replay(
    channels: Sequence[Ranking],
    weights: Sequence[Fraction],
    kappa: Fraction,
    k: int,
    peek: bool = True,
) -> Replay:
    """The depths at which the emulated rule stops.

    Args:
        channels, weights, kappa, k: as for `desa_ray.core.fusion.depth.replay`.
        peek: ignore the bound on unread documents once the whole union was seen.

    Raises:
        DesaError: k is above the number of documents in all lists together.
    """
    checked(channels, weights, kappa)
    numbers, small = renumbered(channels)
    if k > numbers.size:
        what = f"K is {k}, but the lists hold {numbers.size} documents"
        raise DesaError(what, where="fusion.k", hint="lower it, or use fusion.replay=exact")
    sizes = np.array([channel.size for channel in channels], np.int64)
    starts = np.cumsum(sizes) - sizes
    top, reads = np.full(k, -1, np.int64), np.zeros(sizes.size, np.int64)
    floats = np.array([float(weight) for weight in weights])
    items = np.concatenate([*small, np.empty(0, np.int32)]).astype(np.int64)
    if k:
        read_until_certain(
            items, starts, sizes, floats, float(kappa), numbers.size, peek, top, reads
        )
    depths = tuple(reads.tolist())
    ended = tuple((reads == sizes).tolist())
    return Replay(depths, ended, sum(depths), numbers[top].astype(np.int32))
