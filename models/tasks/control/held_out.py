"""The generic policy on held-out applications beside the rules that were tuned on the training applications.

    best_rule, metrics    as of a workload (comparing.py)
    controllers           name -> figures with intervals: policy, and the rules
    front                 every policy that was trained, each for its share of violating steps: aim, cost,
                          violating_share, reward
"""

from typing import Any

import torch

from models.control.contract.environment import ControlledSystem
from models.control.policy.policy import Policy
from models.tasks.control.comparing import JudgedEpisodes, against, described, figures
from models.tasks.control.judging import Played
from models.tasks.control.task import ControlTask
from models.tasks.control.training import TrainedForAims
from models.tasks.control.tuned_rule import TunedRule


def on_held_out_applications(task: ControlTask, system: ControlledSystem, trained: TrainedForAims, chosen: int,
                             rules: dict[str, TunedRule]) -> dict[str, Any]:
    """Policy and rules in the same held-out episodes; chosen: number of the policy that stays."""
    judged = JudgedEpisodes(task, system)
    played = [_played(judged, trained.policies.member(number)) for number in range(len(trained.aims))]
    of_rules = {name: judged.play_rule(system.rules[name], rule) for name, rule in rules.items()}
    best, metrics = against(task, played[chosen], of_rules, "")
    front = [{"aim": aim, **{name: float(getattr(one, name).mean()) for name in ("cost", "violating_share", "reward")}}
             for aim, one in zip(trained.aims, played, strict=True)]
    return {"best_rule": best, "metrics": {**figures(played[chosen]), **metrics}, "front": front,
            "episodes": judged.count, "controllers": {
                "policy": described(played[chosen]),
                **{name: described(one, rules[name]) for name, one in of_rules.items()}}}


def _played(judged: JudgedEpisodes, policy: Policy) -> Played:
    def act(observation: torch.Tensor, seconds: float) -> torch.Tensor:
        targets: torch.Tensor = policy(observation)
        return targets

    return judged.play(act)
