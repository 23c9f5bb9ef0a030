"""A workload whose memory and replicas are fixed: its whole specification is proved all the same.

With a ReLU at either limit of a fixed target no box was small enough (at the kink intervals cannot see that both
cancel), its tolerance was a share of nothing, and its execution in float32 was larger than its range.
"""

from dataclasses import replace

import torch

from models.control.policy.policy import Policy
from models.export.bundle import write_bundle
from models.export.product import Versions
from models.tasks.control.policies import policy_shape
from models.tasks.control.product import policy_product
from models.tasks.control.scoring import Score
from models.tasks.control.task import ControlTask
from models.tasks.control.tuned_rule import TunedRule
from models.tasks.task import load_task
from models.verification.verdict import Status
from systems.autoscaling.simulator.simulator import Autoscaling

FIXED = {"target_memory_limit_mib": 64.0, "target_replicas": 1.0}


def test_the_whole_specification_of_a_policy_with_fixed_targets_is_proved(tmp_path):
    task = load_task("autoscaling")
    assert isinstance(task, ControlTask)
    kept = [rule for rule in task.specification["properties"]
            if all(one.get("when", {}).get("replicas", [1])[0] <= 1 for one in rule.values())]
    task = task.model_copy(update={"specification": {**task.specification, "properties": kept}})
    environment = Autoscaling()
    environment = environment.with_controls(tuple(
        replace(one, low=FIXED[one.name], high=FIXED[one.name]) if one.name in FIXED else one
        for one in environment.controls))
    policy = Policy(policy_shape(task, environment), torch.Generator().manual_seed(0))
    with torch.no_grad():
        for weight in policy.weights[1:]:
            weight.zero_()
    rule = TunedRule("static", {}, Score(0.0, 0.0, 0.0, 0.0), 1)
    product = policy_product(task, "nginx", environment, policy, Versions("", "", 0), rule)
    verdict = write_bundle(tmp_path / "product", product, 0, lambda part, state: None)
    assert verdict.status is Status.PROVED, verdict.reason
