"""The fusions a method can name: how ranks become one order, and how deep the lists must be read to prove its head."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from desa_ray.core import exp4fuse, fusion
from desa_ray.core import replay as rrf
from desa_ray.core.replay import Replay

__all__ = ["FUSIONS", "Fusion"]


@dataclass(frozen=True)
class Fusion:
    """A fusion.

    Attributes:
        order: channels, weights, kappa and m (None = all) to the first m documents, best first.
        replay: channels, weights, kappa and k to the certification depths of the ordered top k.
    """

    order: Callable[[Sequence[NDArray[np.int32]], Sequence[Fraction], Fraction, int | None], NDArray[np.int32]]
    replay: Callable[[Sequence[NDArray[np.int32]], Sequence[Fraction], Fraction, int], Replay]


FUSIONS: dict[str, Fusion] = {
    "rrf": Fusion(fusion.fuse_order, rrf.replay),
    "exp4fuse": Fusion(exp4fuse.fuse_order, exp4fuse.replay),
}
