"""What a controller's machine has: a proved bundle, the public key, a copy of the state folder, a server of metrics."""

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from models.verification.decide import decide
from models.verification.verdict import Status
from serving.bundle import check_bundle
from serving.keys import create_key_pair
from serving.ledger import Ledger
from serving.moves import Move
from serving.signature import sign_folder
from serving.state_folder import state_folder
from systems.autoscaling.observer import AutoscalingObserver
from tests.feature_store.prometheus_server import faulty_server, reply
from tests.serving.conftest import made_up_proof, sealed, specification, write_bundle
from tests.serving.control.policy_bundle import exported, write_policy_bundle

VALUES = {"cpu_utilization": 0.4, "memory_utilization": 0.5, "cpu_used_cores": 0.8, "memory_used_mib": 128.0,
          "p99_ms": 9.0, "served_share": 1.0, "rate_rps": 300.0, "io_utilization": 0.0, "network_utilization": 0.0}
HEAVY = ("torch", "mlflow", "kfp", "great_expectations", "sklearn", "pandas", "pydantic", "typer", "rich", "scipy",
         "matplotlib", "pyarrow", "onnx", "model_signing", "gymnasium", "optuna", "kubernetes")


def make_place(folder: Path) -> Path:
    """bundle (redis, truly proved), other (redis, with a proof that is none), assay.pub, state."""
    private = folder / "private" / "assay.key"
    private.parent.mkdir(parents=True)
    create_key_pair(private, folder / "assay.pub")
    write_bundle(folder / "bundle")
    _prove(folder / "bundle")
    shutil.copytree(folder / "bundle", folder / "other")
    contract = json.loads((folder / "other" / "contract.json").read_text())
    (folder / "other" / "proof.npz").write_bytes(made_up_proof(contract))
    sign_folder(folder / "bundle", private)
    sign_folder(folder / "other", private)
    state = state_folder(folder / "state")
    state.public_key_path.parent.mkdir(parents=True)
    shutil.copyfile(folder / "assay.pub", state.public_key_path)
    kept = write_policy_bundle(state.home / "bundles" / "autoscaling" / "nginx" / "1", private)
    sha256 = check_bundle(kept, state.public_key_path).sha256
    Ledger(state.ledger_path, state.public_key_path, private).append([
        Move(action, "2026-11-23T00:00:00+00:00", "autoscaling", "nginx", "assay.autoscaling.nginx", 1, None, sha256,
             gates_passed=True, reason="", actor="test") for action in ("register", "champion")])
    shutil.rmtree(private.parent)  # it is on no controller's machine
    return folder


def _prove(bundle: Path) -> None:
    """Gives the bundle a model that the checker reads, and its proof."""
    weights = np.random.default_rng(0).uniform(0.1, 1.0, (3, 8)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["telemetry", "w1"], ["z1"]), helper.make_node("Relu", ["z1"], ["h1"]),
             helper.make_node("MatMul", ["h1", "w2"], ["latency_ms"])]
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width])
              for name, width in (("telemetry", 3), ("latency_ms", 1))]
    graph = helper.make_graph(nodes, "learner", shapes[:1], shapes[1:], [
        numpy_helper.from_array(weights, "w1"), numpy_helper.from_array(np.ones((8, 1), np.float32), "w2")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()
    contract = json.loads((bundle / "contract.json").read_text())
    promise = exported(specification(contract))
    contract = sealed(contract, promise)
    (bundle / "specification.yaml").write_bytes(promise)
    contract["model"]["sha256"] = hashlib.sha256(model).hexdigest()
    (bundle / "contract.json").write_text(json.dumps(contract))
    (bundle / "model.onnx").write_bytes(model)
    (bundle / "proof.npz").unlink()
    proof = bundle.with_name("proof.npz")
    assert decide(bundle / "model.onnx", bundle / "specification.yaml", certificate=proof).status is Status.PROVED
    shutil.move(proof, bundle / "proof.npz")


@contextmanager
def metrics_for(folder: Path) -> Iterator[None]:
    """A server that answers Prometheus' instant queries, and the controller's file that asks it."""
    assert set(VALUES) == set(AutoscalingObserver.measured)

    def respond(handler) -> None:
        name, now = parse_qs(urlsplit(handler.path).query)["query"][0], time.time()
        sample = {"metric": {}, "value": [now, str(now - 1 if name == "newest" else VALUES[name])]}
        reply({"status": "success", "data": {"resultType": "vector", "result": [sample]}})(handler)

    with faulty_server(respond) as (url, _):
        (folder / "controller.yaml").write_text(json.dumps({
            "prometheus": url, "hand_back_after": 2, "newest": "newest", "signals": {name: name for name in VALUES},
            "dry_run": {"cpu_limit_cores": 1.0, "memory_limit_mib": 256.0, "replicas": 2, "ready_replicas": 2}}))
        yield
