"""Verdicts where the runtime's arithmetic and the real one differ, and where numbers leave float32."""

import json
import time

import numpy as np
import pytest

from models.verification.decide import decide
from models.verification.search.branch_and_bound import Progress
from models.verification.verdict import Status
from tests.models.verification.onnx_files import dense_file, replayed, spike_file, undecided_file
from tests.models.verification.test_decide import chain, one_input, verify

FALLING = {"monotone": {"features": ["x0"], "direction": "decreasing"}}


def test_a_violation_that_float32_swallows_is_neither_proved_nor_refuted(tmp_path) -> None:
    # x + 1e8 - 1e8 is x, in float32 a multiple of 8: at x = 2 the runtime says 0
    found = verify(tmp_path, chain(tmp_path, (1.0, 1e8), (1.0, -1e8)), one_input(0, 3, {"range": {"maximum": 1}}))
    assert found.verdict == "UNKNOWN" and found.witness is None


def test_a_violation_that_float32_makes_up_is_no_counterexample(tmp_path) -> None:
    # at x = 7.9 the runtime says 8, real arithmetic 7.9: true of the network, and yet no promise about what runs
    model = chain(tmp_path, (1.0, 1e8), (1.0, -1e8))
    found = verify(tmp_path, model, one_input(5, 7.9, {"range": {"maximum": 7.95}}))
    assert found.verdict == "UNKNOWN" and found.witness is None
    assert [part.name for part in found.parts if part.status is Status.PROVED] == ["outputs"]
    assert "the proof says nothing about what runs" in found.parts[-1].reason


def test_a_violation_that_float64_makes_up_is_no_counterexample(tmp_path) -> None:
    # x + 1e17 - 1e17 is x, but 0 in either type
    model = chain(tmp_path, (1.0, 1e17), (1.0, -1e17))
    assert verify(tmp_path, model, one_input(1, 7, {"range": {"minimum": 0.5}})).verdict != "REFUTED"


@pytest.mark.parametrize("wall", [0.1, 0.7], ids=["above", "below"])
def test_walls_that_float32_lacks_do_not_let_a_witness_out(tmp_path, wall) -> None:
    # the nearest float32 of 0.1 is above it, that of 0.7 below
    model = chain(tmp_path, (1.0, 0.0), (-1.0, 0.0))
    for low, high in ((0.0, wall), (wall, 1.0)):
        for rule in ({"monotone": {"features": ["x0"]}}, {"range": {"minimum": -low - 0.05}}):
            found = verify(tmp_path, model, one_input(low, high, rule))
            assert found.verdict == "REFUTED" and found.witness is not None
            assert all(low <= x[0] <= high for x, _ in replayed(model, found.witness))


def test_a_box_without_a_number_of_the_runtime_is_never_refuted(tmp_path) -> None:
    # float32 has no number between 1e10 + 100 and 1e10 + 200
    model = chain(tmp_path, (1.0, 0.0), (-1.0, 1e10))
    for rule in ({"range": {"maximum": -130}}, {"monotone": {"features": ["x0"]}}):
        found = verify(tmp_path, model, one_input(1e10 + 100, 1e10 + 200, rule), 5.0)
        assert found.verdict in ("UNKNOWN", "TIMEOUT") and found.witness is None


def test_a_witness_of_two_finite_values_lies_in_the_box(tmp_path) -> None:
    # float32 has no number between the walls of x1; the nearest one is outside
    model = dense_file(tmp_path / "pair.onnx", [[[1, 0], [0, 1]], [[-1, 0]]], [[0, 0], [0]])
    claim = {"inputs": {"x0": {"values": [0.5, 1]}}, "box": {"x1": [1e10 + 100, 1e10 + 200]},
             "properties": [{"monotone": {"features": ["x0"]}}]}
    found = verify(tmp_path, model, claim, 5.0)
    assert found.verdict != "REFUTED" and found.witness is None
    claim["box"] = {"x1": [1e10 - 1000, 1e10 + 2000]}  # 1e10, + 1024 and - 1024 or so
    found = verify(tmp_path, model, claim, 5.0)
    assert found.verdict == "REFUTED" and found.witness is not None
    assert all(1e10 - 1000 <= x[1] <= 1e10 + 2000 for x, _ in replayed(model, found.witness))


def test_a_value_that_float32_lacks_is_fed_as_its_nearest(tmp_path) -> None:
    # -relu(x0 + 8 - 10 x1) falls at x1 = 0.7 alone, whose nearest float32 is below the whole box
    model = dense_file(tmp_path / "fall.onnx", [[[1, -10]], [[-1]]], [[8], [0]])
    claim = {"inputs": {"x1": {"values": [0.7, 1]}}, "box": {"x0": [0, 1]},
             "properties": [{"monotone": {"features": ["x0"]}}]}
    found = verify(tmp_path, model, claim, 5.0)
    assert found.verdict == "REFUTED" and found.witness is not None
    assert all(x[1] == np.float32(0.7) for x, _ in replayed(model, found.witness))


@pytest.mark.parametrize(("walls", "feature"), [((1e39, 1e39), None), ((0, 1), [1e39, 2e39])], ids=["held", "values"])
def test_an_input_beyond_the_precision_is_never_refuted(tmp_path, walls, feature) -> None:
    # the nearest number of float32 would be infinity
    model = dense_file(tmp_path / "beyond.onnx", [[[1, 0], [0, 1]], [[-1, -1]]], [[0, 0], [0]])
    claim = {"box": {"x1": walls}, "inputs": {"x0": {"values": feature or [0]}},
             "properties": [{"monotone": {"features": ["x0"]}}] if feature else [{"range": {"minimum": 0}}]}
    found = verify(tmp_path, model, claim, 1.0)
    assert found.verdict in ("UNKNOWN", "TIMEOUT") and found.witness is None
    json.dumps(found.to_json(), allow_nan=False)


def test_a_slope_that_overflow_hides_is_not_proved(tmp_path) -> None:
    # f = 0.8 x, of which float32 bounds lose sight in the third layer: once PROVED to be decreasing
    model = chain(tmp_path, (1.0, 0.0), (8e37, 0.0), (1e-38, 0.0), (1.0, 0.0))
    found = verify(tmp_path, model, one_input(1.8, 2, FALLING))
    assert found.verdict == "REFUTED" and found.witness is not None
    replayed(model, found.witness)


@pytest.mark.parametrize("rule", [{"range": {"maximum": 5}}, FALLING], ids=["range", "monotone"])
def test_values_beyond_float64_are_not_proved(tmp_path, rule) -> None:
    model = chain(tmp_path, *[(1e30, 0.0)] * 12)
    found = verify(tmp_path, model, one_input(1, 2, rule), 1.0)
    assert found.verdict != "PROVED"
    json.dumps(found.to_json(), allow_nan=False)  # nor do infinite bounds leave JSON


@pytest.mark.parametrize(("weight", "rule", "output"), [(1e38, {"range": {"maximum": 5}}, "Infinity"),
                                                        (-1e38, {"range": {"minimum": 5}}, "-Infinity")])
def test_a_witness_at_which_the_runtime_overflows_is_json(tmp_path, weight, rule, output) -> None:
    model = chain(tmp_path, (1.0, 0.0), (1e30, 0.0), (weight, 0.0))
    found = verify(tmp_path, model, one_input(1, 2, rule))
    json.dumps(found.to_json(), allow_nan=False)  # Infinity is no JSON
    assert found.verdict == "REFUTED" and found.witness is not None
    assert [point["outputs"] for point in found.witness["points"]] == [{"y0": output}]


def test_an_answer_at_the_edge_is_left_open(tmp_path) -> None:
    # y = x <= 1 on [0, 1] holds with equality; float64's last place decides nothing
    model = chain(tmp_path, (1.0, 0.0), (1.0, 0.0))
    assert verify(tmp_path, model, one_input(0, 1, {"range": {"maximum": 1}})).verdict in ("UNKNOWN", "PROVED")


# --- time --------------------------------------------------------------------------------------------------


def test_a_time_limit_ends_in_timeout_and_says_how_far_it_came(tmp_path) -> None:
    states: list[tuple[str, Progress]] = []
    claim = {"box": {f"x{i}": [-1, 1] for i in range(8)}, "properties": [{"range": {"maximum": 1.5}}]}
    began = time.monotonic()
    found = verify(tmp_path, undecided_file(tmp_path / "hard.onnx"), claim, 0.5,
                   on_progress=lambda name, state: states.append((name, state)))
    assert time.monotonic() - began < 5
    assert found.verdict == "TIMEOUT" and found.witness is None
    assert 0 <= found.parts[0].proved_share < 1 and found.parts[0].boxes > 0
    assert states and {name for name, _ in states} == {"outputs"}


def test_the_time_limit_holds_for_all_pairs_of_finite_values_together(tmp_path) -> None:
    model = dense_file(tmp_path / "pairs.onnx", [[[1, 0], [0, 1]], [[1, 1]]], [[0, 0], [0]])
    claim = {"inputs": {"x0": {"values": list(range(100))}}, "box": {"x1": [0, 1]},
             "properties": [{"monotone": {"features": ["x0"]}}]}
    found = verify(tmp_path, model, claim, 0.02)
    assert found.seconds < 0.2 or found.verdict == "TIMEOUT"


def test_an_interrupt_is_unknown(tmp_path) -> None:
    def stop(name: str, state: Progress) -> None:
        raise KeyboardInterrupt

    claim = {"box": {f"x{i}": [-1, 1] for i in range(8)}, "properties": [{"range": {"maximum": 1.5}}]}
    found = verify(tmp_path, undecided_file(tmp_path / "hard.onnx"), claim, on_progress=stop)
    assert found.verdict == "UNKNOWN" and "interrupted" in found.parts[0].reason


def test_starting_points_find_what_sampling_misses(tmp_path) -> None:
    model = spike_file(tmp_path / "spike.onnx")
    claim = one_input(0, 1, {"range": {"maximum": 0.5}})
    found = verify(tmp_path, model, claim, points=np.array([[0.9], [0.25]]))
    assert found.verdict == "REFUTED" and found.parts[0].boxes == 0 and found.witness is not None
    ((x, y),) = replayed(model, found.witness)
    assert x[0] == 0.25 and y[0] == 1


def test_a_file_is_read_only(tmp_path) -> None:
    model = chain(tmp_path, (1.0, 0.0), (1.0, 0.0))
    content = model.read_bytes()
    claim = tmp_path / "claim.yaml"
    claim.write_text("box: {x0: [0, 1]}\nproperties:\n- range: {maximum: 0.5}\n")
    decide(model, claim)
    assert model.read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chain.onnx", "claim.yaml"]
