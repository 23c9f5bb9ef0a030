"""Verdicts on ONNX files: each kind of property proved and refuted, every witness run again in onnxruntime."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from onnx import helper

from feature_store.errors import InputError
from models.verification import decide_network
from models.verification.attack.replay import Replay
from models.verification.decide import decide
from models.verification.first_look import FirstLook
from models.verification.obligations import share as shares
from models.verification.onnx_verdict import OnnxVerdict
from models.verification.proof_file import check_proof
from models.verification.search import prove
from models.verification.verdict import Status
from tests.models.verification.onnx_files import dense_file, dense_model, replayed, undecided_file

# y0 = a + b, y1 = y0 + 1 on [0, 1]^2
SUM = ([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]], [[0.0, 0.0], [0.0, 1.0]])
NAMES = {"features": ["a", "b"], "outputs": ["p50", "p99"], "box": {"a": [0, 1], "b": [0, 1]}}
ONE = [[1.0]]


def verify(folder: Path, model: Path, claim: dict[str, Any] | str, seconds: float = 20.0,
           **options: Any) -> OnnxVerdict:
    """Of a SPEC.yaml with this content, or of a VNN-LIB text."""
    text = claim if isinstance(claim, str) else yaml.safe_dump(claim)
    path = folder / ("claim.vnnlib" if isinstance(claim, str) else "claim.yaml")
    path.write_text(text)
    return decide(model, path, seconds, **options)


def chain(folder: Path, *maps: tuple[float, float], **options: Any) -> Path:
    """x -> w x + b, relu, w x + b, ..."""
    return dense_file(folder / "chain.onnx", [[[w]] for w, _ in maps], [[b] for _, b in maps], **options)


def one_input(low: float, high: float, rule: dict[str, Any]) -> dict[str, Any]:
    return {"box": {"x0": [low, high]}, "properties": [rule]}


@pytest.fixture
def total(tmp_path: Path) -> Path:
    return dense_file(tmp_path / "sum.onnx", *SUM)


# --- every kind of property --------------------------------------------------------------------------------

KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {  # holds, does not, what a witness's points show
    "monotone": ({"monotone": {"features": ["a", "b"], "output": "p99"}},
                 {"monotone": {"features": ["b"], "direction": "decreasing", "output": "p50"}},
                 lambda p: p[0][0][1] < p[1][0][1] and p[0][0][0] == p[1][0][0] and p[0][1][0] < p[1][1][0]),
    "range": ({"range": {"output": "p50", "minimum": -0.001, "maximum": 2.001}},
              {"range": {"output": "p50", "maximum": 1.9}}, lambda p: p[0][1][0] > 1.9),
    "order": ({"order": {"upper": "p99", "lower": "p50", "margin": 0.999}},
              {"order": {"upper": "p50", "lower": "p99"}}, lambda p: p[0][1][0] < p[0][1][1]),
    "robust": ({"robust": {"points": [[0.5, 0.5], [0, 1]], "radius": 0.1, "change": 0.3, "output": "p50"}},
               {"robust": {"points": [[0.5, 0.5]], "radius": {"a": 0.2}, "change": 0.15, "output": "p50"}},
               lambda p: p[0][0][1] == 0.5 and abs(p[0][1][0] - 1) > 0.15 and abs(p[0][0][0] - 0.5) <= 0.2)}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_property_is_proved_and_refuted(tmp_path, total, kind) -> None:
    holds, violated, shown = KINDS[kind]
    found = verify(tmp_path, total, NAMES | {"properties": [holds]})
    assert found.verdict == "PROVED" and found.witness is None
    assert found.to_json()["proved_share"] == pytest.approx(1.0)
    found = verify(tmp_path, total, NAMES | {"properties": [violated]})
    assert found.verdict == "REFUTED" and found.witness is not None
    points = replayed(total, found.witness)
    assert shown(points)
    assert all(((x >= 0) & (x <= 1)).all() for x, _ in points)


@pytest.mark.parametrize(("at_least", "verdict"), [(0.9, "PROVED"), (0.98, "UNKNOWN"), (0.99, "REFUTED")],
                         ids=["proved", "unknown", "refuted"])
def test_shares_are_counted(tmp_path, total, at_least, verdict) -> None:
    # p50 <= 1.8 on 98 % of the box
    share = {"share": {"of": {"range": {"output": "p50", "maximum": 1.8}}, "at_least": at_least,
                       "confidence": 1 - 1e-9}}
    found = verify(tmp_path, total, NAMES | {"properties": [share]})
    assert found.verdict == verdict and found.parts[0].name == "share" and "samples" in found.parts[0].reason


def test_a_file_cannot_foresee_the_inputs_that_its_share_is_counted_on(tmp_path: Path) -> None:
    """Its output is 2 everywhere but at the inputs that each of a few guessed seeds would draw."""
    samples = 300
    share = {"of": {"range": {"maximum": 1}}, "at_least": 0.9, "samples": samples, "confidence": 0.99}
    for seed in range(3):
        drawn = np.sort(np.random.default_rng(seed).random(samples))
        low, high = drawn[:-1], drawn[1:]
        inner, steep = np.stack([low + 1e-3 * (high - low), (low + high) / 2, high - 1e-3 * (high - low)], 1), 1e9
        model = dense_file(tmp_path / "between.onnx",
                           [np.full((inner.size, 1), steep), np.tile([[-1.0, 2.0, -1.0]], (1, len(low))), [[-1.0]]],
                           [-steep * inner.ravel(), [2.0], [2.0]], dtype=np.float64)
        found = verify(tmp_path, model, one_input(0, 1, {"share": share}), seed=seed)
        assert found.verdict == "REFUTED", found.parts


def test_a_share_is_counted_on_fresh_inputs_which_the_verdict_names(tmp_path: Path, total: Path) -> None:
    claim = NAMES | {"properties": [{"share": {"of": {"range": {"output": "p50", "maximum": 1.8}}, "at_least": 0.9}}]}
    first, second = verify(tmp_path, total, claim), verify(tmp_path, total, claim)
    drawn = first.reason.rpartition("drawn with ")[2]
    assert first.reason != second.reason and len(bytes.fromhex(drawn)) == 16
    assert verify(tmp_path, total, claim, drawn=drawn).reason == first.reason


def test_the_inputs_of_a_share_depend_on_the_specification(tmp_path: Path, total: Path) -> None:
    share = {"share": {"of": {"range": {"output": "p50", "maximum": 1.8}}, "at_least": 0.9}}
    claims = [NAMES | {"properties": [share]} | units for units in ({}, {"units": {"p50": "ms"}})]
    drawn = 16 * "5a"  # given, so that two counts of 20,000 inputs are not equal by chance in one run of 70
    assert len({verify(tmp_path, total, claim, drawn=drawn).reason for claim in claims}) == 2


def test_a_negative_seed_is_refused(tmp_path: Path, total: Path) -> None:
    with pytest.raises(InputError, match="seed must be a whole number from 0, got -1"):
        verify(tmp_path, total, NAMES | {"properties": [{"range": {"output": "p50", "maximum": 3}}]}, seed=-1)


def test_finite_inputs_are_held_at_their_values_and_compared_pairwise(tmp_path) -> None:
    # f = |x0 - 1.5| + x1 at x0 = 0, 1, 2, 3
    model = dense_file(tmp_path / "v.onnx", [[[1, 0], [-1, 0], [0, 1]], [[1, 1, 1]]], [[-1.5, 1.5, 0], [0]])
    finite = {"inputs": {"x0": {"values": [0, 1, 2, 3]}}, "box": {"x1": [0, 1]}}
    assert verify(tmp_path, model, finite | {"properties": [{"range": {"minimum": 0.499, "maximum": 2.501}}]}
                  ).verdict == "PROVED"
    found = verify(tmp_path, model, finite | {"properties": [{"monotone": {"features": ["x0"]}}]})
    assert found.verdict == "REFUTED" and found.witness is not None
    (low, y_low), (high, y_high) = replayed(model, found.witness)
    assert (low[0], high[0]) == (0, 1) and low[1] == high[1] and y_low[0] > y_high[0]
    tail = {**finite, "inputs": {"x0": {"values": [2, 3]}}}
    assert verify(tmp_path, model, tail | {"properties": [{"monotone": {"features": ["x0", "x1"]}}]}
                  ).verdict == "PROVED"


def test_one_hot_groups_are_held_at_their_combinations(tmp_path, total) -> None:
    claim = {"features": ["a", "b"], "one_hot": [["a", "b"]], "properties": [
        {"range": {"output": "y0", "minimum": 0.999, "maximum": 1.001}}]}
    assert verify(tmp_path, total, claim).verdict == "PROVED"
    claim["properties"] = [{"range": {"output": "y0", "maximum": 0.9}}]
    found = verify(tmp_path, total, claim)
    assert found.verdict == "REFUTED" and found.witness is not None
    ((x, _),) = replayed(total, found.witness)
    assert sorted(x.tolist()) == [0.0, 1.0]


def test_vnnlib_files_are_decided(tmp_path, total) -> None:
    text = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
    text += "(assert (or (and (>= X_0 0) (<= X_0 0.25)) (and (>= X_0 0.75) (<= X_0 1))))\n(assert (>= X_1 0))\n"
    found = verify(tmp_path, total, text + "(assert (<= X_1 1))(assert (or (and (>= Y_0 2.01)) (and (<= Y_1 0.9))))")
    assert found.verdict == "PROVED"
    found = verify(tmp_path, total, text + "(assert (<= X_1 1))(assert (>= Y_0 1.9))(assert (<= Y_1 2.95))")
    assert found.verdict == "REFUTED" and found.witness is not None
    ((x, y),) = replayed(total, found.witness)
    assert x[0] >= 0.75 and y[0] >= 1.9 and y[1] <= 2.95
    assert list(found.witness["points"][0]["inputs"]) == ["X_0", "X_1"]


def test_several_properties_are_parts_and_the_worst_verdict_counts(tmp_path, total) -> None:
    rules = [KINDS["monotone"][0], KINDS["range"][0], KINDS["order"][0]]
    found = verify(tmp_path, total, NAMES | {"properties": rules})
    document = found.to_json()
    assert found.verdict == "PROVED" and [part["name"] for part in document["parts"]] == ["monotone", "outputs"]
    assert document["reason"] == "2 of 2 parts proved"
    found = verify(tmp_path, total, NAMES | {"properties": [KINDS["monotone"][1], *rules[1:]]})
    assert found.verdict == "REFUTED" and [part.name for part in found.parts] == ["monotone"]


# --- files of other makes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Relu", "LeakyRelu", "Tanh", "Sigmoid"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64], ids=["float16", "float32", "float64"])
def test_every_activation_in_every_type_is_proved_and_refuted(tmp_path, kind, dtype) -> None:
    model = chain(tmp_path, (1.0, 0.0), (1.0, 0.0), (1.0, 0.0), kind=kind, dtype=dtype)
    for maximum, verdict in ((1.01, "PROVED"), (0.2, "REFUTED")):
        found = verify(tmp_path, model, one_input(0, 1, {"range": {"maximum": maximum}}))
        assert found.verdict == verdict
    assert found.witness is not None
    ((x, y),) = replayed(model, found.witness)
    assert 0 <= x[0] <= 1 and y[0] > 0.2
    assert verify(tmp_path, model, one_input(0, 1, {"monotone": {"features": ["x0"]}})).verdict == "PROVED"


def test_a_symbolic_batch_is_one(tmp_path) -> None:
    model = chain(tmp_path, (1.0, 0.0), (1.0, 0.0), batch="n")
    found = verify(tmp_path, model, one_input(0, 1, {"range": {"maximum": 0.5}}))
    assert found.verdict == "REFUTED" and found.witness is not None
    replayed(model, found.witness)


def test_an_activation_that_no_output_takes_does_no_harm(tmp_path) -> None:
    model = dense_model([ONE, ONE], [[0.0], [0.0]])
    model.graph.node.insert(0, helper.make_node("Relu", ["x"], ["unused"]))
    path = tmp_path / "unused.onnx"
    path.write_bytes(model.SerializeToString())
    for maximum, verdict in ((1.01, "PROVED"), (0.5, "REFUTED")):
        assert verify(tmp_path, path, one_input(-1, 1, {"range": {"maximum": maximum}})).verdict == verdict
    assert verify(tmp_path, path, one_input(-1, 1, {"monotone": {"features": ["x0"]}})).verdict == "PROVED"


def test_a_network_without_activations_is_decided_over_several_boxes(tmp_path) -> None:
    model = dense_file(tmp_path / "linear.onnx", [[[-1.0, 1.0]]], [[0.0]])
    for direction, verdict in (("decreasing", "PROVED"), ("increasing", "REFUTED")):
        claim = {"inputs": {"x1": {"values": [0, 1]}}, "box": {"x0": [0, 1]},
                 "properties": [{"monotone": {"features": ["x0"], "direction": direction}}]}
        assert verify(tmp_path, model, claim).verdict == verdict


@pytest.mark.parametrize(("change", "message"), [
    ({"features": ["x0", "x1"]}, "1 inputs"), ({"box": {}}, "box: expected walls"), ({"properties": []}, "propert"),
    ({"box": {"x0": [1, 0]}}, "lower"), ({"propertes": []}, "propert")],
    ids=["names", "no-box", "no-property", "empty-box", "unknown-field"])
def test_a_property_that_does_not_fit_is_refused(tmp_path, change, message) -> None:
    claim = one_input(0, 1, {"range": {"maximum": 1}}) | change
    with pytest.raises(InputError, match=message):
        verify(tmp_path, chain(tmp_path, (1.0, 0.0), (1.0, 0.0)), claim)


def test_points_of_another_width_and_limits_that_are_not_positive_are_refused(tmp_path, total) -> None:
    claim = NAMES | {"properties": [KINDS["range"][0]]}
    with pytest.raises(InputError, match="points must have 2 columns"):
        verify(tmp_path, total, claim, points=np.zeros((3, 1)))
    for seconds in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="timeout must be positive"):
            verify(tmp_path, total, claim, seconds)


def test_verdicts_say_what_was_verified_and_are_json(tmp_path, total) -> None:
    found = verify(tmp_path, total, NAMES | {"properties": [KINDS["range"][1]]})
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert len(document["model_sha256"]) == len(document["specification_sha256"]) == 64
    assert document["verdict"] == "REFUTED" and "p50 is at most 1.9" in document["statement"]
    assert document["witness"]["replayed_with"] == "onnxruntime"
    assert document["witness"]["units"] == {}


def test_units_are_part_of_the_witness(tmp_path, total) -> None:
    claim = NAMES | {"units": {"a": "req/s", "p50": "ms"}, "properties": [KINDS["range"][1]]}
    found = verify(tmp_path, total, claim)
    assert found.witness is not None and found.witness["units"] == {"a": "req/s", "p50": "ms"}
    with pytest.raises(InputError, match=r"units.p5: expected an input or an output of the model, got 'p5'"):
        verify(tmp_path, total, claim | {"units": {"p5": "ms"}})


def test_numbers_are_given_with_all_their_digits(tmp_path, total) -> None:
    tolerance, confidence = 0.000123456789, 0.99999999
    share = {"share": {"of": {"range": {"output": "p50", "maximum": 3}}, "at_least": 0.5, "confidence": confidence}}
    claim = NAMES | {"tolerance": tolerance, "box": {"b": [0, 1]}, "inputs": {"a": {"values": [0.1, 0.1000001, 2]}},
                     "properties": [{"monotone": {"features": ["a"], "output": "p50"}}, share]}
    found = verify(tmp_path, total, claim)
    assert found.statement.endswith("A pair may violate the order of p50 by at most 0.000235 over the box "
                                    "(0.000123456789 per unit of a feature).")
    assert [part.name for part in found.parts] == [
        "a from 0.10000000149011612 to 0.10000009834766388, p50", "a from 0.10000009834766388 to 2, p50", "share"]
    least = (((1 - confidence) / 2) ** (1 / 20000))  # the share of which 20,000 of 20,000 are that likely
    assert found.parts[-1].reason.startswith("20000 of 20000 samples: between 0.99")
    assert f" and 1 with confidence {confidence!r}, drawn with " in found.parts[-1].reason
    assert float(found.parts[-1].reason.split()[5]) == pytest.approx(least, rel=1e-12)
    assert "violate" not in verify(tmp_path, total, claim | {"properties": [KINDS["range"][1]]}).statement


# --- the tolerance, in units of the output ------------------------------------------------------------------------

INCREASING = {"monotone": {"features": ["x0"]}}


@pytest.mark.parametrize(("high", "slope"), [(10_000.0, -5e-5), (1e9, -9e-5), (1.0, -5e-5), (1.0, -5e-12)])
def test_a_network_that_falls_all_the_way_is_refuted_in_whatever_units(
    tmp_path: Path, high: float, slope: float,
) -> None:
    """Over [0, 10000] a fall from 1 to 0.5 has a slope of -5e-5 only; of a latency in s a fall may be of 1e-12."""
    model = chain(tmp_path, (slope, -slope * high * 2), (1.0, 0.0))
    assert verify(tmp_path, model, one_input(0.0, high, INCREASING)).status is Status.REFUTED


def test_the_sentence_says_what_the_tolerance_comes_to_and_the_certificate_has_it(tmp_path: Path) -> None:
    model = dense_file(tmp_path / "m.onnx", [[[1.0, 0.0], [0.0, 50.0]], [[0.5, 0.01]]], [[0.0, 0.0], [0.0]])
    claim = {"features": ["load", "cores"], "outputs": ["latency"], "units": {"latency": "ms"},
             "box": {"load": [0, 1000], "cores": [0, 4]}, "properties": [{"monotone": {"features": ["load", "cores"]}}]}
    found = verify(tmp_path, model, claim, certificate=tmp_path / "proof.npz")
    assert found.status is Status.PROVED and found.statement.startswith(
        "The output is increasing in load, cores, for every input in the box, with the other inputs equal: a pair may "
        "violate the order by at most 0.101 ms over the box (0.0502 ms for each feature). It is proved")
    checked = check_proof(tmp_path / "proof.npz", model, tmp_path / "claim.yaml")
    assert checked.accepted and checked.statement == found.statement
    slope = verify(tmp_path, model, claim | {"tolerance": 0.001})
    assert "by at most 1.01 ms over the box (0.001 ms per unit of a feature)." in slope.statement


@pytest.mark.parametrize("seed", range(4))
def test_no_pair_of_a_proved_network_violates_the_order_by_more_than_the_sentence_says(
    tmp_path: Path, seed: int,
) -> None:
    """A network that falls by 0.9 of what is allowed, in both features: proved, and its worst pair is within."""
    rng = np.random.default_rng(seed)
    high = 10.0 ** rng.integers(-6, 7, 2)
    weights = [[[1 / high[0], 0], [0, 1 / high[1]], [1 / high[0], 1 / high[1]]], [[-4.5e-5, -4.5e-5, -4.5e-5]]]
    # the third input makes the range: 1 for sure, the two monotone features fall along it by 9e-5 each
    weights = [[[*row, 0] for row in weights[0]] + [[0, 0, 1]], [[*weights[1][0], 1]]]
    model = dense_file(tmp_path / "m.onnx", weights, [[0] * 4, [0]])
    claim = {"box": {"x0": [0, float(high[0])], "x1": [0, float(high[1])], "x2": [0, 1]},
             "properties": [{"monotone": {"features": ["x0", "x1"]}}]}
    found = verify(tmp_path, model, claim)
    assert found.status is Status.PROVED
    stated = float(re.findall(r"at most (\S+) over the box", found.statement)[0])
    corners = [Replay(model)(np.array([*x, 0.5])) for x in ([0, 0], high)]
    assert 1.7e-4 < float(corners[0][0] - corners[1][0]) <= stated == pytest.approx(2e-4)
    claim["properties"] = [{"monotone": {"features": ["x0", "x1"]}}]
    weights[1] = [[-6e-5, -6e-5, -6e-5, 1]]
    model = dense_file(tmp_path / "m.onnx", weights, [[0] * 4, [0]])
    assert verify(tmp_path, model, claim).status is Status.REFUTED


def test_a_feature_that_the_box_holds_at_one_number_has_nothing_to_prove(tmp_path: Path, total: Path) -> None:
    falling = NAMES | {"box": {"a": [0, 1], "b": [0.5, 0.5]},
                       "properties": [{"monotone": {"features": ["b"], "direction": "decreasing", "output": "p50"}}]}
    found = verify(tmp_path, total, falling)
    assert found.status is Status.PROVED and found.parts == ()
    assert found.statement.endswith("of p50 by at most 0 over the box.")


def test_an_order_without_a_pair_holds(tmp_path, total) -> None:
    claim = NAMES | {"box": {"b": [0, 1]}, "inputs": {"a": {"values": [0.5]}},
                     "properties": [{"monotone": {"features": ["a"], "direction": "decreasing", "output": "p50"}}]}
    document = verify(tmp_path, total, claim).to_json()
    assert document["verdict"] == "PROVED" and document["parts"] == []
    assert document["reason"] == "no two inputs of the box can be compared"


@pytest.mark.parametrize(("opset", "ir", "said"), [(28, 8, "till opset 26"), (17, 14, "max supported IR version: 13")])
def test_a_file_too_new_for_onnxruntime_is_refused_in_one_line(tmp_path, opset, ir, said) -> None:
    model = chain(tmp_path, (1.0, 0.0), (1.0, 0.0), opset=opset, ir=ir)
    with pytest.raises(InputError, match="model must run in onnxruntime .*which says: .*" + said) as caught:
        verify(tmp_path, model, one_input(0, 1, {"range": {"maximum": 1}}))
    assert "\n" not in str(caught.value) and ".h:" not in str(caught.value) and ".cc:" not in str(caught.value)


# --- ends before all is decided ----------------------------------------------------------------------------

OPEN = {"box": {f"x{i}": [-1, 1] for i in range(8)}, "properties": [
    {"range": {"maximum": 1.5}}, {"share": {"of": {"range": {"maximum": 1.5}}, "at_least": 0.5}},
    {"share": {"of": {"range": {"maximum": 1.5}}, "at_least": 0.6}}]}


def parts(found: OnnxVerdict) -> list[tuple[str, str, str]]:
    return [(part.name, str(part.status), part.reason) for part in found.parts]


def interrupted(*arguments: Any, **options: Any) -> Any:
    raise KeyboardInterrupt


def test_parts_that_are_not_begun_when_the_time_is_over_say_so(tmp_path) -> None:
    found = verify(tmp_path, undecided_file(tmp_path / "hard.onnx"), OPEN, 2.5)
    late = "not begun: time budget of 2.5 s is spent"
    assert found.verdict == "TIMEOUT" and parts(found)[1:] == [("share", "TIMEOUT", late)] * 2
    assert found.parts[0].boxes > 0 and not any(part.boxes or part.proved_share for part in found.parts[1:])


def test_an_interrupt_of_the_search_ends_the_run(tmp_path) -> None:
    found = verify(tmp_path, undecided_file(tmp_path / "hard.onnx"), OPEN, on_progress=interrupted)
    assert found.verdict == "UNKNOWN" and found.seconds < 15
    assert found.parts[0].reason.startswith("interrupted") and found.parts[0].boxes > 0
    assert parts(found)[1:] == [("share", "UNKNOWN", "not begun: interrupted")] * 2


@pytest.mark.parametrize(("place", "name", "number"), [
    (FirstLook, "outputs", 0), (decide_network, "prove_roots", 0), (prove, "prove_outputs", 0),
    (Replay, "__call__", 0), (shares, "check_share", 1)], ids=["first-look", "roots", "search", "replay", "share"])
def test_an_interrupt_outside_of_the_search_ends_the_run_too(tmp_path, total, monkeypatch, place, name, number) -> None:
    # the range is proved; with one that is not, a witness is replayed
    share = {"share": {"of": {"range": {"output": "p50", "maximum": 3}}, "at_least": 0.5}}
    rule = KINDS["range"][1] if name == "__call__" else KINDS["range"][0]
    if name == "prove_outputs":
        monkeypatch.setattr(decide_network, "prove_roots", lambda *_: None)
    monkeypatch.setattr(place, name, interrupted)
    found = verify(tmp_path, total, NAMES | {"properties": [rule, share, share]})
    assert found.verdict == "UNKNOWN" and len(found.parts) == 3
    assert [status for _, status, _ in parts(found)[:number]] == ["PROVED"] * number
    assert found.parts[number].status is Status.UNKNOWN and found.parts[number].reason.startswith("interrupted")
    assert {reason for _, _, reason in parts(found)[number + 1:]} == {"not begun: interrupted"}
    json.dumps(found.to_json(), allow_nan=False)


# --- conditions, and relations of outputs to inputs ------------------------------------------------------------------


def peak(folder: Path) -> Path:
    """y0 = 1 - |a - 0.5| (rises up to 0.5, then falls), y1 = b + a / 4: of a and b."""
    first = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    return dense_file(folder / "peak.onnx", [first, [[-1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.25]]],
                      [[-0.5, 0.5, 0.0, 0.0], [1.0, 0.0]])


PEAK: dict[str, Any] = {"features": ["a", "b"], "outputs": ["y0", "y1"], "box": {"a": [0, 1], "b": [0, 1]}}
RISES, FALLS = ({"features": ["a"], "output": "y0", "direction": way} for way in ("increasing", "decreasing"))


def conditional(kind: str, body: dict[str, Any], **when: list[float]) -> dict[str, Any]:
    return {**PEAK, "properties": [{kind: {**body, "when": when} if when else body}]}


CONDITIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # holds, does not
    "monotone": (conditional("monotone", RISES, a=[0, 0.49]), conditional("monotone", RISES, a=[0.25, 0.75])),
    "monotone, falling": (conditional("monotone", FALLS, a=[0.51, 1]), conditional("monotone", FALLS)),
    "range": (conditional("range", {"output": "y0", "minimum": 0.749}, a=[0.25, 0.75]),
              conditional("range", {"output": "y0", "minimum": 0.749}, b=[0.25, 0.75])),
    "held": (conditional("range", {"output": "y1", "maximum": 0.501}, b=[0.5, 0.5], a=[0, 0.001]),
             conditional("range", {"output": "y1", "maximum": 0.499}, b=[0.5, 0.5])),
    "held at no float32": (conditional("range", {"output": "y1", "minimum": 0.0999}, b=[0.1, 0.1]),
                           conditional("range", {"output": "y1", "minimum": 0.1001}, b=[0.1, 0.1])),
    "robust": (conditional("robust", {"points": [[0.5, 0.5]], "radius": {"b": 0.2}, "change": 0.11, "output": "y1"},
                           b=[0.4, 0.6]),
               conditional("robust", {"points": [[0.5, 0.5]], "radius": {"b": 0.2}, "change": 0.11, "output": "y1"})),
    "order with an input": (conditional("order", {"upper": "y1", "lower": "b", "margin": 0.124}, a=[0.5, 1]),
                            conditional("order", {"upper": "y1", "lower": "b", "margin": 0.124})),
    "an input on top": (conditional("order", {"upper": "b", "lower": "y1", "margin": -0.251}),
                        conditional("order", {"upper": "b", "lower": "y1", "margin": -0.249})),
    "a difference to an input": (conditional("range", {"output": "y1", "minus": "b", "maximum": 0.2501}),
                                 conditional("range", {"output": "y1", "minus": "b", "maximum": 0.2499})),
    "a difference of outputs": (conditional("range", {"output": "y0", "minus": "y1", "minimum": -0.01}, b=[0, 0.25]),
                                conditional("range", {"output": "y0", "minus": "y1", "minimum": -0.01})),
}


@pytest.mark.parametrize("certified", [False, True], ids=["search", "certificate"])
@pytest.mark.parametrize("kind", CONDITIONS)
def test_conditions_and_relations_are_proved_and_refuted(tmp_path: Path, kind: str, certified: bool) -> None:
    model, proof = peak(tmp_path), tmp_path / "proof.npz"
    holds, fails = CONDITIONS[kind]
    options: dict[str, Any] = {"certificate": proof} if certified else {}
    found = verify(tmp_path, model, holds, **options)
    assert found.verdict == "PROVED", found
    if certified:
        assert check_proof(proof, model, tmp_path / "claim.yaml").accepted
        text = (tmp_path / "claim.yaml").read_text()
        (tmp_path / "claim.yaml").write_text(yaml.safe_dump(fails))
        assert not check_proof(proof, model, tmp_path / "claim.yaml").accepted
        (tmp_path / "claim.yaml").write_text(text)
    when = next(iter(holds["properties"][0].values())).get("when", {})
    assert all(f"{name} is " in found.statement for name in when)
    found = verify(tmp_path, model, fails, **options)
    assert found.verdict == "REFUTED", found
    assert found.witness is not None
    replayed(model, found.witness)
    for name, (low, high) in next(iter(fails["properties"][0].values())).get("when", {}).items():
        for point in found.witness["points"]:
            assert low <= point["inputs"][name] <= high or (low == high and point["inputs"][name] == np.float32(low))


def test_conditions_on_a_finite_input_that_float32_does_not_have(tmp_path: Path) -> None:
    """0.1 and 0.7 are fed as the nearest float32, of which one lies outside of the condition as it is written."""
    model = peak(tmp_path)
    claim = {"features": ["a", "b"], "outputs": ["y0", "y1"], "box": {"b": [0, 1]},
             "inputs": {"a": {"values": [0.1, 0.4, 0.7]}},
             "properties": [{"monotone": {"features": ["a"], "output": "y0", "when": {"a": [0.1, 0.4]}}}]}
    found = verify(tmp_path, model, claim)
    assert found.verdict == "PROVED" and len(found.parts) == 1 and ", where a is 0.1" in found.parts[0].name
    claim["properties"][0]["monotone"]["when"] = {"a": [0.4, 0.7]}
    assert verify(tmp_path, model, claim).verdict == "REFUTED"
    claim["properties"][0]["monotone"]["when"] = {"a": [0.7, 0.7]}
    assert verify(tmp_path, model, claim).verdict == "PROVED"  # of one value no two can be in the wrong order


def test_a_share_is_counted_under_its_condition(tmp_path: Path) -> None:
    share = {"of": {"range": {"output": "y0", "minimum": 0.75}}, "at_least": 0.9, "samples": 2000}
    model = peak(tmp_path)
    assert verify(tmp_path, model, conditional("share", share)).verdict == "REFUTED"
    assert verify(tmp_path, model, conditional("share", share, a=[0.25, 0.75])).verdict == "PROVED"


def test_opposite_orders_under_opposite_conditions_are_parts_of_their_own(tmp_path: Path) -> None:
    rules = [{"monotone": {**RISES, "when": {"a": [0, 0.49]}}}, {"monotone": {**FALLS, "when": {"a": [0.51, 1]}}}]
    found = verify(tmp_path, peak(tmp_path), {**PEAK, "properties": rules})
    assert found.verdict == "PROVED"
    assert [part.name for part in found.parts] == ["monotone, where a is 0 to 0.49", "monotone, where a is 0.51 to 1"]


def at_least(pairs: dict[str, str], **box: Any) -> dict[str, Any]:
    order = {"order": {"upper": "y", "lower": "before", "margin": -1, "at_least": pairs}}
    return {"features": ["seen", "goal", "before"], "outputs": ["y"], "properties": [order],
            "box": {"seen": [0, 3], "goal": [4, 1000], "before": [0, 1], **box}}


@pytest.mark.parametrize("claim", [
    at_least({"seen": "goal"}),  # seconds against milliseconds
    at_least({"seen": "goal", "before": "seen"}, goal=[0.5, 1000], seen=[2, 3]),
    at_least({"seen": "before", "before": "goal"}, goal=[2, 1000]),
    {**at_least({"seen": "goal"}, seen=[0, 5]), "inputs": {"goal": {"values": [4.5, 6]}, "seen": {"values": [1, 4]}},
     "box": {"before": [0, 1]}},
], ids=["units", "both", "chain", "values"])
def test_an_order_whose_comparison_no_input_meets_is_refused(tmp_path: Path, claim: dict[str, Any]) -> None:
    model = dense_file(tmp_path / "m.onnx", [[[0, 0, 0.5]]], [[0]])
    with pytest.raises(InputError, match="at_least must be met by an input of the box, got none where seen is"):
        verify(tmp_path, model, claim)


def test_a_comparison_that_one_corner_meets_is_decided(tmp_path: Path) -> None:
    model = dense_file(tmp_path / "m.onnx", [[[0, 0, 0.5]]], [[0]])
    assert verify(tmp_path, model, at_least({"seen": "goal"}, seen=[0, 4])).verdict == "PROVED"
