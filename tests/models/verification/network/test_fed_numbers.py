"""What is proved of a box covers what a runtime is fed for it, in every type and however narrow the box is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.verification import execution
from models.verification.language.claim import Part
from models.verification.language.properties import OutputRange
from models.verification.language.specification import Specification
from models.verification.network.fed_numbers import as_fed, fed, held, hull, inward
from models.verification.proof_file import check_proof
from tests.models.verification.onnx_files import dense_file, replayed, run_file
from tests.models.verification.test_decide import chain, one_input, verify

TYPES = [np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)]
WALLS = st.floats(-1e3, 1e3) | st.sampled_from([0.0, -0.0, 0.1, 0.7, -0.1, 5e-324, 1e-45, 6e4, 1e30, -1e39, 1e300])
HOLDS = "(declare-const X_0 Real)(declare-const Y_0 Real)"


@pytest.mark.parametrize("number", TYPES, ids=str)
@given(walls=st.tuples(WALLS, WALLS).map(sorted), share=st.floats(0, 1))
def test_what_is_fed_for_a_point_of_a_box_lies_in_its_hull(number: Any, walls: list[float], share: float) -> None:
    lower, upper = (np.array([wall]) for wall in walls)
    low, high = hull(lower, upper, number)
    assert low <= lower <= upper <= high
    point = np.clip(lower * (1 - share) + upper * share, lower, upper)
    for x in (lower, point, upper):
        with np.errstate(over="ignore"):
            near = x.astype(number).astype(np.float64)
        assert low <= near <= high or not np.isfinite(near)
    if number == np.float64:
        assert (low, high) == (lower, upper)


@pytest.mark.parametrize("number", TYPES, ids=str)
@given(walls=st.tuples(WALLS, WALLS).map(sorted))
def test_inward_walls_are_numbers_of_the_type_in_the_box_where_it_has_any(number: Any, walls: list[float]) -> None:
    lower, upper = (np.array([wall]) for wall in walls)
    (low,), (high,) = inward(lower, upper, number)
    if np.isfinite([low, high]).all():
        assert low <= high
    if low < high:
        assert lower <= low and high <= upper
        assert fed(np.array([low, high]), number).tolist() == [low, high]


def test_an_input_is_held_by_equal_walls_and_by_the_two_neighbours_of_a_number_that_float64_lacks() -> None:
    below, above = np.nextafter(0.1, 0), np.nextafter(0.1, 1)
    lower, upper = np.array([0.1, below, below, 0.0]), np.array([0.1, 0.1, above, 0.1])
    assert held(lower, upper).tolist() == [True, True, False, False]


def test_finite_values_are_those_that_are_fed() -> None:
    claim = Specification(("a", "b"), np.array([0.7, 0.1]), np.array([1.0, 0.9]), (OutputRange(0, 0.0, 1.0),),
                          choices={0: (0.7, 1.0)})
    made = as_fed(claim, np.dtype(np.float32))
    assert made.choices == {0: (float(np.float32(0.7)), 1.0)}
    assert made.lower.tolist() == [float(np.float32(0.7)), 0.1] and made.upper.tolist() == [1.0, 0.9]
    assert as_fed(claim, np.dtype(np.float64)).choices == claim.choices
    claim = Specification(("a",), np.array([0.1]), np.array([0.2]), claim.properties, choices={0: (0.1, 0.1 + 1e-12)})
    with pytest.raises(InputError, match=r"values must be distinct as numbers of float32.*\(feature 'a'\)"):
        as_fed(claim, np.dtype(np.float32))


# --- verdicts ----------------------------------------------------------------------------------------------

# relu(slope (x - at)) and relu(slope (at - x)) are 0 in the box and large at the float32 that is fed for its wall
SPIKES = {"held at 0.1": (0.1, 0.1, 1.0, 0.1), "up to 0.1": (0.0, 0.1, 1.0, 0.1), "from 0.7": (0.7, 1.0, -1.0, 0.7),
          "from -0.1": (-0.1, 1.0, -1.0, -0.1), "held at 0.7": (0.7, 0.7, -1.0, 0.7)}


@pytest.mark.parametrize("case", SPIKES)
def test_what_onnxruntime_does_at_the_float32_of_a_wall_is_never_proved_away(tmp_path, monkeypatch, case) -> None:
    low, high, sign, at = SPIKES[case]
    fed_for_the_wall, slope = float(np.float32(at)), sign * 2.0**40
    edge = float(np.nextafter(np.float32(at), np.float32(-sign * np.inf)))  # a float32 in the box, or below it
    model = dense_file(tmp_path / "spike.onnx", [[[slope]], [[1.0]]], [[-slope * edge], [0.0]])
    limit = slope * ((at + fed_for_the_wall) / 2 - edge)  # kept at the wall, exceeded at what is fed for it
    claim = one_input(low, high, {"range": {"maximum": limit}})
    assert run_file(model, np.array([fed_for_the_wall]))[0] > limit
    found = verify(tmp_path, model, claim, 1.0)
    assert found.verdict in ("UNKNOWN", "TIMEOUT") and found.witness is None  # nor is it one in the box
    proof, proved = tmp_path / "proof.npz", Part.proved
    monkeypatch.setattr(Part, "proved", property(lambda part: (part.lower, part.upper)))
    monkeypatch.setattr(execution, "MOST_SHARE", np.inf)  # such a slope is lost to rounding: another question
    found = verify(tmp_path, model, claim, 1.0, certificate=proof)
    assert found.verdict == "PROVED"  # of the box as it is written it is true
    monkeypatch.setattr(Part, "proved", proved)
    assert not check_proof(proof, model, tmp_path / "claim.yaml").accepted  # but no proof of what is fed


def test_a_proof_of_a_held_input_holds_at_the_number_that_is_fed(tmp_path) -> None:
    model = chain(tmp_path, (1.0, 0.0), (1.0, 0.0))
    proof = tmp_path / "proof.npz"
    claim = one_input(0.1, 0.1, {"range": {"maximum": 0.11, "minimum": 0.09}})
    assert verify(tmp_path, model, claim, certificate=proof).verdict == "PROVED"
    assert check_proof(proof, model, tmp_path / "claim.yaml").accepted
    assert verify(tmp_path, model, one_input(0.1, 0.1, {"range": {"maximum": 0.1 + 1e-10}}), 1.0).verdict != "PROVED"


@pytest.mark.parametrize("number", TYPES, ids=str)
@pytest.mark.parametrize("text", ["0.1", "0.7", "-0.3", "0.36836116628764121234567890", "0.5", "1e-3"])
def test_a_held_vnnlib_input_is_fed_with_the_nearest_number(tmp_path, text, number) -> None:
    # y = relu(x + 1) >= 0 is unsafe everywhere; equal decimal walls are an ulp apart in float64
    model = chain(tmp_path, (1.0, 1.0), (1.0, 0.0), dtype=number.type)
    walls = f"(assert (<= X_0 {text}))(assert (>= X_0 {text}))"
    found = verify(tmp_path, model, HOLDS + walls + "(assert (>= Y_0 0))", 10.0)
    assert found.verdict == "REFUTED" and found.witness is not None
    ((x, _),) = replayed(model, found.witness)
    assert abs(x[0] - number.type(text)) <= np.spacing(number.type(abs(float(text)))) * (number == np.float64)
    found = verify(tmp_path, model, HOLDS + f"(assert (= X_0 {text}))(assert (<= Y_0 0))", 10.0)
    assert found.verdict == "PROVED"


def test_finite_values_are_compared_as_they_are_fed(tmp_path) -> None:
    # falls between the float32 of 0.7 and 0.7 itself, where nothing is fed; rises elsewhere
    at = float(np.float32(0.7))
    model = dense_file(tmp_path / "v.onnx", [[[2.0**24]], [[1.0]]], [[-(2.0**24) * at], [0.0]])
    claim = {"inputs": {"x0": {"values": [0.7, 1]}}, "properties": [{"range": {"maximum": 0.1}}]}
    found = verify(tmp_path, model, claim)
    assert found.verdict == "REFUTED" and "0.699999988079071, 1" in found.statement
    assert "It is proved" not in str(found.to_json()) and "It is asked of the network" in found.to_json()["statement"]


def test_a_change_is_measured_from_what_is_fed_for_the_point(tmp_path: Path) -> None:
    """For 0.1 a network of float32 is fed 0.1 + 1.5e-9: further from the lower end, at a slope of 1e6, by 1.5e-3."""
    model = chain(tmp_path, (1e6, 0.0))
    low, point = (float(np.float32(value)) for value in (0.099, 0.1))
    from_written, from_fed = 1e6 * (0.1 - low), 1e6 * (point - low)
    assert from_fed - from_written > 1e-3

    def near(change: float) -> dict[str, Any]:
        return one_input(0.099, 0.1, {"robust": {"points": [[0.1]], "radius": 0.5, "change": change}})

    assert verify(tmp_path, model, near((from_written + from_fed) / 2)).verdict != "PROVED"
    assert verify(tmp_path, model, near(from_fed * (1 + 1e-9))).verdict == "PROVED"


def test_a_point_at_a_finite_value_that_float32_lacks_has_inputs_near_it(tmp_path: Path) -> None:
    model = dense_file(tmp_path / "two.onnx", [[[1.0, 1.0]]], [[0.0]])
    claim = {"box": {"x1": [0, 1]}, "inputs": {"x0": {"values": [0.1, 0.7]}},
             "properties": [{"robust": {"points": [[0.1, 0.5]], "radius": {"x1": 0.25}, "change": 0.3}}]}
    assert verify(tmp_path, model, claim).verdict == "PROVED"
