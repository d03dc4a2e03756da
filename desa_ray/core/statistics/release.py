"""The resampling of the paper's authors, to the digit: `sampling=release` (method.md section 10).

Their published intervals and p values come from one PCG64 stream that is restarted for every column
and runs through all data sets, sample by sample. Since it does not depend on the values, all
columns of one call see the same queries and signs. Strata must come in ascending order of the data
sets' names, their rows in ascending order of query ids, as code points.

Source: the published statistics of the paper's release (its bootstrap and paired-test tables).
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

SIGNS = np.array([-1.0, 1.0])
SEED = 20260813  # the seed of every published figure


def release_bootstrap_means(
    strata: Sequence[np.ndarray], resamples: int, seed: int = SEED
) -> np.ndarray:
    """Means of bootstrap samples, as `resampling.bootstrap_means` but from the authors' stream.

    Args:
        strata: arrays float64 [Q, M], Q >= 1 each its own, data sets in ascending order of names.
        resamples: B.
        seed: of the one stream.

    Returns:
        float64 [B, S, M].
    """
    rng = np.random.default_rng(seed)
    columns = [np.ascontiguousarray(values.T, np.float64) for values in strata]
    means = np.empty((resamples, len(strata), strata[0].shape[1]))
    for sample in means:
        for mean, values in zip(sample, columns, strict=True):
            queries = values.shape[1]
            picks = cast(NDArray[np.int64], rng.integers(0, queries, size=queries))
            mean[:] = np.take(values, picks, axis=1).mean(axis=1)
    return means


def release_sign_flip_p(
    strata: Sequence[np.ndarray], resamples: int, seed: int = SEED
) -> np.ndarray:
    """Two-sided p, float64 [M]: (1 + #{|T*| >= |T|}) / (B + 1), without any tolerance.

    Args:
        strata: differences, float64 [Q, M] each, data sets in ascending order of names.
        resamples: B.
        seed: of the one stream.
    """
    rng = np.random.default_rng(seed)
    columns = [np.ascontiguousarray(differences.T, np.float64) for differences in strata]
    observed = np.abs(np.mean([values.mean(axis=1) for values in columns], axis=0))
    reached = np.zeros(len(observed), np.int64)
    means = np.empty((len(strata), len(observed)))
    for _ in range(resamples):
        for mean, values in zip(means, columns, strict=True):
            signs = SIGNS[rng.integers(0, 2, size=values.shape[1])]  # as rng.choice, but faster
            mean[:] = (values * signs).mean(axis=1)
        reached += np.abs(means.mean(axis=0)) >= observed
    return (1 + reached) / (resamples + 1)
