"""The fusions a method can name: how ranks become one order, and how deep the lists must be read to prove its head."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from desa_ray.core import exp4fuse, fusion
from desa_ray.core import replay as rrf
from desa_ray.core.cutoffs import prefix_tops
from desa_ray.core.replay import Replay

__all__ = ["FUSIONS", "Fusion"]


@dataclass(frozen=True)
class Fusion:
    """A fusion.

    Attributes:
        order: channels, weights, kappa and m (None = all) to the first m documents, best first.
        replay: channels, weights, kappa and k to the certification depths of the ordered top k.
        tops: channels, weights, kappa, k and cutoffs to the first k documents of the fused prefixes, a cutoff each.
    """

    order: Callable[[Sequence[NDArray[np.int32]], Sequence[Fraction], Fraction, int | None], NDArray[np.int32]]
    replay: Callable[[Sequence[NDArray[np.int32]], Sequence[Fraction], Fraction, int], Replay]
    tops: Callable[
        [Sequence[NDArray[np.int32]], Sequence[Fraction], Fraction, int, Sequence[int]], list[NDArray[np.int32]]
    ]


FUSIONS: dict[str, Fusion] = {
    "rrf": Fusion(fusion.fuse_order, rrf.replay, fusion.fuse_prefixes),
    "exp4fuse": Fusion(exp4fuse.fuse_order, exp4fuse.replay, partial(prefix_tops, exp4fuse.fuse_order)),
}
