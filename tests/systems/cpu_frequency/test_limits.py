"""What the task file demands is PROVED of the file whatever was learned, and whatever a workload's limits are."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from models.control.contract.systems import environment_of
from models.control.policy.policy import Policy
from models.export.bundle import write_bundle
from models.export.product import Versions
from models.tasks.control.policies import demands_of, policy_shape, with_limits
from models.tasks.control.product import policy_product
from models.tasks.control.scoring import Score
from models.tasks.control.tuned_rule import TunedRule
from models.tasks.task import load_task
from systems.cpu_frequency.simulator import CpuFrequency

FILE = Path(__file__).parents[3] / "systems/cpu_frequency/cpu_frequency.yaml"


@pytest.mark.parametrize("highest", [1.6, 2.4, 2.8, 3.0, 3.3])
def test_the_specification_is_proved_of_a_policy_that_learned_nothing(tmp_path: Path, highest: float) -> None:
    written = yaml.safe_load(FILE.read_text())
    written["workloads"]["shop"]["limits"] = {"target_frequency_ghz": [1.2, highest]}
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(written))
    task = load_task(tmp_path / "task.yaml")
    (control,) = environment_of("cpu_frequency").controls
    own = CpuFrequency((replace(control, high=highest, levels=tuple(
        level for level in control.levels if level <= highest)),))
    policy = Policy(policy_shape(task, environment_of("cpu_frequency")), torch.Generator().manual_seed(1))
    demands_of(task).project(policy)
    product = policy_product(task, "shop", own, with_limits(policy, own), Versions("cpu", "cpu", 0),
                             TunedRule("leading-loads", {}, Score(0.0, 0.0, 0.0, 0.0), 0))
    verdict = write_bundle(tmp_path / "product", product)
    assert verdict.status == "PROVED", verdict.reason
