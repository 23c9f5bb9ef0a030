"""Histograms with buckets that grow and samples that fade, one for each application.

The Vertical Pod Autoscaler's (kubernetes/autoscaler, vertical-pod-autoscaler/pkg/recommender/util/histogram_options.go,
histogram.go and decaying_histogram.go): bucket k starts at first * (ratio^k - 1) / (ratio - 1), a sample weighs
2^(time / half_life), a percentile is the end of the bucket in which the running sum of weights reaches its share.

Symbols: N applications, B buckets.
"""

import math

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
LEAST_WEIGHT = 1e-4  # a bucket with less is empty (aggregations_config.go: epsilon = 0.001 * minSampleWeight)
MOST_HALF_LIVES = 100.0  # weights are divided again where they grew by 2^100 (decaying_histogram.go: maxDecayExponent)


class DecayingHistogram:
    """N histograms of equal buckets."""

    def __init__(self, applications: int, first: float, largest: float, half_life_s: Numbers,
                 ratio: float = 1.05) -> None:
        """Empty ones.

        Args:
            applications: N.
            first: size of the first bucket, in the unit of the samples.
            largest: the last bucket starts there or above.
            half_life_s: () or (N,) seconds after which a sample counts half.
            ratio: of the sizes of neighbouring buckets, > 1.
        """
        buckets = math.ceil(math.log(largest * (ratio - 1.0) / first + 1.0) / math.log(ratio)) + 1
        self.starts: Numbers = first * (np.power(ratio, np.arange(buckets, dtype=np.float64)) - 1.0) / (ratio - 1.0)
        self.weights: Numbers = np.zeros((applications, buckets))
        self._half_life = np.broadcast_to(half_life_s, (applications,))
        self._reference = np.zeros(applications)

    def add(self, values: Numbers, weights: Numbers, seconds: Numbers) -> None:
        """Adds a sample to each histogram; a negative weight takes one away, down to an empty bucket.

        Args:
            values: (N,) NaN adds nothing.
            weights: () or (N,).
            seconds: () or (N,) time of the sample.
        """
        rows = np.flatnonzero(np.isfinite(values))
        if not len(rows):
            return
        shape = self._reference.shape
        if ((seconds - self._reference) > MOST_HALF_LIVES * self._half_life).any():
            self._renew(seconds)
        age = np.broadcast_to(seconds, shape)[rows] - self._reference[rows]
        added = np.broadcast_to(weights, shape)[rows] * np.exp2(age / self._half_life[rows])
        bucket = self.bucket(values[rows])
        self.weights[rows, bucket] = np.maximum(self.weights[rows, bucket] + added, 0.0)

    def bucket(self, values: Numbers) -> NDArray[np.intp]:
        """Number of the bucket that each value falls in."""
        return np.clip(np.searchsorted(self.starts, values, side="right") - 1, 0, len(self.starts) - 1)

    def percentiles(self, shares: list[Numbers]) -> list[Numbers]:
        """For each share, () or (N,) in [0, 1]: (N,) percentiles; 0 of an empty histogram."""
        running = np.cumsum(self.weights, axis=1)
        total = running[:, -1]
        ends = np.append(self.starts[1:], self.starts[-1])
        result = []
        for share in shares:
            threshold = np.maximum(share * total, LEAST_WEIGHT)
            bucket = np.minimum((running < threshold[:, None]).sum(axis=1), len(ends) - 1)
            result.append(np.where(total < LEAST_WEIGHT, 0.0, ends[bucket]))
        return result

    def _renew(self, seconds: Numbers) -> None:
        """Moves the time at which a sample weighs 1 to a whole number of half-lives near to now."""
        now = np.round(np.broadcast_to(seconds, self._reference.shape) / self._half_life) * self._half_life
        self.weights *= np.exp2((self._reference - now) / self._half_life)[:, None]
        self._reference = now
