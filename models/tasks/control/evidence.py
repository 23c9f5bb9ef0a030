"""The evidence of a policy: episodes of the workload's held-out load, of the exported file beside the rules.

    controllers    name -> figures with intervals: policy; each rule as it was tuned on the training applications, and
                   to the workload ("NAME, own")
    metrics        what gates ask (comparing.py); `own_`: against rules tuned to the workload; `generic_`: of the policy
                   that it was fine-tuned from, on held-out applications (training.pretraining.held_out)
    closed_loop    what is guaranteed of the loop with a law, where the environment has one (GuaranteedSystem); or the
                   `reason` why nothing was tried
    guarantee      what of that goes with the bundle, with its proof; no part of evidence.json
    cases          cost (or reward) per episode
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from models.control.contract.controller import RuleFamily
from models.control.contract.environment import Environment, GuaranteedSystem
from models.control.contract.guarantee import HeldLive, executed, held_live, narrower
from models.control.contract.signals import Ceiling
from models.control.contract.systems import environment_of
from models.control.policy.policy import Policy
from models.control.simulation.rollout import acting_of
from models.export.bundle import PROOF_FILE
from models.export.parity import one_row_latency_us
from models.paired_cases import Cases, recorded
from models.tasks.control.comparing import JudgedEpisodes, against, described, figures
from models.tasks.control.judging import FloatArray, Played, episodes_digest, model_acting
from models.tasks.control.pictures import action_map, day
from models.tasks.control.product import CHOICE, POLICY, read_rules
from models.tasks.control.roles import roles
from models.tasks.control.task import ControlTask
from models.tasks.control.timeline import profile_of, timeline
from models.tasks.control.tuned_rule import TunedRule
from models.tasks.control.workload import limits_of, numbers_of, specification_of, twin_of
from models.verification.language.specification import Specification
from models.verification.language.specification_writing import written_out
from models.verification.network.runtime_session import open_session

PARITY_POINTS = 10_000
EPISODE = ("reward", "cost", "violating_share")  # recorded of every episode
UNCOUNTED = ("parity_max_abs", "parity_points", "latency_us")  # no means over episodes


def control_evidence(task: ControlTask, workload: str, seed: int, features: Path, verified: Path,
                     product: Path) -> dict[str, Any]:
    """Arguments as of `Kind.evidence`."""
    torch.set_num_threads(1)
    environment, model = twin_of(task, workload, features), (product / "model.onnx").read_bytes()
    policy, choice = Policy.load(verified / POLICY), json.loads((verified / CHOICE).read_text())
    tuned, own = read_rules(verified)
    held_out = JudgedEpisodes(task, environment)
    found = held_out.play(model_acting(model))
    families = environment_of(task.environment).rules
    rules = {**{name: held_out.play_rule(families[name], rule) for name, rule in tuned.items()},
             **{f"{name}, own": held_out.play_rule(families[name], rule) for name, rule in own.items()}}
    row, promise = found.observations[-1, 0], specification_of(task, workload, environment)
    best, difference = against(task, found, {name: rules[name] for name in tuned}, "")
    best_own, difference_own = against(task, found, {f"{name}, own": rules[f"{name}, own"] for name in own}, "own_")
    generic = choice["pretraining"]["held_out"]
    metrics = {**figures(found), **difference, **difference_own,
               **{f"generic_{name}": value for name, value in generic["metrics"].items()},
               "parity_max_abs": _parity(model, policy, environment, promise, seed),
               "parity_points": PARITY_POINTS,
               "latency_us": one_row_latency_us(model, row.astype(np.float64))}
    fallback = own[task.fallback_of(workload)]
    loop = dict(_closed_loop(task, workload, environment, model, promise, product, policy.shape.gates.ceilings))
    return {
        "guarantee": loop.pop("shipped", None),
        "metrics": metrics,
        "units": _units(environment),
        "case_counts": {name: held_out.count for name in metrics if name not in UNCOUNTED},
        "best_rule": best, "best_own_rule": best_own,
        "cases": _cases(task, environment, held_out, found).to_json(),
        "objective": task.objective.model_dump(), "fallback": fallback.to_json(),
        "controllers": {"policy": described(found),
                        **{name: described(one, (own if name.endswith(", own") else tuned)[name.removesuffix(", own")])
                           for name, one in rules.items()}},
        "measures": dict(environment.measures), "cost_unit": environment.cost_unit,
        "step_seconds": environment.step_seconds, "steps": held_out.steps,
        "episodes": _per_episode(found, rules[best]),
        "lifecycle": _lifecycle(task, environment, model, families[fallback.name], fallback),
        "training": choice, "history": {"epochs": choice["pretraining"]["history"]},
        "closed_loop": loop,
        "roles": roles(task, environment, tuple(environment_of(task.environment).columns)),
        "day": day(task, environment, {
            "policy": model_acting(model),
            fallback.name: acting_of(environment, families[fallback.name].make(fallback.settings))}),
        "action_map": action_map(environment, model, found.observations),
    }


def champion_in_episodes(task: ControlTask, workload: str, features: Path, model: bytes) -> dict[str, Any]:
    """The standing champion's file in the same episodes: {"metrics", "cases", "episodes", "day"}."""
    held_out = JudgedEpisodes(task, twin_of(task, workload, features))
    found = held_out.play(model_acting(model))
    return {"metrics": figures(found), "cases": _cases(task, held_out.environment, held_out, found).to_json(),
            "episodes": {what: _short(getattr(found, what)) for what in EPISODE},
            "day": day(task, held_out.environment, {"champion": model_acting(model)})}


def _closed_loop(task: ControlTask, workload: str, environment: Environment, model: bytes, promise: Specification,
                 product: Path, ceilings: Mapping[str, Mapping[str, Ceiling]] = MappingProxyType({})
                 ) -> Mapping[str, Any]:
    """What holds of the loop, where the specification is PROVED and the environment knows a law; else {}. The reason
    alone where the box is narrower than what the policy may be shown.

    ceilings: target -> {signal: ceiling}, which the contract says (product.py) and the shield keeps.
    """
    system, written = environment_of(task.environment), task.workload(workload)
    if not (product / PROOF_FILE).exists() or not isinstance(system, GuaranteedSystem):
        return {}
    specification, most = written_out(promise), limits_of(task, workload, environment)
    shown = {signal.name: (signal.low, signal.high) for signal in environment.signals}
    if reason := narrower(specification, shown,
                          {control.current: most[control.name] for control in environment.controls},
                          numbers_of(task, workload)):
        return {"reason": f"Nothing follows of the loop: {reason}."}
    limits = {name: (low, high) for name, (low, high) in written.limits.items()}
    targets = {control.name: HeldLive(*most[control.name], control.current, ceilings.get(control.name, {}))
               for control in environment.controls}
    proved_of_all = held_live(executed(specification, model), targets, shown)
    return system.guarantees(model, proved_of_all, written.settings, limits)


def _lifecycle(task: ControlTask, environment: Environment, model: bytes, family: RuleFamily,
               rule: TunedRule) -> dict[str, Any]:
    """On training episodes."""
    trained = JudgedEpisodes(task, environment, "train")
    fallback, policy = trained.play_rule(family, rule).reward, trained.play(model_acting(model)).reward
    counted = trained.steps - trained.warm_up
    return timeline(profile_of(task, environment_of(task.environment), counted, fallback), fallback, policy)


def _per_episode(found: Played, rule: Played) -> dict[str, list[float]]:
    """The policy and the best rule, episode by episode."""
    return {f"{who}_{what}": _short(getattr(one, what))
            for who, one in (("policy", found), ("rule", rule)) for what in EPISODE}


def _short(values: FloatArray) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _cases(task: ControlTask, environment: Environment, judged: JudgedEpisodes, found: Played) -> Cases:
    digest = episodes_digest(episodes=judged.count, steps=judged.steps, seed=judged.seed, split="held_out",
                             warm_up=judged.warm_up, environment=task.environment,
                             first=_first_digest(environment, judged))
    if task.objective.maximise == "reward":
        return Cases("reward per episode", "mean_reward", "larger", "reward", recorded(found.reward), digest)
    return Cases("cost per episode", "mean_cost", "smaller", environment.cost_unit, recorded(found.cost), digest)


def _first_digest(environment: Environment, judged: JudgedEpisodes) -> str:
    """Which load: what is seen first in each episode."""
    import hashlib

    episodes = environment.draw("held_out", judged.count, judged.steps, judged.seed)
    return hashlib.sha256(environment.observe(environment.reset(episodes)).numpy().tobytes()).hexdigest()


def _parity(model: bytes, policy: Policy, environment: Environment, promise: Specification, seed: int) -> float:
    """Largest difference of the file to the trained policy at random points of the box, in shares of a range."""
    low, high = promise.lower, promise.upper
    random = np.random.default_rng(seed).random((PARITY_POINTS, len(low)))
    logarithmic = np.array([signal.scale == "log" for signal in environment.signals])
    safe = np.where(logarithmic, low, 1.0)
    raw = np.where(logarithmic, safe * (np.where(logarithmic, high, 1.0) / safe) ** random, low + (high - low) * random)
    session = open_session(model)
    (got,) = session.run(None, {session.get_inputs()[0].name: raw.astype(np.float32)})
    with torch.no_grad():
        expected = policy.double()(torch.from_numpy(raw.astype(np.float32)).double()).numpy()
    span = np.array([control.span for control in environment.controls])
    return float((np.abs(got - expected) / span).max())


def _units(environment: Environment) -> dict[str, str]:
    """Of the metrics whose unit is the environment's or the task's own."""
    costs, rewards = ("mean_cost", "cost_deviation", "rule_cost"), (
        "mean_reward", "worst_tenth_reward", "reward_deviation", "reward_gain", "reward_gain_lower", "rule_reward")
    units = {**dict.fromkeys(costs, environment.cost_unit), **dict.fromkeys(rewards, "reward a step"),
             **{f"mean_{name}": unit for name, unit in environment.measures.items()}}
    return {f"{prefix}{name}": unit for prefix in ("", "own_", "generic_") for name, unit in units.items()}
