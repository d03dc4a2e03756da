"""How a study resamples: how often, from which seed, and by whose scheme."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from desa_ray.core.statistics.release import release_bootstrap_means, release_sign_flip_p
from desa_ray.core.statistics.resampling import RESAMPLES, bootstrap_means, sign_flip_p

Scheme = Literal["streams", "release"]
SCHEMES: tuple[str, ...] = get_args(Scheme)


@dataclass(frozen=True)
class Sampling:
    """The resampling of a report; everything here is printed with the results.

    Attributes:
        resamples: bootstrap samples, and as many sign flips.
        seed: of all of them.
        scheme: `streams` gives every data set a random stream of its own; `release` is the
            authors' single stream, which reproduces their published digits.
    """

    resamples: int = RESAMPLES
    seed: int = 0
    scheme: Scheme = "streams"

    def bootstrap_means(self, strata: Sequence[np.ndarray]) -> np.ndarray:
        """Means of bootstrap samples of strata [Q, M], float64 [B, S, M]."""
        draw = release_bootstrap_means if self.scheme == "release" else bootstrap_means
        return draw(strata, self.resamples, self.seed)

    def sign_flip_p(self, strata: Sequence[np.ndarray]) -> np.ndarray:
        """Two-sided p of the macro mean of differences [Q, M], float64 [M]."""
        test = release_sign_flip_p if self.scheme == "release" else sign_flip_p
        return test(strata, self.resamples, self.seed)

    def __str__(self) -> str:
        text = f"{self.resamples} bootstrap samples and sign flips, seed {self.seed}"
        return f"{text}, one random stream as in the release" if self.scheme == "release" else text
