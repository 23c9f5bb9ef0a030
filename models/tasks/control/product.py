"""A policy as a product: raw telemetry in, targets with units out, the scaling inside of the file.

    learner/<workload>/    policy.npz; choice.json: where it comes from; rules.json: rules as they were tuned on
                           the training applications, and to the workload
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from models.control.contract.acting import code_sha256
from models.control.contract.environment import Environment
from models.control.contract.signals import Ceiling
from models.control.contract.systems import environment_of
from models.control.policy.policy import Policy
from models.control.policy.policy_chain import Box, chain
from models.control.policy.policy_model import chain_onnx
from models.export.product import Product, ProductInput, ProductOutput, Versions, promised
from models.tasks.control.judging import model_acting
from models.tasks.control.seen import NOTHING, seen_in_training
from models.tasks.control.task import ControlTask
from models.tasks.control.tuned_rule import TunedRule
from models.tasks.control.workload import numbers_of, specification_of, twin_of

POLICY, CHOICE, RULES = "policy.npz", "choice.json", "rules.json"


def product_of_learner(task: ControlTask, workload: str, versions: Versions, features: Path, learner: Path) -> Product:
    """Of a learner's folder, under the limits of the workload."""
    environment = twin_of(task, workload, features)
    _, own = read_rules(learner)
    made = policy_product(task, workload, environment, Policy.load(learner / POLICY), versions,
                          own[task.fallback_of(workload)])
    seen = seen_in_training(task, environment, model_acting(made.model), own)
    return replace(made, driving={**(made.driving or {}), "seen": seen})


def policy_product(task: ControlTask, workload: str, environment: Environment, policy: Policy, versions: Versions,
                   fallback: TunedRule) -> Product:
    """What ships of a policy, but for what its training saw.

    Args:
        environment: of the workload; its limits are the policy's.
        policy: a single one.
        fallback: the workload's rule with its settings.
    """
    specification = specification_of(task, workload, environment)
    units = {signal.name: signal.unit for signal in environment.signals}
    units |= {control.name: control.unit for control in environment.controls}
    promise = promised(specification, [control.span for control in environment.controls], units)
    metadata = {"task": task.name, "workload": workload, "code_version": versions.code_version,
                "data_version": versions.data_version, "units": "inputs and outputs are in raw units"}
    model = chain_onnx(*chain(policy, Box(specification.lower, specification.upper)), metadata)
    return Product(
        task.name, workload, model, promise,
        tuple(ProductInput(one.name, one.unit, one.meaning, one.low, one.high) for one in environment.signals),
        tuple(ProductOutput(one.name, one.unit, "target", one.low, one.high, one.low, one.high)
              for one in environment.controls), versions, seconds=task.training.verify_seconds,
        fallback=fallback_and_ranges(fallback, environment, policy.shape.gates.ceilings),
        driving=driving_of(task, workload, environment))


def fallback_and_ranges(rule: TunedRule, environment: Environment,
                        ceilings: Mapping[str, Mapping[str, Ceiling]] = MappingProxyType({})) -> dict[str, Any]:
    """What a contract says of the controller that acts where the policy may not, and of what nobody may exceed.

    Args:
        ceilings: control -> {signal: ceiling}.
    """
    ranges: dict[str, dict[str, Any]] = {}
    for control in environment.controls:
        own = {name: vars(one).copy() for name, one in ceilings.get(control.name, {}).items()}
        ranges[control.name] = {"minimum": control.low, "maximum": control.high, "most_down": control.most_down,
                                "most_up": control.most_up,
                                **({"safe_side": "less"} if control.safe_side == "less" else {}),
                                **({"ceilings": own} if own else {})}
    return {"rule": rule.name, "settings": dict(rule.settings), "safe_ranges": ranges}


def driving_of(task: ControlTask, workload: str, environment: Environment) -> dict[str, Any]:
    """What a contract says of how the policy is driven: settings of the workload that the policy is told are fixed."""
    signals = {signal.name for signal in environment.signals}
    settings = {name: value for name, value in numbers_of(task, workload).items() if name in signals}
    acting = environment_of(task.environment).acting
    levels = {control.name: list(control.levels) for control in environment.controls if control.levels}
    return {"acting": {"module": acting, "sha256": code_sha256(acting)}, "step_s": environment.step_seconds,
            "current": {control.name: control.current for control in environment.controls},
            "whole": [control.name for control in environment.controls if control.whole], "settings": settings,
            "seen": NOTHING, **({"levels": levels} if levels else {})}


def write_learner(folder: Path, policy: Policy, choice: Mapping[str, Any], rules: Mapping[str, TunedRule],
                  own: Mapping[str, TunedRule]) -> None:
    """Writes what `product_of_learner` reads.

    Args:
        choice: how the policy was chosen.
        rules: tuned on the training applications.
        own: tuned to the workload.
    """
    policy.save(folder / POLICY)
    (folder / CHOICE).write_text(json.dumps(choice, indent=1))
    (folder / RULES).write_text(json.dumps({"applications": [rule.to_json() for rule in rules.values()],
                                            "workload": [rule.to_json() for rule in own.values()]}, indent=1))


def read_rules(folder: Path) -> tuple[dict[str, TunedRule], dict[str, TunedRule]]:
    """The rules of a learner's folder by name: tuned on the training applications, and to the workload."""
    read = json.loads((folder / RULES).read_text())
    applications, workload = ({rule.name: rule for rule in map(TunedRule.from_json, read[key])}
                              for key in ("applications", "workload"))
    return applications, workload
