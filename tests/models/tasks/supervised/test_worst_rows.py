"""The rows with the largest errors, for the report's first screen."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from models.tasks.supervised.evidence import MOST_WORST, _worst


def test_worst_rows_carry_their_inputs_and_the_rows_outside_of_the_box_are_counted() -> None:
    frame = pd.DataFrame({"load": [0.1, 0.5, 1.5, -0.2], "size": [1.0, 2.0, 3.0, 4.0],
                          "latency_ms": [10.0, 20.0, 30.0, 40.0]})
    data: Any = SimpleNamespace(scaling=SimpleNamespace(features=SimpleNamespace(names=("load", "size"))),
                                raw_specification=SimpleNamespace(lower=np.array([0.0, 0.0]),
                                                                  upper=np.array([1.0, 4.0])))
    found = _worst(data, frame, np.array([0.5, -3.0, 0.0, 2.0]), "latency_ms")
    assert found["rows_outside_box"] == 2  # loads of 1.5 and -0.2
    assert [row["row"] for row in found["rows"]] == [2, 4, 1] and len(found["rows"]) == MOST_WORST
    assert found["rows"][0] == {"row": 2, "inputs": {"load": 0.5, "size": 2.0}, "measured": 20.0, "predicted": 17.0}
