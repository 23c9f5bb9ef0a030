"""The Open Inference Protocol v2, asked over a real socket."""

import json
import re
import struct

import numpy as np
import pytest
import requests

from serving.bundle import check_bundle
from serving.session import Predictor
from tests.serving.predictions.running import INSIDE, WHOLE, running, signed_bundle

NAMES = list(INSIDE)
ROWS = [list(INSIDE.values()), [0.1, 0.5, 64.0]]
MODEL = "/v2/models/performance.redis"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, keys):
    return signed_bundle(tmp_path_factory.mktemp("inference") / "bundle", keys[0])


@pytest.fixture(scope="module")
def predictor(bundle, keys):
    return Predictor(check_bundle(bundle, keys[1]))


@pytest.fixture(scope="module")
def url(bundle, keys):
    with running("--bundle", bundle, "--public-key", keys[1]) as service:
        yield service.url


def whole(rows=ROWS, **changed):
    """One tensor of all columns."""
    return {"name": "telemetry", "datatype": "FP64", "shape": [len(rows), 3], "data": rows, **changed}


def column(name, values, **changed):
    return {"name": name, "datatype": "FP64", "shape": [len(values)], "data": values, **changed}


def columns(rows=ROWS):
    return [column(name, [row[number] for row in rows]) for number, name in enumerate(NAMES)]


def infer(url, *inputs, path=f"{MODEL}/infer", **more):
    return requests.post(url + path, json={"inputs": list(inputs), **more}, timeout=20)


def expected(predictor, rows=ROWS):
    return predictor.predict(np.array(rows)).columns["latency_ms"]


def test_server_and_model_say_what_they_are(url, predictor):
    assert requests.get(f"{url}/v2", timeout=20).json()["extensions"] == ["binary_tensor_data"]
    for path, said in (("/v2/health/live", "live"), ("/v2/health/ready", "ready"), ("/healthz", "live")):
        assert requests.get(url + path, timeout=20).json() == {said: True}
    version = predictor.sha256[:12]
    for path in (MODEL, f"{MODEL}/versions/{version}"):
        model = requests.get(url + path, timeout=20).json()
        assert (model["name"], model["versions"]) == ("performance.redis", [version])
        assert model["inputs"] == [{"name": "telemetry", "datatype": "FP64", "shape": [-1, 3]}]
        assert model["outputs"] == [{"name": "latency_ms", "datatype": "FP32", "shape": [-1]}]
        assert [item["name"] for item in model["columns"]] == NAMES
        ready = requests.get(f"{url}{path}/ready", timeout=20).json()
        assert ready == {"name": "performance.redis", "ready": True, "version": version}


@pytest.mark.parametrize("inputs", [
    [whole()], [whole(data=[value for row in ROWS for value in row])], [whole(datatype="FP32")], columns(),
    list(reversed(columns())),
    [column("psi_cpu_some", [[0.3], [0.1]], shape=[2, 1]), column("psi_io_full", [0.2, 0.5]),
     column("connections", [8, 64], datatype="INT64")]])
def test_an_answer_is_the_predictor_s_however_the_rows_are_written(url, predictor, inputs):
    answer = infer(url, *inputs, id="a1").json()
    assert (answer["id"], answer["model_name"], answer["model_version"]) == (
        "a1", "performance.redis", predictor.sha256[:12])
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("latency_ms", "FP32", [2])
    assert output["parameters"] == {"unit": "ms", "kind": "prediction"}
    assert tuple(np.float32(output["data"]).tolist()) == expected(predictor)
    assert answer["parameters"] == {"bundle_sha256": predictor.sha256, "rows_outside_box": 0, "outside_box": "[]",
                                    "strange": "[]", "out_of_distribution": False}


@pytest.mark.parametrize(("datatype", "form", "row"), [("FP64", "<3d", ROWS[0]), ("FP32", "<3f", ROWS[0]),
                                                       ("INT64", "<3q", [0, 1, 8])])
def test_tensors_may_be_bytes_behind_the_json(url, predictor, datatype, form, row):
    tail = struct.pack(form, *row)
    tensor = {"name": "telemetry", "datatype": datatype, "shape": [1, 3], "parameters": {"binary_data_size": len(tail)}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    answer = requests.post(f"{url}{MODEL}/infer", head + tail, timeout=20, headers={
        "Inference-Header-Content-Length": str(len(head))})
    length = int(answer.headers["Inference-Header-Content-Length"])
    (output,) = json.loads(answer.content[:length])["outputs"]
    assert output["parameters"]["binary_data_size"] == 4
    np.testing.assert_allclose(struct.unpack("<f", answer.content[length:]), expected(predictor, [row]), rtol=1e-6)


def test_rows_outside_of_the_box_are_told(url, predictor):
    answer = infer(url, whole([[0.9, 0.2, 8.0], [0.3, 0.2, 8.0]])).json()
    assert answer["parameters"]["rows_outside_box"] == 1
    assert json.loads(answer["parameters"]["outside_box"]) == ["psi_cpu_some"]
    assert answer["outputs"][0]["data"] == pytest.approx(expected(predictor, [[0.6, 0.2, 8.0], [0.3, 0.2, 8.0]]))


@pytest.mark.parametrize(("body", "message"), [
    (b'{"inputs": [], "inputs": []}', "request must be a JSON object, got .* key 'inputs' is given twice"),
    (b'{"inputs": [{"name": "telemetry", "datatype": "FP64", "shape": [1, 3], "data": [1, 1, 8], "data": [2, 2, 8]}]}',
     "key 'data' is given twice"),
    (b"{", "request must be JSON"), (b"[]", "request must be a JSON object, got list"), (b"", "must be JSON"),
    (b'{"inputs": [{"name": "telemetry", "datatype": "FP64", "shape": [1, 3], "data": [NaN, 0.2, 8]}]}', "be JSON"),
    (b'{"inputs": [{"name": "telemetry", "datatype": "FP64", "shape": [1, 3], "data": [Infinity, 1, 8]}]}', "be JSON"),
    (b'{"inputs": [{"name": "telemetry", "datatype": "FP64", "shape": [1, 3], "data": [1e999, 1, 8]}]}', "JSON|finite"),
    (b"[" * 100_000, "must be JSON"), ({}, "inputs must be a list"), ({"inputs": []}, "inputs must include"),
    ({"inputs": [3]}, "input must be an object with a name"), ({"inputs": columns(), "id": 3}, "id must be a text"),
    ({"inputs": [whole(), whole()]}, "given once, got 'telemetry' twice"),
    ({"inputs": [*columns(), columns()[0]]}, "given once, got 'psi_cpu_some' twice"),
    ({"inputs": [whole(datatype="BYTES")]}, "datatype must be one of FP32, FP64, INT64, got 'BYTES'"),
    ({"inputs": [whole(datatype=["FP64"])]}, "datatype must be one of"),
    ({"inputs": [whole(datatype="INT64")]}, "data must be numbers of INT64, got float"),
    ({"inputs": [whole(data=[[0.3, 0.2, 8], [0.1, 0.5]])]}, "data must be 2 lists of 3"),
    ({"inputs": [whole(data=[0.3, 0.2, 8])]}, "data must be 6 numbers"),
    ({"inputs": [whole(data=None)]}, "data must be 6 numbers, as shape says, got NoneType"),
    ({"inputs": [whole([[True, 0.2, 8]])]}, "data must be numbers of FP64, got bool"),
    ({"inputs": [whole([["0.3", 0.2, None]])]}, "data must be numbers of FP64, got NoneType, str"),
    ({"inputs": [whole(shape=[2, -3])]}, "shape must be"), ({"inputs": [whole(shape=[2, 3, 1])]}, "shape must be"),
    ({"inputs": [whole(shape=[10**9, 10**9])]}, "shape says"), ({"inputs": [whole(shape="23")]}, "shape must be"),
    ({"inputs": [whole([[0.3, 0.2]], shape=[1, 2])]}, r"must be \[rows, 3\], got \[1, 2\]"),
    ({"inputs": [whole([], shape=[0, 3])]}, "expected at least one, got none"),
    *[({"inputs": [whole([], shape=shape)]}, "shape must be") for shape in ([2**63 - 1, 0], [2**62, 0], [0, 2**63])],
    ({"inputs": [whole([], shape=[2**31, 0])]}, r"must be \[rows, 3\]"),
    ({"inputs": [column(name, [], shape=[0, 2**31]) for name in INSIDE]}, r"must be \[rows\] or"),
    ({"inputs": columns()[:2]}, "inputs must include connections"),
    ({"inputs": [*columns(), column("conections", [1.0, 2.0])]}, "did you mean 'connections'"),
    ({"inputs": [*columns()[:2], column("connections", [8.0])]}, "as many rows each"),
    ({"inputs": [whole([[37.0, 0.2, 8]])]}, "psi_cpu_some must lie in its physical range"),
    ({"inputs": columns(), "outputs": [{"name": "latency"}]}, "did you mean 'latency_ms'"),
    ({"inputs": columns(), "outputs": [{"name": "latency_ms"}] * 2}, "each once"),
    ({"inputs": columns(), "outputs": 3}, "outputs must be a list"),
    ({"inputs": columns(), "parameters": 3}, "parameters must be an object"),
    ({"inputs": [whole(data=None, parameters={"binary_data_size": 48})]}, "48 bytes behind the JSON"),
    ({"inputs": [{**whole(parameters={"binary_data_size": 10**9}), "shape": [10**9, 3]}]}, "bytes behind the JSON")])
def test_what_is_not_as_protocol_and_contract_say_is_400_in_one_line(url, body, message):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = requests.post(f"{url}{MODEL}/infer", data, timeout=20)
    error = answer.json()["error"]
    assert answer.status_code == 400 and re.search(message, error) and "\n" not in error and len(error) < 600, error


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_finite_number_is_refused_as_bytes_too(url, value):
    head = json.dumps({"inputs": [{"name": "telemetry", "datatype": "FP64", "shape": [1, 3],
                                   "parameters": {"binary_data_size": 24}}]}).encode()
    for tail, length in ((struct.pack("<3d", value, 0.2, 8), len(head)), (b"", 10**6), (b"x" * 30, len(head)),
                         (b"", "9" * 5000)):
        answer = requests.post(f"{url}{MODEL}/infer", head + tail, timeout=20,
                               headers={"Inference-Header-Content-Length": str(length)})
        assert answer.status_code == 400, answer.text


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/v2/models/redis", 404), ("GET", "/v2/models/..%2f..%2fetc%2fpasswd/ready", 404),
    ("GET", "/v2/models/%00", 404), ("GET", f"/v2/models/{'a' * 3000}", 404), ("GET", "/v2/models/../../x", 404),
    ("GET", f"{MODEL}/versions/2", 404), ("GET", f"{MODEL}/infer", 405), ("POST", "/v2", 405), ("GET", "/", 404),
    ("POST", f"{MODEL}/versions/2/infer", 404), ("POST", "/scheduler/filter", 404)])
def test_an_address_that_is_none_is_an_error_of_the_protocol(url, method, path, status):
    prepared = requests.Request(method, url).prepare()
    prepared.url = url + path  # as it is
    with requests.Session() as session:
        answer = session.send(prepared, timeout=20)
    assert answer.status_code == status and len(answer.json()["error"]) < 600


def test_metrics_count_and_clients_make_no_labels(url):
    def samples():
        return requests.get(f"{url}/metrics", timeout=20).text

    def value(name):
        found = re.search(rf"^{re.escape(name)} (\S+)$", samples(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    names = ('assay_serve_requests_total{model="performance.redis",status="200"}',
             'assay_serve_requests_total{model="performance.redis",status="400"}',
             'assay_serve_rows_total{model="performance.redis"}',
             'assay_serve_rows_outside_box_total{model="performance.redis"}',
             'assay_serve_request_seconds_count{model="performance.redis"}')
    before = [value(name) for name in names]
    infer(url, whole([[0.9, 0.2, 8.0], [0.3, 0.2, 8.0]]))
    infer(url, whole(shape=[1]))
    infer(url, whole(), path="/v2/models/made-up/infer")
    assert [value(name) - old for name, old in zip(names, before, strict=True)] == [1, 1, 2, 1, 2]
    assert "made-up" not in samples() and 'assay_serve_model_ready{model="performance.redis"} 1.0' in samples()


def test_the_whole_project_s_command_serves_too(bundle, keys):
    with running("--bundle", bundle, "--public-key", keys[1], command=WHOLE) as service:
        assert infer(service.url, whole()).status_code == 200
