"""How many replicas one metric asks for: the arithmetic of the Horizontal Pod Autoscaler.

kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale, "Algorithm details":

    desired = ceil(current * metric / target), nothing where metric / target is within the tolerance of 1,

with what pkg/controller/podautoscaler/replica_calculator.go adds for replicas that do not serve yet or give no metric.

Symbols: N applications; all arrays (N,); NaN is a metric that is missing, and no proposal.
"""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
_PERCENT_SLACK = 1e-4  # of a percent: more than the rounding of a float32 share, so that 0.9 counts as 90 %


def from_utilization(current: Numbers, measured: Numbers, starting: Numbers, missing: Numbers, utilization: Numbers,
                     target: Numbers, tolerance_up: Numbers, tolerance_down: Numbers) -> Numbers:
    """GetResourceReplicas: replicas for a target share of the resource request.

    Args:
        current: replicas that were asked for.
        measured: replicas that serve and give the metric.
        starting: replicas that are not ready yet; on the way up they count as using nothing, else not at all.
        missing: ready replicas without a metric; they count as using nothing on the way up, all of their request (or
            the target, where that is more) on the way down.
        utilization: mean of the measured replicas, a share of their request; counted in whole percent, as there.
        target: share.
        tolerance_up: a ratio up to 1 + this asks for nothing (KEP-4951; both 0.1 by default).
        tolerance_down: a ratio down to 1 - this asks for nothing.

    Returns:
        Whole numbers; NaN where there is no metric.
    """
    target = np.round(100.0 * target, 9)  # 1.1 * 100 is above 110 in binary
    ratio = np.floor(utilization * 100.0 + _PERCENT_SLACK) / target
    idle = np.where(ratio > 1.0, starting, 0.0)
    full = np.where(ratio < 1.0, missing * np.maximum(100.0, target), 0.0)
    counted = measured + idle + np.where(ratio == 1.0, 0.0, missing)
    mean = np.floor((utilization * 100.0 * measured + full) / np.maximum(counted, 1.0) + _PERCENT_SLACK)
    adjusted = mean / target
    proposal = np.ceil(adjusted * counted)
    turned = np.where(ratio < 1.0, (adjusted > 1.0) | (proposal > current), (adjusted < 1.0) | (proposal < current))
    stays = _within(adjusted, tolerance_up, tolerance_down) | (turned & (counted > measured))
    result = np.where(stays, current, proposal)
    return np.where(np.isfinite(utilization) & (measured > 0), result, np.nan)


def from_value(current: Numbers, ready: Numbers, value: Numbers, target: Numbers, tolerance_up: Numbers,
               tolerance_down: Numbers) -> Numbers:
    """GetExternalMetricReplicas: one value for the whole application, such as a latency, against a target value."""
    ratio = value / target
    result = np.where(_within(ratio, tolerance_up, tolerance_down), current, np.ceil(ratio * ready))
    return np.where(np.isfinite(value), result, np.nan)


def from_total(current: Numbers, total: Numbers, target: Numbers, tolerance_up: Numbers,
               tolerance_down: Numbers) -> Numbers:
    """GetExternalPerPodMetricReplicas: a total, such as a request rate, against a target for each replica."""
    ratio = total / (target * current)
    result = np.where(_within(ratio, tolerance_up, tolerance_down), current, np.ceil(total / target))
    return np.where(np.isfinite(total), result, np.nan)


def largest(current: Numbers, proposals: list[Numbers]) -> Numbers:
    """computeReplicasForMetrics: the largest proposal; none where one is missing and the others would scale down."""
    stacked = np.stack(proposals)
    absent = np.isnan(stacked)
    most = np.where(absent, -np.inf, stacked).max(axis=0)
    refused = absent.all(axis=0) | (absent.any(axis=0) & (most < current))
    return np.where(refused, np.nan, most)


def _within(ratio: Numbers, tolerance_up: Numbers, tolerance_down: Numbers) -> NDArray[np.bool_]:
    return (ratio >= 1.0 - tolerance_down) & (ratio <= 1.0 + tolerance_up)
