"""A signed bundle of a policy of autoscaling, as export writes it; its proof is made up, as in conftest.py."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from models.configuration import Configuration, load_configuration
from models.control.policy.policy import Policy, PolicyShape
from models.control.policy.policy_chain import chain
from models.control.policy.policy_model import chain_onnx
from models.gate_report import evaluate_gates
from models.gates import parse_gates
from models.verification.language.specification_language import parse_file
from models.verification.language.specification_writing import as_yaml, written_out
from serving.bundle import check_bundle
from serving.kept_bundles import kept_bundle
from serving.keys import create_key_pair
from serving.ledger import Ledger
from serving.moves import Move
from serving.signature import sign_folder
from systems.autoscaling.interface import ANCHORS, CONTROLS, FEATURES, SIGNALS
from tests.serving.conftest import ROOT, made_up_proof, sealed, specification
from tests.serving.control.world import SAFE, contract

SLO_MS = 15.0
FALLBACK = {"rule": "hpa-cpu-p99-vpa-memory", "settings": {"replicas_cpu_target": 0.6},
            "safe_ranges": {name: vars(safe) for name, safe in SAFE.items()}}
RANGES = [{"range": {"output": one.name, "minimum": one.low, "maximum": one.high}} for one in CONTROLS]


def exported(written: dict[str, Any]) -> bytes:
    """The content of specification.yaml as export writes it: beside a controller no other form is read."""
    found = parse_file(written, len(written["features"]), len(written["outputs"]), "specification.yaml")
    return as_yaml(written_out(found)).encode()


def write_policy_bundle(folder: Path, private_key: Path, change: Any = lambda agreed: None, seed: int = 1) -> Path:
    """An untrained policy, whose answers are near what is set; `change` is made to its contract."""
    folder.mkdir(parents=True)
    policy = Policy(PolicyShape(SIGNALS, CONTROLS, FEATURES, (8,), anchors=ANCHORS),
                    torch.Generator().manual_seed(seed))
    model = chain_onnx(*chain(policy), {})
    agreed = contract(SLO_MS).to_json() | {"fallback": FALLBACK}
    agreed["model"] |= {"input": "observation", "output": "targets", "sha256": hashlib.sha256(model).hexdigest()}
    change(agreed)
    promise = exported(specification(agreed, properties=RANGES))
    agreed = sealed(agreed, promise)
    found = {"metrics": {"mean_reward": 1.5}, "verdict": {"status": "PROVED"}, "history": []}
    gates = parse_gates({"specification": {"verdict": "PROVED"}}, "tests")
    proof = made_up_proof(agreed)
    for name, content in {"model.onnx": model, "specification.yaml": promise, "proof.npz": proof}.items():
        (folder / name).write_bytes(content)
    for name, value in {"contract.json": agreed, "evidence.json": found,
                        "gates.json": evaluate_gates(found, None, gates).to_json()}.items():
        (folder / name).write_text(json.dumps(value))
    sign_folder(folder, private_key)
    return folder


def write_champion(home: Path) -> Configuration:
    """A state folder whose signed ledger has version 1 as champion of autoscaling, nginx; its bundle beside it."""
    made = load_configuration(ROOT / "mlflow.yaml", {"ASSAY_HOME": str(home)})
    for path in (made.private_key_path, made.ledger_path):
        path.parent.mkdir(parents=True)
    create_key_pair(made.private_key_path, made.public_key_path)
    bundle = write_policy_bundle(kept_bundle(home, "autoscaling", "nginx", 1), made.private_key_path)
    sha256 = check_bundle(bundle, made.public_key_path).sha256
    moves = [Move(action, "2026-11-23T00:00:00+00:00", "autoscaling", "nginx", "assay.autoscaling.nginx", 1, None,
                  sha256, gates_passed=True, reason="", actor="test") for action in ("register", "champion")]
    Ledger(made.ledger_path, made.public_key_path, made.private_key_path).append(moves)
    return made


class Opened:
    """What a state folder answers: a bundle, or what goes wrong."""

    def __init__(self, found: Any) -> None:
        self.found = found

    def __call__(self) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found
