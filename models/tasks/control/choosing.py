"""The better of several policies, by the same training episodes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from models.control.contract.environment import Environment
from models.control.policy.policy import Policy
from models.control.training.rollouts import targets_of
from models.paired_comparison import Comparison, ComparisonRule, compare
from models.tasks.control.judging import Played, play
from models.tasks.control.scoring import Score, scores
from models.tasks.control.task import ControlTask
from models.tasks.control.training import LEAST_AIM, aims_of

EPISODES = 256
_SEED = 104_729  # added to the run's, so that no episode of training is among them
NO_WORSE = ComparisonRule(minimum_improvement=0.0, minimum_improvement_of_spread=0.0, confidence=0.95)


@dataclass(frozen=True)
class Choice:
    """Whether the new one is taken, and why."""

    taken: bool
    reason: str


def best_of(task: ControlTask, found: Sequence[Score], reward_weight: float = 0.0) -> int:
    """The number of the best score.

    Args:
        reward_weight: what a unit of the reward is worth beside the cost, where the cost is the objective.
    """
    losses = [_loss(task, score, reward_weight) for score in found]
    return losses.index(min(losses))


def member_scores(task: ControlTask, environment: Environment, policies: Policy, seed: int) -> list[Score]:
    """(S,) on the same episodes of the training split."""
    (members,) = policies.members
    steps = task.judging.steps or environment.steps
    drawn = environment.draw("train", EPISODES, steps, seed + _SEED)
    episodes = drawn.take(torch.arange(EPISODES).repeat(members))
    played = play(environment, episodes, steps, lambda seen, _: targets_of(policies, seen),
                  task.judging.counted_from(steps))
    return scores(played, members, task.objective.violating_share)


def better(task: ControlTask, environment: Environment, new: Policy, old: Policy, seed: int) -> Choice:
    """Whether a policy takes the place of the one that it came of, on the same training episodes.

    At violations that are allowed, or no more than the other's: by the cost less what the reward is worth (the task's
    `finetune_reward_weight`), or the reward where that is the objective; where the other violates more than fine-tuning
    aims at, by the violations too: a later load violates more than what is trained on. Where they cannot be told apart
    it does: of ties looked at the old ones violated more a day later (decision 12).
    """
    steps = task.judging.steps or environment.steps
    episodes = environment.draw("train", EPISODES, steps, seed + _SEED)

    def played(policy: Policy) -> Played:
        return play(environment, episodes, steps, lambda observation, seconds: policy(observation),
                    task.judging.counted_from(steps))

    after, before = played(new), played(old)
    allowed, share, share_before = task.objective.violating_share, after.violating_share, before.violating_share
    aimed_at = min(max(aims_of(task, finetuning=True)), max(LEAST_AIM, allowed))
    if share.mean() > max(allowed, share_before.mean()):
        return Choice(False, f"it violates in {share.mean():.2%} of the steps, the other in {share_before.mean():.2%}")
    if share_before.mean() > aimed_at:
        fewer = _chosen("violating share", compare(share, share_before, "smaller", NO_WORSE))
        if fewer.taken:
            return fewer
    if task.objective.maximise == "reward":
        return _unless_worse("reward", compare(before.reward, after.reward, "larger", NO_WORSE))
    weight = task.training.finetune_reward_weight
    return _unless_worse(f"cost less {weight:g} of the reward" if weight else "cost", compare(
        before.cost - weight * before.reward, after.cost - weight * after.reward, "smaller", NO_WORSE))


def _chosen(quantity: str, found: Comparison) -> Choice:
    return Choice(found.wins, f"{quantity} of {EPISODES} training episodes {found.challenger_mean:.4g} against "
                              f"{found.champion_mean:.4g}, gain at least {found.lower_end:.3g}")


def _unless_worse(quantity: str, old: Comparison) -> Choice:
    """old: of the old policy as the challenger."""
    return Choice(not old.wins, f"{quantity} of {EPISODES} training episodes {old.champion_mean:.4g} against "
                                f"{old.challenger_mean:.4g}, which is {'' if old.wins else 'not '}surely better")


def _loss(task: ControlTask, score: Score, reward_weight: float) -> tuple[float, float]:
    """What violates beyond what is allowed comes first where the reward is the objective; a cost has it in its loss."""
    if task.objective.maximise == "reward":
        return max(0.0, score.violating_share - task.objective.violating_share), -score.reward
    return 0.0, score.loss - reward_weight * score.reward
