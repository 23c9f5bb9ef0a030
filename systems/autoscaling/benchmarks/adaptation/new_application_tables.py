"""Table of `python -m benchmarks autoscaling-adaptation`; what its columns are, its docstring says.

Symbols: S seeds, A applications; curves are (judgements, S, A).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.markdown import table
from systems.autoscaling.benchmarks.adaptation.new_application import METHODS

SHARE = 0.95  # of the converged reward
Numbers = NDArray[np.float64]


def curves_of(entry: Mapping[str, Any], figure: str = "reward") -> Numbers:
    """(judged, S, A)."""
    values = np.array([[float(number) for number in row.split()] for row in entry[figure]])
    return values.reshape(len(values), entry["seeds"], -1)


def converged(results: Mapping[str, Any]) -> Numbers:
    """(A,) the highest mean over seeds that any method reached, smoothed over two neighbouring judgements."""
    best = []
    for entry in results["entries"]:
        mean = curves_of(entry).mean(axis=1)
        best.append((0.5 * (mean[1:] + mean[:-1])).max(axis=0))
    return np.max(best, axis=0)


def episodes_needed(curves: Numbers, goal: Numbers, judged_at: Sequence[int]) -> tuple[Numbers, float]:
    """(S, A) episodes until the goal (A,); those that never reach it count as the last. And the share that do."""
    reached = curves >= goal
    first = np.where(reached.any(axis=0), reached.argmax(axis=0), len(judged_at) - 1)
    return np.asarray(judged_at, dtype=float)[first], float(reached.any(axis=0).mean())


def adaptation_table(results: Mapping[str, Any]) -> str:
    """One row a method."""
    entries = {entry["method"]: entry for entry in results["entries"]}
    best, judged_at = converged(results), results["judged_at"]
    rows = []
    published = {"transfer": ("45.6", "about 230"), "meta": ("", "5.5 times fewer than TL, 4.6 times fewer than TL+")}
    for name in METHODS:
        if name not in entries:
            continue
        curves = curves_of(entries[name])
        needed, share = episodes_needed(curves, SHARE * best, judged_at)
        drop = 100 * (1.0 - curves[0].mean(axis=1) / best.mean())  # by seed
        low, high = _interval(needed)
        seconds = np.interp(needed.mean(), judged_at, entries[name]["adaptation_cpu_s"]) / needed.size
        violated = curves_of(entries[name], "violated")
        rows.append([entries[name]["what"], f"{drop.mean():.1f} ± {drop.std(ddof=1):.1f}",
                     f"{needed.mean():.1f} ({low:.1f} to {high:.1f})", f"{100 * share:.0f}", f"{1e3 * seconds:.0f}",
                     f"{100 * violated[0].mean():.1f}", f"{100 * violated[-1].mean():.1f}",
                     f"{entries[name]['pretraining_cpu_s']:.0f}", *published.get(name, ("", ""))])
    return table(["method", "reward drop before adaptation, %", "episodes to 95 % of the converged reward",
                  "reached within 40 episodes, %", "CPU ms an application until then", "violating steps before, %",
                  "after, %", "CPU s of pretraining", "thesis: drop, %", "thesis: episodes"], rows,
                 right=(1, 2, 3, 4, 5, 6, 7, 8))


def _interval(needed: Numbers, resamples: int = 2000) -> tuple[float, float]:
    """95 % of the mean over applications, drawn anew."""
    random = np.random.default_rng(0)
    by_application = needed.mean(axis=0)
    means = by_application[random.integers(0, len(by_application), (resamples, len(by_application)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
