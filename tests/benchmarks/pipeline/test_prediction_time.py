"""The time of one prediction with its checks, beside plain onnxruntime."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.pipeline.measurements.prediction_time import time_prediction


@dataclass(frozen=True)
class Model:
    input: str = "x"
    output: str = "y"


@dataclass(frozen=True)
class Contract:
    input_names: tuple[str, ...] = ("a", "b")
    model: Model = Model()


class Session:
    def run(self, names: list[str], feed: dict[str, Any]) -> list[Any]:
        assert names == ["y"] and feed["x"].dtype == np.float32
        return [feed["x"].sum(axis=1)]


class CountingPredictor:
    """Counts its calls."""

    contract, session = Contract(), Session()

    def __init__(self) -> None:
        self.calls = 0

    def predict(self, row: dict[str, float]) -> None:
        assert row == {"a": 1.0, "b": 2.0}
        self.calls += 1


def test_both_are_timed_equally_often() -> None:
    predictor = CountingPredictor()
    timing = time_prediction(predictor, {"a": 1.0, "b": 2.0}, repeats=40)  # type: ignore[arg-type]
    assert timing.checked_us > 0 and timing.plain_us > 0
    assert timing.repeats == 40 and predictor.calls == 20 + 40, "20 calls are the warm-up"
