"""A predictor answers for inputs inside the verified box, says when it moved one, refuses nonsense."""

import hashlib
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from feature_store.errors import InputError, RefusedError
from serving.bundle import check_bundle
from serving.contract import Contract
from serving.inputs import InputReader
from serving.session import Prediction, Predictor
from serving.signature import sign_folder
from tests.serving.conftest import ROOT, made_up_proof

Keys = tuple[Path, Path]
ROW = {"psi_cpu_some": 0.2, "psi_io_full": 0.5, "connections": 8.0}
NAMES = list(ROW)

REDIS: dict[str, Any] = {"task": "performance", "workload": "redis"}

@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, bundle_writer: Callable[..., Path], keys: Keys) -> Path:
    folder = bundle_writer(tmp_path_factory.mktemp("session") / "bundle")
    sign_folder(folder, keys[0])
    return folder


@pytest.fixture(scope="module")
def predictor(folder: Path, keys: Keys) -> Predictor:
    return Predictor.from_folder(folder, keys[1], **REDIS)


@pytest.fixture(scope="module")
def reader(contract_data: Callable[..., dict[str, Any]]) -> InputReader:
    return InputReader(Contract.from_json(contract_data()))


def plain(folder: Path, rows: list[list[float]]) -> list[float]:
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    answer = session.run(None, {"telemetry": np.array(rows, dtype=np.float32)})[0]
    values: list[float] = answer.ravel().tolist()
    return values


def test_every_form_of_a_row_gives_what_plain_onnxruntime_gives(predictor: Predictor, folder: Path) -> None:
    expected = plain(folder, [list(ROW.values())])
    forms: list[Any] = [
        ROW,
        dict(reversed(ROW.items())),
        [ROW],
        (ROW,),
        pd.DataFrame([ROW]),
        pd.DataFrame([ROW])[NAMES[::-1]],
        pd.DataFrame([ROW]).convert_dtypes(),
        pd.DataFrame([ROW], index=[99]),
        np.array(list(ROW.values())),
        np.array([list(ROW.values())], dtype=np.float32),
    ]
    for form in forms:
        prediction = predictor.predict(form)
        assert prediction.values == pytest.approx(expected, rel=1e-6)
        assert (prediction.output, prediction.unit) == ("latency_ms", "ms")
        assert (prediction.outside_box, prediction.rows_outside) == ((), 0)
    assert predictor.predict(ROW).value == pytest.approx(expected[0])


def test_numbers_of_any_kind_are_numbers(predictor: Predictor) -> None:
    expected = predictor.predict(ROW)
    for kind in (np.float64, np.float32, np.float16):
        row = {name: kind(value) for name, value in ROW.items()}
        assert predictor.predict(row).value == pytest.approx(expected.value, rel=1e-3)
    assert predictor.predict({**ROW, "connections": 8}) == expected
    assert predictor.predict({**ROW, "connections": np.int64(8)}) == expected


def test_many_rows_keep_their_order(predictor: Predictor, folder: Path) -> None:
    generator = np.random.default_rng(1)
    rows = generator.uniform([0.0, 0.1, 1.0], [0.6, 0.9, 64.0], (50, 3))
    expected = plain(folder, rows.tolist())
    frame = pd.DataFrame(rows, columns=NAMES)
    for form in (rows, frame, frame.to_dict("records")):
        assert predictor.predict(form).values == pytest.approx(expected, rel=1e-6)
    with pytest.raises(InputError, match="got 50 rows"):
        _ = predictor.predict(frame).value


def test_a_prediction_cannot_be_changed(predictor: Predictor) -> None:
    prediction = predictor.predict(ROW)
    assert isinstance(prediction, Prediction)
    with pytest.raises(AttributeError):
        prediction.values = (0.0,)  # type: ignore[misc]


def test_values_outside_the_verified_box_are_moved_to_its_edge_and_reported(
    predictor: Predictor, folder: Path
) -> None:
    row = {"psi_cpu_some": 0.95, "psi_io_full": 0.5, "connections": 100}
    edge = plain(folder, [[0.6, 0.5, 64.0]])
    for form in (row, [row], pd.DataFrame([row]), np.array(list(row.values()))):
        prediction = predictor.predict(form)
        assert prediction.values == pytest.approx(edge, rel=1e-6)
        assert prediction.outside_box == ("psi_cpu_some", "connections")
        assert prediction.rows_outside == 1
    mixed = predictor.predict([ROW, row, {**ROW, "psi_io_full": 0.0}])
    assert mixed.outside_box == ("psi_cpu_some", "psi_io_full", "connections")
    assert mixed.rows_outside == 2
    assert mixed.values[1] == pytest.approx(edge[0], rel=1e-6)


def test_the_edge_itself_is_inside(predictor: Predictor) -> None:
    for row in ([0.0, 0.1, 1.0], [0.6, 0.9, 64.0]):
        assert predictor.predict(np.array(row)).outside_box == ()
        assert predictor.predict(dict(zip(NAMES, row, strict=True))).outside_box == ()


EDGES = st.sampled_from([0.0, 0.1, 0.6, 0.9, 1.0, np.nextafter(0.6, 1), np.nextafter(0.1, 0)])
SHARE = st.one_of(st.floats(0.0, 1.0), EDGES)


@given(cpu=SHARE, io=SHARE, connections=st.floats(0.0, 1e300))
def test_what_the_model_sees_lies_in_the_box_exactly(
    reader: InputReader,
    contract_data: Callable[..., dict[str, Any]],
    cpu: float,
    io: float,
    connections: float,
) -> None:
    """The nearest float32 of the upper wall, 0.6, lies outside of the box that was proved; that of the lower one, 0.1,
    does not. Lower walls that float32 misses on the outside: the next test."""
    row = {"psi_cpu_some": cpu, "psi_io_full": io, "connections": connections}
    one, names = reader.read_row(row)
    many, mask = reader.read_rows([row])
    array, _ = reader.read_array(np.array([cpu, io, connections]))
    np.testing.assert_array_equal(one, many)
    np.testing.assert_array_equal(one, array)
    assert names == tuple(name for name, moved in zip(row, mask[0], strict=True) if moved)
    for value, spec in zip(one[0].astype(np.float64), contract_data()["inputs"], strict=True):
        assert spec["minimum"] <= value <= spec["maximum"]
        assert (spec["name"] in names) == (not spec["minimum"] <= row[spec["name"]] <= spec["maximum"])


@pytest.mark.parametrize("value", [-1e300, -1.0, 0.0, 0.7, 1.0, 1e300])
@pytest.mark.parametrize(("low", "high"), [(0.7, 0.9), (-0.1, 0.1), (-0.9, -0.7), (0.7, 16777219.0)])
def test_walls_whose_float32_lies_outside_of_the_box_are_never_fed(
    contract_data: Callable[..., dict[str, Any]], low: float, high: float, value: float,
) -> None:
    data = contract_data()
    assert float(np.float32(low)) < low or float(np.float32(high)) > high  # or the case would test nothing
    data["inputs"][2].update(minimum=low, maximum=high, physical_minimum=None)
    reader, row = InputReader(Contract.from_json(data)), {**ROW, "connections": value}
    one, names = reader.read_row(row)
    for matrix in (one, reader.read_rows([row])[0], reader.read_array(np.array(list(row.values())))[0]):
        fed = matrix.astype(np.float64)[0, 2]
        assert low <= fed <= high
        assert abs(fed - min(max(value, low), high)) <= np.spacing(np.float32(max(abs(low), abs(high))))
    assert ("connections" in names) == (not low <= value <= high)


def test_a_box_without_any_float32_is_answered_for_its_nearest(
    contract_data: Callable[..., dict[str, Any]],
) -> None:
    data = contract_data()
    data["inputs"][0].update(minimum=0.1, maximum=0.1)
    reader = InputReader(Contract.from_json(data))
    matrix, names = reader.read_row({**ROW, "psi_cpu_some": 0.1})
    assert matrix[0, 0] == np.float32(0.1)
    assert names == ()


def forms(row: dict[str, Any]) -> list[Any]:
    return [row, [ROW, row], pd.DataFrame([ROW, row])]


@pytest.mark.parametrize("value", [37.0, 100.0, 1.0000001])
def test_a_pressure_in_percent_is_refused_and_the_unit_suggested(predictor: Predictor, value: float) -> None:
    for form in forms({**ROW, "psi_cpu_some": value}):
        message = (
            r"psi_cpu_some must lie in its physical range 0\.\.1 share, got .* \(row \d\); is it in percent"
        )
        with pytest.raises(InputError, match=message):
            predictor.predict(form)
    with pytest.raises(InputError, match="is it in percent"):
        predictor.predict(np.array([value, 0.5, 8.0]))


@pytest.mark.parametrize(
    ("name", "value"), [("psi_cpu_some", -0.01), ("psi_cpu_some", 1e9), ("connections", -1)]
)
def test_what_physics_forbids_is_refused_without_a_wrong_hint(
    predictor: Predictor, name: str, value: float
) -> None:
    for form in forms({**ROW, name: value}):
        with pytest.raises(InputError, match=f"{name} must lie in its physical range") as caught:
            predictor.predict(form)
        assert "percent" not in str(caught.value)


def test_what_is_no_share_is_not_taken_for_percent(contract_data: Callable[..., dict[str, Any]]) -> None:
    """A value of 9 where 8 is the most that there can be."""
    data = contract_data()
    data["inputs"][0] |= {"unit": "cores", "maximum": 4.0, "physical_maximum": 8.0}
    with pytest.raises(InputError, match=r"physical range 0\.\.8 cores, got 9") as caught:
        InputReader(Contract.from_json(data)).read_row({**ROW, "psi_cpu_some": 9.0})
    assert "percent" not in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_also_where_physics_has_no_bound(
    predictor: Predictor, value: float
) -> None:
    for name in ROW:
        for form in forms({**ROW, name: value}):
            with pytest.raises(InputError, match=rf"{name} must be a finite number, got .* \(row \d\)"):
                predictor.predict(form)


@pytest.mark.parametrize("value", ["0.2", None, True, np.bool_(False), [0.2], 1j])
def test_what_is_not_a_number_is_refused(predictor: Predictor, value: Any) -> None:
    row = {**ROW, "psi_io_full": value}
    for form in (row, [ROW, row]):
        with pytest.raises(InputError, match="psi_io_full must be a number"):
            predictor.predict(form)
    with pytest.raises(InputError, match="psi_io_full must be a number"):
        predictor.predict(pd.DataFrame([row]))


def test_an_integer_too_large_for_a_float_is_refused(predictor: Predictor) -> None:
    with pytest.raises(InputError, match="connections must be a finite number"):
        predictor.predict({**ROW, "connections": 10**400})


def test_a_missing_value_in_a_data_frame_is_refused(predictor: Predictor) -> None:
    frame = pd.DataFrame([ROW, {**ROW, "connections": None}]).convert_dtypes()
    with pytest.raises(InputError, match=r"connections must be a finite number, got nan \(row 1\)"):
        predictor.predict(frame)


def test_a_misspelt_column_is_answered_with_the_nearest_name(predictor: Predictor) -> None:
    row = {"psi_cpu_sum": 0.2, "psi_io_full": 0.5, "connections": 8.0}
    for form in (row, [row], pd.DataFrame([row])):
        with pytest.raises(InputError, match=r"for 'psi_cpu_sum': did you mean 'psi_cpu_some'\?"):
            predictor.predict(form)


def test_missing_and_surplus_columns_are_named(predictor: Predictor) -> None:
    for form in ({"psi_cpu_some": 0.2}, pd.DataFrame([{"psi_cpu_some": 0.2}])):
        with pytest.raises(InputError, match="must include psi_io_full, connections"):
            predictor.predict(form)
    for form in ({**ROW, "psi_io_fully": 1.0}, pd.DataFrame([{**ROW, "psi_io_fully": 1.0}])):
        with pytest.raises(InputError, match=r"got 'psi_io_fully'.*did you mean 'psi_io_full'\?.*Leave out"):
            predictor.predict(form)
    with pytest.raises(InputError, match="must include"):
        predictor.predict({})
    doubled = pd.DataFrame([[0.2, 0.5, 8.0, 9.0]], columns=[*NAMES, "connections"])
    with pytest.raises(InputError, match="connections twice"):
        predictor.predict(doubled)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros(2), r"shape \[3\] or \[rows, 3\], got \[2\]; its columns are psi_cpu_some"),
        (np.zeros((2, 4)), r"got \[2, 4\]"),
        (np.zeros((1, 1, 3)), r"got \[1, 1, 3\]"),
        (np.array(["a", "b", "c"]), "must hold numbers"),
        (np.zeros((0, 3)), "rows: expected at least one, got none"),
        ([], "rows: expected at least one, got none"),
        (pd.DataFrame(columns=NAMES, dtype=float), "rows: expected at least one, got none"),
        ([[0.2, 0.5, 8.0]], "row must map column names to values"),
        ("row", "rows must be a mapping"),
        (None, "rows must be a mapping"),
        (3.0, "rows must be a mapping"),
    ],
)
def test_rows_of_another_shape_are_refused(predictor: Predictor, rows: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        predictor.predict(rows)


def test_threads_share_a_predictor(predictor: Predictor) -> None:
    expected = predictor.predict(ROW)
    answers: list[bool] = []

    def work() -> None:
        answers.extend(predictor.predict(ROW) == expected for _ in range(200))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 800
    assert all(answers)


def test_only_a_checked_bundle_is_loaded(bundle: Path, keys: Keys, other_keys: Keys) -> None:
    with pytest.raises(RefusedError, match="must be signed"):
        Predictor.from_folder(bundle, keys[1], **REDIS)
    sign_folder(bundle, keys[0])
    predictor = Predictor.from_folder(bundle, keys[1], **REDIS)
    assert predictor.sha256 == check_bundle(bundle, keys[1]).sha256
    with pytest.raises(RefusedError, match="another key"):
        Predictor.from_folder(bundle, other_keys[1], **REDIS)
    data = bytearray((bundle / "model.onnx").read_bytes())
    data[-1] ^= 1
    (bundle / "model.onnx").write_bytes(data)
    with pytest.raises(RefusedError, match=r"model\.onnx changed"):
        Predictor.from_folder(bundle, keys[1], **REDIS)


def test_a_signed_bundle_of_another_task_workload_or_digest_is_refused(bundle: Path, keys: Keys) -> None:
    """All bundles of a project are signed with one key."""
    sign_folder(bundle, keys[0])
    sha256 = check_bundle(bundle, keys[1]).sha256
    assert Predictor.from_folder(bundle, keys[1], **REDIS, sha256=sha256).sha256 == sha256
    for expected in ({**REDIS, "workload": "nginx"}, {**REDIS, "task": "sizing"}):
        with pytest.raises(RefusedError, match=r"bundle: expected one for .*, got one for performance, redis"):
            Predictor.from_folder(bundle, keys[1], **expected)
    with pytest.raises(RefusedError, match="bundle must be 0000"):
        Predictor.from_folder(bundle, keys[1], **REDIS, sha256="0" * 64)


def resigned(bundle: Path, keys: Keys, model: bytes, **changes: Any) -> Path:
    """A bundle around another model whose contract, proof and signature are all in order."""
    (bundle / "model.onnx").write_bytes(model)
    digest = hashlib.sha256(model).hexdigest()
    contract = json.loads((bundle / "contract.json").read_text())
    contract["model"].update(sha256=digest, **changes)
    (bundle / "contract.json").write_text(json.dumps(contract))
    (bundle / "proof.npz").write_bytes(made_up_proof(contract))
    sign_folder(bundle, keys[0])
    return bundle


def test_a_model_that_is_not_what_its_contract_says_is_refused(
    bundle: Path, keys: Keys, model_bytes: Callable[..., bytes]
) -> None:
    with pytest.raises(RefusedError, match="must load in onnxruntime"):
        Predictor.from_folder(resigned(bundle, keys, b"not a model"), keys[1], **REDIS)
    with pytest.raises(RefusedError, match=r"must take telemetry float32 \[rows, 3\]"):
        Predictor.from_folder(resigned(bundle, keys, model_bytes(inputs=2)), keys[1], **REDIS)
    with pytest.raises(RefusedError, match="must take rows float32"):
        Predictor.from_folder(resigned(bundle, keys, model_bytes(), input="rows"), keys[1], **REDIS)


def test_an_answer_that_is_not_finite_is_not_given(
    bundle: Path, keys: Keys, model_bytes: Callable[..., bytes]
) -> None:
    predictor = Predictor.from_folder(resigned(bundle, keys, model_bytes(slope=math.inf)), keys[1], **REDIS)
    with pytest.raises(RefusedError, match="expected one finite number a row and output"):
        predictor.predict(ROW)


@pytest.mark.parametrize("mask", [False, True, [[False, False, True]]])
def test_a_masked_array_is_refused_whatever_its_mask_says(predictor: Predictor, mask: Any) -> None:
    """Under a mask lies a number; it was 9999 for "not measured", or the value of the row before."""
    values = np.ma.array([list(ROW.values())], mask=mask)
    for rows in (values, values[0]):
        with pytest.raises(InputError, match="array must hold plain numbers, got a masked array with"):
            predictor.predict(rows)
    for row in ({**ROW, "connections": np.ma.masked}, {**ROW, "connections": np.ma.array(8.0, mask=mask is True)}):
        for rows in (row, [row]):
            with pytest.raises(InputError, match="connections must hold plain numbers, got a masked array"):
                predictor.predict(rows)


def test_an_input_with_finitely_many_values_takes_those_alone(
    bundle_writer: Callable[..., Path], tmp_path: Path, keys: Keys
) -> None:
    """The proof is about these values; what lies between them was never looked at."""
    folder = bundle_writer(tmp_path / "finite", change=lambda data: data["inputs"][2].update(values=[1, 8, 64]))
    sign_folder(folder, keys[0])
    predictor = Predictor.from_folder(folder, keys[1], **REDIS)
    assert predictor.predict({**ROW, "connections": 8}).value > 0
    for rows in ({**ROW, "connections": 9}, [{**ROW, "connections": 9}], np.array([[0.2, 0.3, 9.0]])):
        with pytest.raises(InputError, match=r"connections must be one of 1, 8, 64, got 9.0 \(row 0\)"):
            predictor.predict(rows)


def test_of_a_one_hot_group_exactly_one_is_one(
    bundle_writer: Callable[..., Path], tmp_path: Path, keys: Keys
) -> None:
    def grouped(data: dict[str, Any]) -> None:
        for item in data["inputs"][:2]:
            item.update(minimum=0, maximum=1)
        data["one_hot"] = [["psi_cpu_some", "psi_io_full"]]

    properties = [{"range": {"output": "latency_ms", "minimum": -1e6}}]
    folder = bundle_writer(tmp_path / "group", change=grouped, properties=properties)
    sign_folder(folder, keys[0])
    predictor = Predictor.from_folder(folder, keys[1], **REDIS)
    assert predictor.predict({"psi_cpu_some": 1, "psi_io_full": 0, "connections": 8}).value > 0
    for cpu, io in ((1, 1), (0, 0), (0.5, 0.5)):
        with pytest.raises(InputError, match="exactly one of psi_cpu_some, psi_io_full must be 1 and the others 0"):
            predictor.predict({"psi_cpu_some": cpu, "psi_io_full": io, "connections": 8})


def test_a_model_with_several_outputs_answers_by_their_names(
    bundle_writer: Callable[..., Path], tmp_path: Path, keys: Keys
) -> None:
    weights = numpy_helper.from_array(np.array([[1, 0], [0, 1], [0, 0.5]], np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["telemetry", "w"], ["answers"])], "two",
        [helper.make_tensor_value_info("telemetry", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("answers", TensorProto.FLOAT, ["batch", 2])], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()

    def second(data: dict[str, Any]) -> None:
        data["outputs"].append({**data["outputs"][0], "name": "limit", "unit": "GiB", "kind": "target"})

    folder = bundle_writer(tmp_path / "two", change=second)
    with pytest.raises(RefusedError, match=r"model must give answers \[rows, 2\]"):  # it has one column
        Predictor.from_folder(resigned(folder, keys, (folder / "model.onnx").read_bytes(), output="answers"), keys[1],
                              **REDIS)
    predictor = Predictor.from_folder(resigned(folder, keys, model, output="answers"), keys[1], **REDIS)
    found = predictor.predict([{"psi_cpu_some": 0.5, "psi_io_full": 0.25, "connections": 4}] * 2)
    assert found.columns == {"latency_ms": (0.5, 0.5), "limit": (2.25, 2.25)}
    assert found.units == {"latency_ms": "ms", "limit": "GiB"}
    with pytest.raises(InputError, match="model must have one output for this, got latency_ms, limit: use `columns`"):
        print(found.values)


def test_onnxruntime_sends_nothing_to_its_maker_and_leaves_no_file(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("ORT_DISABLE_TELEMETRY", "CI")}
    for package in ("serving.session", "models.export.parity"):
        subprocess.run([sys.executable, "-c", f"import {package}"], check=True, cwd=ROOT, env={
            **environment, "TMPDIR": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)})
        assert list(tmp_path.rglob("*")) == []
