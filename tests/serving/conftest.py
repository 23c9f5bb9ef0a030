"""Small bundles, as `export` writes them, built with onnx.helper: no torch in these tests."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from feature_store.errors import AssayError
from models.configuration import Configuration, load_configuration
from models.gate_report import evaluate_gates
from models.gates import parse_gates
from models.verification.language.specification_language import parse_file
from models.verification.network.fed_numbers import as_fed
from models.verification.proof_document import proof_bytes
from models.verification.verdict import BoxTree
from serving.bundle import Bundle, open_bundle, write_folder
from serving.card import TICKET_TAG
from serving.contract import Contract
from serving.keys import create_key_pair
from serving.promise import Promise, read_promise
from serving.store import StoredModel, StoredVersion, Upload
from tests.serving.measured import GATES, TEST_ROWS, TEST_SET, cases

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
ROOT = Path(__file__).parents[2]

INPUTS: list[dict[str, Any]] = [
    {
        "name": "psi_cpu_some",
        "unit": "share",
        "description": "time in which some task waited for a CPU",
        "minimum": 0.0,
        "maximum": 0.6,
        "physical_minimum": 0.0,
        "physical_maximum": 1.0,
    },
    {
        "name": "psi_io_full",
        "unit": "share",
        "description": "time in which all tasks waited for IO",
        "minimum": 0.1,
        "maximum": 0.9,
        "physical_minimum": 0.0,
        "physical_maximum": 1.0,
    },
    {
        "name": "connections",
        "unit": "count",
        "description": "concurrent connections",
        "minimum": 1,
        "maximum": 64,
        "physical_minimum": 0.0,
        "physical_maximum": None,
    },
]
OUTPUTS: list[dict[str, Any]] = [
    {
        "name": "latency_ms",
        "unit": "ms",
        "kind": "prediction",
        "minimum": 0.5,
        "maximum": 40.0,
        "physical_minimum": 0.0,
        "physical_maximum": None,
    }
]

def onnx_bytes(slope: float = 10.0, hidden: int = 8, inputs: int = 3) -> bytes:
    """Scaling, one ReLU layer and the inverse scaling; the weights are positive, so it is monotone."""
    generator = np.random.default_rng(0)
    weights = {
        "low": np.array([[0.0, 0.1, 1.0][:inputs]], np.float32),
        "span": np.array([[0.6, 0.8, 63.0][:inputs]], np.float32),
        "w1": generator.uniform(0.1, 1.0, (inputs, hidden)).astype(np.float32),
        "b1": generator.uniform(-0.5, 0.5, hidden).astype(np.float32),
        "w2": np.full((hidden, 1), slope / hidden, np.float32),
    }
    nodes = [
        helper.make_node("Sub", ["telemetry", "low"], ["shifted"]),
        helper.make_node("Div", ["shifted", "span"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", "w1"], ["z1"]),
        helper.make_node("Add", ["z1", "b1"], ["a1"]),
        helper.make_node("Relu", ["a1"], ["h1"]),
        helper.make_node("MatMul", ["h1", "w2"], ["latency_ms"]),
    ]
    graph = helper.make_graph(
        nodes,
        "learner",
        [helper.make_tensor_value_info("telemetry", TensorProto.FLOAT, ["batch", inputs])],
        [helper.make_tensor_value_info("latency_ms", TensorProto.FLOAT, ["batch", 1])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def evidence(test_mse: float = 1.0, status: str = "PROVED", test_set: str = TEST_SET) -> dict[str, Any]:
    return {
        "metrics": {
            "test_mse": test_mse,
            "test_accuracy": 0.8,
            "counterexample_accuracy": 1.0,
            "baseline_mse": 100.0,
            "mean_mse": 100.0,
            "test_rows": TEST_ROWS,
            "parity_max_abs": 1e-6,
            "latency_us": 12.0,
        },
        "verdict": {"status": status},
        "history": [],
        "data": {"files": {"test.parquet": test_set}},
        "cases": cases(test_mse, test_set),
        "case_counts": {"test_mse": TEST_ROWS, "test_accuracy": TEST_ROWS},
        "target": {"name": "latency_ms", "unit": "ms", "minimum": 10.0, "maximum": 12.0},
        "environment": {},
    }


def contract(workload: str = "redis", data_version: str = "d1") -> dict[str, Any]:
    """The content of a contract.json, without the digests of model and specification; see `sealed`."""
    return {
        "format": "assay-bundle/2",
        "task": "performance",
        "workload": workload,
        "inputs": json.loads(json.dumps(INPUTS)),
        "outputs": json.loads(json.dumps(OUTPUTS)),
        "specification": {"file": "specification.yaml", "sha256": "0" * 64, "statement": "as the specification says"},
        "model": {
            "file": "model.onnx",
            "sha256": "0" * 64,
            "opset": 18,
            "input": "telemetry",
            "output": "latency_ms",
        },
        "code_version": "c1",
        "data_version": data_version,
        "seed": 7,
    }


PROPERTIES: list[dict[str, Any]] = [
    {"monotone": {"features": ["psi_cpu_some", "psi_io_full"], "direction": "increasing", "output": "latency_ms"}}]


def specification(agreed: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """The content of specification.yaml for a contract: its names, units and boxes; by default two orders."""
    data: dict[str, Any] = {
        "features": [item["name"] for item in agreed["inputs"]],
        "outputs": [item["name"] for item in agreed["outputs"]],
        "units": {item["name"]: item["unit"] for item in (*agreed["inputs"], *agreed["outputs"]) if item["unit"]},
        "box": {item["name"]: [item["minimum"], item["maximum"]] for item in agreed["inputs"]},
        "inputs": {item["name"]: {"values": item["values"]} for item in agreed["inputs"] if "values" in item},
        "one_hot": agreed.get("one_hot", []),
        "tolerance": {item["name"]: 0.0 for item in agreed["outputs"]},
        "properties": PROPERTIES}
    return {**data, **changed}


def sealed(agreed: dict[str, Any], content: bytes) -> dict[str, Any]:
    """The contract with the digest of specification.yaml, and what that says."""
    found = parse_file(yaml.safe_load(content), len(agreed["inputs"]), len(agreed["outputs"]), "specification.yaml")
    said = {"file": "specification.yaml", "sha256": hashlib.sha256(content).hexdigest(),
            "statement": as_fed(found, np.dtype(np.float32)).statement}
    return {**agreed, "specification": said}


def promised(change: Callable[[dict[str, Any]], Any] = lambda data: None, **changed: Any) -> Promise:
    """A promise; `change` is made to its contract, `changed` to its specification."""
    agreed = contract()
    change(agreed)
    content = yaml.safe_dump(specification(agreed, **changed), sort_keys=False).encode()
    return read_promise(Contract.from_json(sealed(agreed, content)), content, "bundle")


def made_up_proof(agreed: dict[str, Any], **changed: Any) -> bytes:
    """A proof.npz that says what the contract says; its tree is one leaf, which proves nothing of this model."""
    tree = BoxTree(np.array([-1], dtype=np.int16), np.zeros(1))
    document = {"format": "assay-proof/1", "verdict": "PROVED", "model_sha256": agreed["model"]["sha256"],
                "specification_sha256": agreed["specification"]["sha256"],
                "statement": agreed["specification"]["statement"], "execution": "",
                "parts": [{"name": "monotone", "leaves": 1}]}
    return proof_bytes({**document, **changed}, [tree])


def write_bundle(
    folder: Path,
    *,
    workload: str = "redis",
    test_mse: float = 1.0,
    status: str = "PROVED",
    slope: float = 10.0,
    data_version: str = "d1",
    champion: dict[str, Any] | None = None,
    test_set: str = TEST_SET,
    change: Callable[[dict[str, Any]], None] = lambda contract: None,
    **changed: Any,
) -> Path:
    """An unsigned bundle as the export and gate steps leave it; `change` is made to its contract, `changed` to its
    specification."""
    folder.mkdir(parents=True)
    model = onnx_bytes(slope)
    agreed = contract(workload, data_version)
    agreed["model"]["sha256"] = hashlib.sha256(model).hexdigest()
    change(agreed)
    promise = yaml.safe_dump(specification(agreed, **changed), sort_keys=False).encode()
    agreed = sealed(agreed, promise)
    found = evidence(test_mse, status, test_set)
    (folder / "model.onnx").write_bytes(model)
    (folder / "specification.yaml").write_bytes(promise)
    (folder / "proof.npz").write_bytes(made_up_proof(agreed, verdict=status))
    for name, value in {
        "contract.json": agreed,
        "evidence.json": found,
        "gates.json": evaluate_gates(found, champion, parse_gates(GATES, "tests")).to_json(),
    }.items():
        (folder / name).write_text(json.dumps(value, indent=1))
    return folder


@pytest.fixture(scope="session")
def bundle_writer() -> Callable[..., Path]:
    return write_bundle


@pytest.fixture(scope="session")
def model_bytes() -> Callable[..., bytes]:
    return onnx_bytes


@pytest.fixture(scope="session")
def contract_data() -> Callable[..., dict[str, Any]]:
    return contract


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A key pair: private, public."""
    folder = tmp_path_factory.mktemp("keys")
    create_key_pair(folder / "assay.key", folder / "assay.pub")
    return folder / "assay.key", folder / "assay.pub"


@pytest.fixture(scope="session")
def other_keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Somebody else's key pair."""
    folder = tmp_path_factory.mktemp("other_keys")
    create_key_pair(folder / "other.key", folder / "other.pub")
    return folder / "other.key", folder / "other.pub"


@dataclass(frozen=True)
class Verdict:
    """What a checker answers."""

    accepted: bool
    reason: str


def accept(proof: Path, model: Path, specification: Path, seconds: float) -> Verdict:
    """Stands for the independent checker: the proofs of these bundles prove nothing."""
    return Verdict(proof.exists() and specification.exists(), "no leaves")


@pytest.fixture(scope="session")
def checker() -> Callable[..., Any]:
    return accept


class Crash(BaseException):
    """The process died here."""


class FakeStore:
    """A registry in memory. `crash_at` dies at the n-th call, before or after it took effect.

    A dead store answers nothing more, as a killed process asks nothing more; `revive` is the restart.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.aliases: dict[tuple[str, str], int] = {}
        self.heads_by_model: dict[str, str] = {}
        self.versions: dict[tuple[str, int], dict[str, Any]] = {}
        self.uploads: dict[str, str] = {}
        self.calls = 0
        self.crash_at: tuple[int, str] | None = None
        self.dead = False

    def revive(self) -> None:
        self.crash_at, self.dead, self.calls = None, False, 0

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        if self.dead:
            raise Crash
        number, self.calls = self.calls, self.calls + 1
        if self.crash_at == (number, "before"):
            self.dead = True
            raise Crash
        yield
        if self.crash_at == (number, "after"):
            self.dead = True
            raise Crash

    def alias(self, model: str, alias: str) -> int | None:
        with self._call():
            return self.aliases.get((model, alias))

    def set_alias(self, model: str, alias: str, version: int | None) -> None:
        with self._call():
            if version is None:
                self.aliases.pop((model, alias), None)
            elif (model, version) not in self.versions:
                raise AssayError(f"no version {version}")
            else:
                self.aliases[model, alias] = version

    def head(self, model: str) -> str | None:
        with self._call():
            return self.heads_by_model.get(model)

    def heads(self) -> dict[str, str]:
        with self._call():
            return dict(self.heads_by_model)

    def set_tag(self, model: str, version: int, key: str, value: str | None) -> None:
        with self._call():
            if (model, version) not in self.versions:
                raise AssayError(f"no version {version}")
            self.versions[model, version]["tags"].pop(key, None)
            if value is not None:
                self.versions[model, version]["tags"][key] = value

    def models(self) -> dict[str, StoredModel]:
        with self._call():
            names = {name for name, _ in (*self.versions, *self.aliases)} | set(self.heads_by_model)
            return {name: StoredModel(
                self.heads_by_model.get(name),
                {alias: version for (model, alias), version in self.aliases.items() if model == name},
                {number: StoredVersion(dict(item["tags"]), item["text"], item.get("stage", ""))
                 for (model, number), item in self.versions.items() if model == name}) for name in names}

    def set_description(self, model: str, version: int, text: str) -> None:
        with self._call():
            self.versions[model, version]["text"] = text

    def clear_stage(self, model: str, version: int) -> None:
        with self._call():
            self.versions[model, version].pop("stage")

    def served_model(self, location: str) -> bytes:
        with self._call():
            return (Path(location) / "model.onnx").read_bytes()

    def has_version(self, model: str, version: int) -> bool:
        with self._call():
            return (model, version) in self.versions

    def set_head(self, model: str, head: str) -> None:
        with self._call():
            self.heads_by_model[model] = head

    def upload(self, bundle: Bundle, run_id: str | None, ticket: str, data_path: Path | None) -> Upload:
        with self._call():
            location = self.folder / ticket
            write_folder(bundle, location)
            self.uploads[ticket] = str(location)
            return Upload(run_id or f"run-{ticket}", str(location), str(location))

    @contextlib.contextmanager
    def fetched(self, location: str) -> Iterator[Path]:
        with self._call():
            yield Path(location)

    def location(self, model: str, version: int) -> str:
        with self._call():
            if (model, version) not in self.versions:
                raise AssayError(f"no version {version}")
            found: str = self.versions[model, version]["source"]
            return found

    def put_signature(self, location: str, signature: Path) -> None:
        with self._call():
            (Path(location) / signature.name).write_bytes(signature.read_bytes())

    def copies(self, sha256: str) -> list[str]:
        with self._call():
            return [location for location in self.uploads.values() if open_bundle(Path(location)).sha256 == sha256]

    def create_version(
        self, model: str, upload: Upload, tags: dict[str, str], description: str, above: int
    ) -> int:
        with self._call():
            version = max([above, *(number for name, number in self.versions if name == model)]) + 1
            self.versions[model, version] = {"source": upload.source, "tags": dict(tags), "text": description}
            return version

    def tags(self, model: str) -> dict[int, dict[str, str]]:
        with self._call():
            return {number: item["tags"] for (name, number), item in self.versions.items() if name == model}

    def discard(self, ticket: str, model: str, keep: Mapping[int, str]) -> None:
        with self._call():
            own = [key for key, item in self.versions.items() if item["tags"][TICKET_TAG] == ticket]
            if any(keep.get(number) == self.versions[name, number]["tags"]["bundle_sha256"] for name, number in own):
                return
            for key in own:
                del self.versions[key]
            if ticket in self.uploads:
                shutil.rmtree(self.uploads.pop(ticket))


@pytest.fixture
def fake_store(tmp_path: Path) -> FakeStore:
    return FakeStore(tmp_path / "store")


@pytest.fixture
def crash() -> type[BaseException]:
    return Crash


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    """The shipped mlflow.yaml with a state folder of its own."""
    return load_configuration(ROOT / "mlflow.yaml", {"ASSAY_HOME": str(tmp_path / "home")})


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """An unsigned bundle that passed its gates."""
    return write_bundle(tmp_path / "bundle")
