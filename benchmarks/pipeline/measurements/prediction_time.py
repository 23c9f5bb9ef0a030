"""Measures one prediction with all its checks beside plain onnxruntime, in the same process.

Times are microseconds, medians over single calls.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from serving.session import Predictor


@dataclass(frozen=True)
class PredictionTiming:
    """Medians over `repeats` interleaved calls, one row each.

    Attributes:
        checked_us: `Predictor.predict` from a mapping, with all input checks.
        plain_us: `session.run` alone on a ready-made float32 matrix.
        repeats: number of calls of each.
    """

    checked_us: float
    plain_us: float
    repeats: int


def time_prediction(predictor: Predictor, row: Mapping[str, Any], repeats: int = 2000) -> PredictionTiming:
    """Times both alternately, so that a change in the machine's speed hits both."""
    contract = predictor.contract
    matrix = np.array([[row[name] for name in contract.input_names]], dtype=np.float32)
    feed, names = {contract.model.input: matrix}, [contract.model.output]
    checked: list[float] = []
    plain: list[float] = []
    for _ in range(max(20, repeats // 20)):  # warm-up: the first calls pay for lazy allocations
        predictor.predict(row)
        predictor.session.run(names, feed)
    for _ in range(repeats):
        checked.append(_microseconds(lambda: predictor.predict(row)))
        plain.append(_microseconds(lambda: predictor.session.run(names, feed)))
    return PredictionTiming(statistics.median(checked), statistics.median(plain), repeats)


def _microseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1000
