"""Errors of single test rows: in order of time, in the target's own unit, by onnxruntime on the file."""

from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.export.row_errors import ordered_test_set, residuals, squared_errors
from models.paired_cases import checked_cases


def doubles_the_first_and_adds_the_second() -> bytes:
    weights = numpy_helper.from_array(np.array([[2.0], [1.0]], np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["rows", "w"], ["ms"])], "g",
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info("ms", TensorProto.FLOAT, ["batch", 1])], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def test_a_residual_is_the_prediction_less_what_was_measured() -> None:
    frame = pd.DataFrame({"b": [1.0, 2.0], "latency_ms": [6.0, 9.5], "a": [3.0, 4.0], "window_start": [0, 1]})
    found = residuals(doubles_the_first_and_adds_the_second(), "rows", ["a", "b"], frame, "latency_ms")
    np.testing.assert_array_equal(found, [2 * 3 + 1 - 6.0, 2 * 4 + 2 - 9.5])


def test_a_column_that_the_champion_wants_and_the_rows_lack_is_an_error() -> None:
    with pytest.raises(KeyError):
        residuals(doubles_the_first_and_adds_the_second(), "rows", ["a", "c"], pd.DataFrame({"a": [1.0]}), "a")


def test_rows_stand_in_order_of_time_within_their_environment(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": range(6), "environment": list("babbab"), "window_start": [5, 2, 1, 3, 0, 5]})
    frame.to_parquet(tmp_path / "test.parquet")
    ordered = ordered_test_set(tmp_path, ("environment", "window_start", "not there"))
    assert ordered["x"].tolist() == [4, 1, 2, 3, 0, 5]


def test_rows_without_any_key_stay_as_they_are(tmp_path: Path) -> None:
    pd.DataFrame({"x": [3, 1, 2]}).to_parquet(tmp_path / "test.parquet")
    assert ordered_test_set(tmp_path, ("environment", "window_start"))["x"].tolist() == [3, 1, 2]


def test_squared_errors_are_in_the_targets_unit_and_bear_the_scaled_metric() -> None:
    found = np.array([3.0, -4.0, 0.0, 1.0])
    cases = squared_errors(found, 10.0, "ms", "ab" * 32)
    assert cases.values == (9.0, 16.0, 0.0, 1.0) and (cases.unit, cases.better, cases.block) == ("ms²", "smaller", None)
    scaled = {"test_mse": float(np.mean((found / 10.0) ** 2))}
    assert checked_cases(cases.to_json(), scaled, {"test_mse": 4}) == cases
