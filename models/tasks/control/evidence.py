"""The evidence of a policy: episodes of the workload's held-out load, of the exported file beside the rules.

    controllers    name -> figures with intervals: policy; each rule as it was tuned on the training applications, and
                   to the workload ("NAME, own"); the policy on held-out applications (`generic`)
    metrics        what gates ask; differences to rules are paired, their lower ends a bootstrap's at CONFIDENCE
    cases          cost (or reward) per episode

"Best rule": of those whose violating share is at most what the task allows, or the policy's own where that is more, the
one with the least cost (or the largest reward); where none is, the one that violates least.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from models.environments.environment import Environment, RuleFamily
from models.environments.environments import environment_of
from models.export.parity import one_row_latency_us, open_session
from models.learners.policy import Policy
from models.paired_cases import Cases, recorded
from models.paired_comparison import block_length, interval
from models.tasks.control.judging import FloatArray, Played, episodes_digest, model_acting, play, rule_acting
from models.tasks.control.pictures import action_map, day
from models.tasks.control.product import CHOICE, POLICY, read_rules
from models.tasks.control.roles import roles
from models.tasks.control.rule_tuning import TunedRule
from models.tasks.control.task import ControlTask
from models.tasks.control.timeline import profile_of, timeline
from models.tasks.control.workload import specification_of, twin_of
from models.verification.language.specification import Specification

CONFIDENCE = 0.99  # of each end of an interval, one-sided
WORST = 0.1  # share of the episodes that count as the worst
PARITY_POINTS = 10_000
UNCOUNTED = ("best_rule", "best_own_rule", "parity_max_abs", "parity_points", "latency_us")  # no means over episodes


def control_evidence(task: ControlTask, workload: str, seed: int, features: Path, verified: Path,
                     product: Path) -> dict[str, Any]:
    """Arguments as of `Kind.evidence`."""
    torch.set_num_threads(1)
    environment, model = twin_of(task, workload, features), (product / "model.onnx").read_bytes()
    policy, choice = Policy.load(verified / POLICY), json.loads((verified / CHOICE).read_text())
    tuned, own = read_rules(verified)
    held_out = _Judged(task, environment)
    found = held_out.play_model(model)
    families = environment_of(task.environment).rules
    rules = {**{name: held_out.play_rule(families[name], rule) for name, rule in tuned.items()},
             **{f"{name}, own": held_out.play_rule(families[name], rule) for name, rule in own.items()}}
    row = found.observations[-1, 0]
    metrics = {**figures(found), **_against(task, found, {name: rules[name] for name in tuned}, ""),
               **_against(task, found, {f"{name}, own": rules[f"{name}, own"] for name in own}, "own_"),
               "parity_max_abs": _parity(model, policy, environment, specification_of(task, workload, environment), seed), "parity_points": PARITY_POINTS,
               "latency_us": one_row_latency_us(model, row.astype(np.float64))}
    fallback = own[task.fallback_of(workload)]
    return {
        "metrics": {name: value for name, value in metrics.items() if not isinstance(value, str)},
        "units": {**_units(environment)}, "case_counts": {name: held_out.count for name in metrics if name not in UNCOUNTED},
        "best_rule": metrics["best_rule"], "best_own_rule": metrics["best_own_rule"],
        "cases": _cases(task, environment, held_out, found).to_json(),
        "objective": task.objective.model_dump(), "fallback": fallback.to_json(),
        "controllers": {"policy": _described(found, None),
                        **{name: _described(one, (own if name.endswith(", own") else tuned)[name.removesuffix(", own")])
                           for name, one in rules.items()}},
        "measures": dict(environment.measures), "cost_unit": environment.cost_unit,
        "step_seconds": environment.step_seconds, "steps": held_out.steps,
        "episodes": _per_episode(found, rules[metrics["best_rule"]]),
        "lifecycle": _lifecycle(task, environment, model, families[fallback.name], fallback),
        "training": choice, "history": {"epochs": choice["pretraining"]["history"]},
        "roles": roles(task, environment, tuple(environment_of(task.environment).columns)),
        "day": day(task, environment, model, families[fallback.name], fallback),
        "action_map": action_map(environment, model, found.observations),
    }


def champion_in_episodes(task: ControlTask, workload: str, features: Path, model: bytes) -> dict[str, Any]:
    """The standing champion's file in the same episodes: {"metrics", "cases"}."""
    held_out = _Judged(task, twin_of(task, workload, features))
    found = held_out.play_model(model)
    return {"metrics": figures(found), "cases": _cases(task, held_out.environment, held_out, found).to_json()}


def _lifecycle(task: ControlTask, environment: Environment, model: bytes, family: RuleFamily,
               rule: TunedRule) -> dict[str, Any]:
    """On training episodes."""
    trained = _Judged(task, environment, "train")
    fallback, policy = trained.play_rule(family, rule).reward, trained.play_model(model).reward
    counted = trained.steps - trained.warm_up
    return timeline(profile_of(task, environment_of(task.environment), counted, fallback), fallback, policy)


class _Judged:
    """The episodes of a workload that all are judged by; split: held_out, unless training's are asked for."""

    def __init__(self, task: ControlTask, environment: Environment, split: str = "held_out") -> None:
        self.environment, self.count = environment, task.judging.episodes
        self.steps = task.judging.steps or environment.steps
        self.seed, self.warm_up = task.judging.seed, task.judging.counted_from(self.steps)
        self._episodes = environment.draw(split, self.count, self.steps, self.seed)

    def play_model(self, model: bytes) -> Played:
        return play(self.environment, self._episodes, self.steps, model_acting(model), self.warm_up)

    def play_rule(self, family: RuleFamily, rule: TunedRule) -> Played:
        acting = rule_acting(self.environment, family.make(rule.settings), self.count)
        return play(self.environment, self._episodes, self.steps, acting, self.warm_up)


def figures(played: Played) -> dict[str, float]:
    """What gates ask of one controller."""
    worst = max(1, round(WORST * len(played.cost)))
    return {"mean_reward": float(played.reward.mean()), "mean_cost": float(played.cost.mean()),
            "violating_share": float(played.violating_share.mean()),
            "violating_share_upper": _ends(played.violating_share)[1],
            "reward_deviation": float(played.reward.std()), "cost_deviation": float(played.cost.std()),
            "worst_tenth_reward": float(np.sort(played.reward)[:worst].mean()),
            "worst_tenth_violating_share": float(np.sort(played.violating_share)[-worst:].mean())}


def _ends(values: FloatArray) -> tuple[float, float]:
    """Both ends of the interval of a mean."""
    return interval(values, block_length(values), CONFIDENCE)


def _against(task: ControlTask, found: Played, rules: Mapping[str, Played], prefix: str) -> dict[str, Any]:
    """Savings and gains of the policy over the best rule, with their lower ends."""
    allowed = max(task.objective.violating_share, float(found.violating_share.mean()))
    keeping = {name: one for name, one in rules.items() if one.violating_share.mean() <= allowed}
    usable = keeping or dict([min(rules.items(), key=lambda entry: float(entry[1].violating_share.mean()))])
    cheapest = min(usable, key=lambda name: float(usable[name].cost.mean()))
    dearest = max(usable, key=lambda name: float(usable[name].reward.mean()))
    cost, reward = usable[cheapest], usable[dearest]
    saved = (cost.cost - found.cost) / cost.cost.mean()
    gained = found.reward - reward.reward
    return {f"best_{prefix}rule": cheapest, f"{prefix}cost_saved": float(saved.mean()),
            f"{prefix}cost_saved_lower": _ends(saved)[0], f"{prefix}cost_saved_upper": _ends(saved)[1],
            f"{prefix}reward_gain": float(gained.mean()), f"{prefix}reward_gain_lower": _ends(gained)[0],
            f"{prefix}rule_cost": float(cost.cost.mean()), f"{prefix}rule_reward": float(reward.reward.mean()),
            f"{prefix}rule_violating_share": float(cost.violating_share.mean())}


def _described(played: Played, rule: TunedRule | None) -> dict[str, Any]:
    """A controller in tables: means with both ends of their intervals."""
    means = {"reward": played.reward, "cost": played.cost, "violating_share": played.violating_share, **played.measures}
    return {"figures": {name: [float(values.mean()), *_ends(values)] for name, values in means.items()},
            "settings": {} if rule is None else dict(rule.settings)}


def _per_episode(found: Played, rule: Played) -> dict[str, list[float]]:
    """The policy and the best rule, episode by episode."""
    return {f"{who}_{what}": [float(f"{value:.6g}") for value in getattr(one, what)]
            for who, one in (("policy", found), ("rule", rule)) for what in ("reward", "cost", "violating_share")}


def _cases(task: ControlTask, environment: Environment, judged: _Judged, found: Played) -> Cases:
    digest = episodes_digest(episodes=judged.count, steps=judged.steps, seed=judged.seed, split="held_out", warm_up=judged.warm_up,
                             environment=task.environment, rate=_load_digest(environment, judged))
    if task.objective.maximise == "reward":
        return Cases("reward per episode", "mean_reward", "larger", "reward", recorded(found.reward), digest)
    return Cases("cost per episode", "mean_cost", "smaller", environment.cost_unit, recorded(found.cost), digest)


def _load_digest(environment: Environment, judged: _Judged) -> str:
    """Which load: what is seen first in each episode."""
    import hashlib

    episodes = environment.draw("held_out", judged.count, judged.steps, judged.seed)
    return hashlib.sha256(environment.observe(environment.reset(episodes)).numpy().tobytes()).hexdigest()


def _parity(model: bytes, policy: Policy, environment: Environment, promise: Specification, seed: int) -> float:
    """Largest difference of the file to the trained policy at random points of the box, as a share of a control's range."""
    low, high = promise.lower, promise.upper
    random = np.random.default_rng(seed).random((PARITY_POINTS, len(low)))
    logarithmic = np.array([signal.scale == "log" for signal in environment.signals])
    safe = np.where(logarithmic, low, 1.0)
    raw = np.where(logarithmic, safe * (np.where(logarithmic, high, 1.0) / safe) ** random, low + (high - low) * random)
    session = open_session(model)
    (got,) = session.run(None, {session.get_inputs()[0].name: raw.astype(np.float32)})
    with torch.no_grad():
        expected = policy.double()(torch.from_numpy(raw.astype(np.float32)).double()).numpy()
    span = np.array([control.high - control.low for control in environment.controls])
    return float((np.abs(got - expected) / span).max())


def _units(environment: Environment) -> dict[str, str]:
    shares = ("violating_share", "violating_share_upper", "worst_tenth_violating_share", "cost_saved", "cost_saved_lower",
              "cost_saved_upper", "rule_violating_share")
    costs = ("mean_cost", "cost_deviation", "rule_cost")
    return {**{name: "share" for name in (*shares, *(f"own_{name}" for name in shares))},
            **{name: environment.cost_unit for name in (*costs, "own_rule_cost")}}
