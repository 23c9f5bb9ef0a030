"""One workload's folder, its specification in both coordinates, and a network's file."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from feature_store.errors import InputError
from feature_store.scaling import FeatureScaling, MinMaxScaling
from models.learners.mlp import build_mlp
from models.tasks.supervised.featurizing import check_specification, checked_specifications
from models.tasks.supervised.specifications import WALL, raw_specification, scaled_specification
from models.tasks.supervised.task import SupervisedTask
from models.tasks.task import parse_task
from models.training.workload import load_network, load_workload, save_network
from models.verification.network.fully_connected import network_from_torch

SCALING = FeatureScaling(MinMaxScaling(("cpu", "rate"), (0.0, 10.0), (0.5, 30.0)),
                         MinMaxScaling(("latency_ms",), (2.0,), (6.0,)))


def task(box: dict[str, Any] | None = None, features: tuple[str, ...] = ("cpu",)) -> SupervisedTask:
    inputs = [{"name": "cpu", "unit": "share"}, {"name": "rate", "unit": "1/s"}]
    specification: dict[str, Any] = {"properties": [{"monotone": {"features": list(features)}}]}
    if box is not None:
        specification["box"] = box
    return parse_task({"name": "t", "target": {"name": "latency_ms", "unit": "ms"}, "inputs": inputs,
                       "workloads": {"w": {"specification": specification}}}, "test")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    frames = {"train": [[0.0, 10.0, 2.0], [0.5, 30.0, 6.0]], "test": [[0.25, 20.0, 4.0], [1.0, 50.0, 10.0]]}
    for side, rows in frames.items():
        pd.DataFrame(rows, columns=["cpu", "rate", "latency_ms"]).assign(environment="base").to_parquet(
            tmp_path / f"{side}.parquet")
    (tmp_path / "scaling.json").write_text(SCALING.to_json())
    return tmp_path


def test_both_sides_are_scaled_by_the_training_sides_ranges(folder: Path) -> None:
    found = load_workload(folder, task(), "w")
    assert found.x.tolist() == [[0.0, 0.0], [1.0, 1.0]] and found.y.tolist() == [0.0, 1.0]
    assert found.x_test.tolist() == [[0.5, 0.5], [2.0, 2.0]] and found.y_test.tolist() == [0.5, 2.0]
    share = found.pool_share()
    assert share.features == ("cpu", "rate") and share.queries == ((0, 1),)
    assert share.x is found.x and share.y is found.y


def test_the_box_is_the_training_range_where_the_task_names_none(folder: Path) -> None:
    found = load_workload(folder, task(), "w")
    assert found.raw_specification.lower.tolist() == [0.0, 10.0]
    assert found.raw_specification.upper.tolist() == [0.5, 30.0]
    np.testing.assert_allclose(found.specification.lower, [-WALL, -WALL])
    np.testing.assert_allclose(found.specification.upper, [1 + WALL, 1 + WALL])
    assert found.specification.properties == found.raw_specification.properties


def test_a_box_in_raw_units_is_scaled_with_a_little_room_on_every_side() -> None:
    raw = raw_specification(task({"rate": [0, 40]}), "w", SCALING)
    assert raw.lower.tolist() == [0.0, 0.0] and raw.upper.tolist() == [0.5, 40.0]
    scaled = scaled_specification(raw, SCALING)
    np.testing.assert_allclose(scaled.lower, [-WALL, -0.5 - WALL])
    np.testing.assert_allclose(scaled.upper, [1 + WALL, 1.5 + WALL])
    # the float32 scaling of the exported file keeps the raw box inside
    low, high = (np.array(side, dtype=np.float32) for side in (SCALING.features.minimum, SCALING.features.maximum))
    factor = (1 / (high - low)).astype(np.float32)
    for wall in (raw.lower, raw.upper):
        seen = (wall - low.astype(float)) * factor.astype(float)
        assert (seen >= scaled.lower).all() and (seen <= scaled.upper).all()


def test_a_specification_that_does_not_fit_the_workload_names_task_and_workload() -> None:
    with pytest.raises(InputError, match=r"got 'rats'; did you mean 'rate'\? \(task t: workload w"):
        raw_specification(task(features=("rats",)), "w", SCALING)
    with pytest.raises(InputError, match=r"lower <= upper, got \[3, 1\] .*task t: workload w"):
        raw_specification(task({"cpu": [3, 1]}), "w", SCALING)


def test_a_folder_of_other_features_is_refused(folder: Path) -> None:
    other = FeatureScaling(MinMaxScaling(("rate", "cpu"), (0.0, 0.0), (1.0, 1.0)), SCALING.target)
    (folder / "scaling.json").write_text(other.to_json())
    with pytest.raises(InputError, match=r"features must be cpu, rate, got rate, cpu \(workload w\)"):
        load_workload(folder, task(), "w")


def test_an_unknown_workload_is_refused_with_the_nearest_name(folder: Path) -> None:
    with pytest.raises(InputError, match="workload: expected one of task 't', got 'ww'"):
        load_workload(folder, task(), "ww")


# --- a network's file --------------------------------------------------------------------------------------


def test_a_network_comes_back_from_its_file_bit_for_bit(tmp_path: Path) -> None:
    module = build_mlp(3, (7, 5, 4), torch.Generator().manual_seed(0))
    path = tmp_path / "network.npz"
    save_network(module, path)
    found, expected = load_network(path), network_from_torch(module)
    for a, b in zip((*found.weights, *found.biases), (*expected.weights, *expected.biases), strict=True):
        assert a.dtype == np.float32
        np.testing.assert_array_equal(a, b)


def archive(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def layers(*shapes: tuple[int, ...]) -> dict[str, Any]:
    return {f"{'bias' if len(shape) == 1 else 'weight'}_{i // 2}": np.ones(shape, dtype=np.float32)
            for i, shape in enumerate(shapes)}


@pytest.mark.parametrize(
    "content",
    [b"", b"text", archive(**layers((3, 2), (3,), (1, 3), (1,)))[:300], archive(weight_0=np.ones((3, 2))),
     archive(**layers((3, 2), (3,), (1, 4), (1,))), archive(**layers((3, 2), (3,))),
     archive(**{**layers((3, 2), (3,), (1, 3), (1,)), "weight_0": np.full((3, 2), np.nan, dtype=np.float32)}),
     archive(**{**layers((3, 2), (3,), (1, 3), (1,)), "weight_0": np.array([["a"]])}),
     archive(**{**layers((3, 2), (3,), (1, 3), (1,)), "weight_0": np.array([None], dtype=object)})],
    ids=["empty", "text", "cut", "one array", "another width", "one layer", "NaN", "letters", "pickled"],
)
def test_a_damaged_network_is_an_input_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "network.npz"
    path.write_bytes(content)
    with pytest.raises(InputError):
        load_network(path)


def test_a_missing_network_is_an_input_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"network must be readable.*none\.npz"):
        load_network(tmp_path / "none.npz")


def test_a_network_in_double_precision_is_refused(tmp_path: Path) -> None:
    # its proof would be about other numbers than the float32 ones that the export writes
    path = tmp_path / "network.npz"
    arrays = {name: value.astype(np.float64) * 0.1 for name, value in layers((3, 2), (3,), (1, 3), (1,)).items()}
    path.write_bytes(archive(**arrays))
    with pytest.raises(InputError, match="weights must be float32, got float64"):
        load_network(path)


def specified(*properties: dict[str, Any]) -> SupervisedTask:
    inputs = [{"name": "cpu", "unit": "share"}, {"name": "rate", "unit": "1/s"}]
    return parse_task({"name": "t", "target": {"name": "latency_ms", "unit": "ms"}, "inputs": inputs,
                       "workloads": {"w": {"specification": {"properties": list(properties)}}}}, "test")


def test_what_is_trained_for_are_the_orders_in_the_whole_box() -> None:
    rules = [{"monotone": {"features": ["cpu"], "when": {"rate": [10, 12]}}}, {"range": {"output": "latency_ms",
                                                                                         "minimum": 0}}]
    raw = raw_specification(specified(*rules), "w", SCALING)
    assert len(raw.properties) == 2 and raw.output_names == ("latency_ms",)
    assert scaled_specification(raw, SCALING).queries == ((0, 1),)
    turned = {"monotone": {"features": ["cpu", "rate"], "direction": "decreasing", "when": {"rate": [20, 30]}}}
    raw = raw_specification(specified(*rules, turned), "w", SCALING)
    assert scaled_specification(raw, SCALING).queries == ((1, -1),)  # cpu rises and falls, each in its part of the box
    raw = raw_specification(specified(rules[1]), "w", SCALING)
    with pytest.raises(InputError, match="specification must have a monotone property that can be trained for"):
        scaled_specification(raw, SCALING)


def test_a_task_may_name_its_target_and_conditions_beyond_0_to_1_before_the_data_are_known() -> None:
    rules = [{"monotone": {"features": ["cpu"], "output": "latency_ms", "when": {"rate": [10, 12]}}}]
    check_specification(specified(*rules), "w", "task.yaml", None)
    with pytest.raises(InputError, match=r"did you mean 'latency_ms'"):
        check_specification(specified({"range": {"output": "latency", "minimum": 0}}), "w", "task.yaml", None)


@pytest.mark.parametrize("rules", [
    [{"range": {"output": "latency_ms", "minimum": 0}}],
    [{"monotone": {"features": ["cpu"], "direction": direction, "when": {"rate": part}}}
     for direction, part in (("increasing", [10, 12]), ("decreasing", [20, 30]))],
], ids=["no order", "opposite orders"])
def test_what_cannot_be_trained_for_costs_its_workload_before_the_pretraining_of_all(
        tmp_path: Path, rules: list[dict[str, Any]]) -> None:
    with pytest.raises(InputError, match=r"must have a monotone property .* \(task.yaml, workload w\)"):
        check_specification(specified(*rules), "w", "task.yaml", None)
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "scaling.json").write_text(SCALING.to_json())
    assert "must have a monotone property" in checked_specifications(specified(*rules), {"w": ""}, tmp_path)["w"]
