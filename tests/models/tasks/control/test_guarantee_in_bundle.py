"""A policy's bundle with its guarantee of the closed loop, made as the pipeline makes it and checked as anyone does."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from feature_store.errors import RefusedError
from models.control.contract.guarantee import executed
from models.control.policy.policy import Policy
from models.export.bundle import complete_bundle, write_bundle
from models.export.product import Versions
from models.gate_report import evaluate_gates
from models.gates import parse_gates
from models.tasks.control.policies import policy_shape
from models.tasks.control.product import policy_product
from models.tasks.control.scoring import Score
from models.tasks.control.task import ControlTask
from models.tasks.control.tuned_rule import TunedRule
from models.tasks.task import load_task
from models.verification.language.specification_writing import written_out
from serving.bundle import check_bundle
from serving.keys import create_key_pair
from serving.signature import sign_folder
from systems.autoscaling.environment import ENVIRONMENT
from systems.autoscaling.guarantee import guarantees
from systems.autoscaling.simulator.simulator import Autoscaling


def test_the_guarantee_of_a_policy_is_signed_and_proved_again_with_its_bundle(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarantees, "CHANGES", (0.0,))
    task = load_task("autoscaling")
    assert isinstance(task, ControlTask)
    limits = {name: (low, high) for name, (low, high) in task.workload("nginx").limits.items()}
    environment = Autoscaling()
    environment = environment.with_controls(tuple(
        replace(one, low=limits[one.name][0], high=limits[one.name][1]) if one.name in limits else one
        for one in environment.controls))
    policy = Policy(replace(policy_shape(task, environment), hidden=(4,)), torch.Generator().manual_seed(0))
    with torch.no_grad():  # its anchor alone, half of what the replicas can do
        for weight in policy.weights[1:]:
            weight.zero_()
    product = policy_product(task, "nginx", environment, policy, Versions("c", "d", 0),
                             TunedRule("static", {}, Score(0.0, 0.0, 0.0, 0.0), 1))
    assert write_bundle(tmp_path / "product", product, 0).verdict == "PROVED"
    shipped = ENVIRONMENT.guarantees(product.model, executed(written_out(product.specification), product.model),
                                     task.workload("nginx").settings, limits)["shipped"]
    folder, (key, public) = tmp_path / "bundle", (tmp_path / "assay.key", tmp_path / "assay.pub")
    create_key_pair(key, public)
    complete_bundle(tmp_path / "product", folder, {"metrics": {}}, shipped)
    gates = evaluate_gates({"metrics": {}, "verdict": {"status": "PROVED"}}, None,
                           parse_gates({"specification": {"verdict": "PROVED"}}, "here"))
    (folder / "gates.json").write_text(json.dumps(gates.to_json()))
    sign_folder(folder, key)
    checked = check_bundle(folder, public, deep=True)
    said = checked.contract.guarantee
    assert said is not None and (said.statement, said.about, said.at_most) == (
        shipped.checked.statement, shipped.checked.about, shipped.checked.at_most)
    assert all(f"{number:.3g}"[:3] in said.statement for number in said.at_most.values())
    contract = json.loads((folder / "contract.json").read_text())
    contract["guarantee"]["statement"] = contract["guarantee"]["statement"].replace("core seconds after", "bytes after")
    (folder / "contract.json").write_text(json.dumps(contract))
    sign_folder(folder, key)
    with pytest.raises(RefusedError, match="contract's guarantee must be what is proved"):
        check_bundle(folder, public, deep=True)
