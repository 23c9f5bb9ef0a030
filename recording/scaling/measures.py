"""What a stretch of a trial measured, from its requests and counters. Pure."""

from collections.abc import Sequence

import numpy as np

from recording.scaling.meters import Sample, between
from recording.scaling.open_loop import ANSWERED, ERROR, TIMED_OUT, Result

# A stretch with fewer answers than this has no percentiles.
_LEAST_REQUESTS = 5
# A latency is settled once it stays within this factor of its last level.
_SETTLED_FACTOR = 1.5
# What it settled to is the median of this share of the stretch, at its end.
_LAST_SHARE = 0.4


def measure(
    result: Result, samples: Sequence[Sample], start_s: float, begin_s: float, end_s: float, *, cores: float,
    timeout_s: float,
) -> dict[str, float]:
    """The columns of recording.scaling.columns.MEASURED for one stretch of a trial.

    Args:
        result: what became of the requests of the trial.
        samples: counters, some 0.5 s apart.
        start_s: the trial's start, s of CLOCK_MONOTONIC.
        begin_s: of the stretch, s after the trial's start.
        end_s: of the stretch, s after the trial's start.
        cores: processors that quota and workers allow.
        timeout_s: a client gave up after this time, s.
    """
    chosen = (result.due >= begin_s) & (result.due < end_s)
    gone = np.where(result.status == ANSWERED, result.done, result.due + timeout_s)
    gone = np.where(result.status == ERROR, np.fmax(result.done, result.due), gone)
    seconds = end_s - begin_s
    done_then = (result.status != ERROR) & (result.done >= begin_s) & (result.done < end_s)
    latency = result.latency_ms(timeout_s)[chosen]
    enough = len(latency) >= _LEAST_REQUESTS
    percentiles = np.percentile(latency, [50, 95, 99]) if enough else np.full(3, np.nan)
    lateness = 1000.0 * (result.noticed - result.due)[chosen]
    lateness = lateness[np.isfinite(lateness)]
    use = between(*_around(samples, start_s + begin_s, start_s + end_s))
    sent_until = np.where(np.isfinite(result.done), result.done, result.due + timeout_s)
    flying = np.clip(np.minimum(sent_until, end_s) - np.maximum(result.sent, begin_s), 0.0, None)
    return {
        "offered_per_s": float(chosen.sum()) / seconds,
        "throughput_per_s": float((done_then & (result.status == ANSWERED)).sum()) / seconds,
        "completed_per_s": float(done_then.sum()) / seconds,
        "latency_mean_ms": float(latency.mean()) if enough else float("nan"),
        "latency_p50_ms": float(percentiles[0]),
        "latency_p95_ms": float(percentiles[1]),
        "latency_p99_ms": float(percentiles[2]),
        "timed_out": float((result.status[chosen] == TIMED_OUT).sum()),
        "errors": float((result.status[chosen] == ERROR).sum()),
        "backlog": float(((result.due < end_s) & (gone >= end_s)).sum()),
        "utilisation": use["cpu_cores"] / cores,
        "in_flight": float(np.nansum(flying)) / seconds,
        "lateness_p99_ms": float(np.percentile(lateness, 99)) if len(lateness) else float("nan"),
        **use,
    }


def _around(samples: Sequence[Sample], begin_s: float, end_s: float) -> tuple[Sample, Sample]:
    """The samples that stand for the two ends: the nearest ones, the later one never before the earlier one's next."""
    first = min(range(len(samples) - 1), key=lambda at: abs(samples[at].at_s - begin_s))
    last = min(range(first + 1, len(samples)), key=lambda at: abs(samples[at].at_s - end_s))
    return samples[first], samples[last]


def settled_after(times_s: np.ndarray, latency_ms: np.ndarray) -> float:
    """When a latency had reached the level that it keeps at the end.

    Args:
        times_s: ends of the windows, s, ascending [windows].
        latency_ms: mean latency of each, ms; NaN counts as not settled [windows].

    Returns:
        End of the first window from which on all stay within 1.5 times the last level, s; NaN where the last one does
        not.
    """
    last = latency_ms[-max(1, round(_LAST_SHARE * len(latency_ms))):]
    if not np.isfinite(last).any():
        return float("nan")
    beyond = np.flatnonzero(~(latency_ms <= _SETTLED_FACTOR * np.nanmedian(last)))
    first = beyond[-1] + 1 if len(beyond) else 0
    return float(times_s[first]) if first < len(times_s) else float("nan")
