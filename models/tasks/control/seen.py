"""What a policy's training saw of its workload: the ranges beyond which a live observation is out of distribution.

Of the observations of training episodes (the earlier part of the load) under the exported file and under each rule as
it was tuned to the workload, for a rule hands over to the policy: every signal, and every feature of several signals
that are all seen as logarithms, as their product; but for what an observer guesses at a start. serving/seen_spec.py
holds observations against them.

MARGIN, a factor, was chosen by how often it flags policies in later loads of their own, and in other ones:
`python -m benchmarks autoscaling-distribution`, table in docs/reference/control.md.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.control.contract.acting import load_acting
from models.control.contract.environment import Environment
from models.control.contract.systems import environment_of
from models.control.simulation.rollout import Acting, acting_of
from models.tasks.control.judging import play
from models.tasks.control.task import ControlTask
from models.tasks.control.tuned_rule import TunedRule

MARGIN = 1.5
NOTHING: Mapping[str, Any] = {"margin": MARGIN, "ranges": []}
SEED = 1  # added to that of judging
EPISODES = 256  # at least: of 96, whose applications are not all there are, four times as many steps were flagged


def seen_in_training(task: ControlTask, environment: Environment, policy: Acting,
                     rules: Mapping[str, TunedRule]) -> dict[str, Any]:
    """`driving.seen` of a contract.

    Args:
        environment: of the workload.
        policy: the exported file.
        rules: tuned to the workload, by name.
    """
    count, steps = max(EPISODES, task.judging.episodes), task.judging.steps or environment.steps
    episodes = environment.draw("train", count, steps, task.judging.seed + SEED)
    system = load_acting(environment_of(task.environment).acting)
    actors = [policy, *(acting_of(environment, system.rules[name].make(rule.settings)) for name, rule in rules.items())]
    ends: list[NDArray[np.float64]] = []
    entries = _entries(environment, system.observer().guessed)
    for acting in actors:
        observed = play(environment, episodes, steps, acting).observations.reshape(-1, len(environment.signals))
        values = _values(environment, entries, observed.astype(np.float64))
        ends.append(np.stack([values.min(axis=0), values.max(axis=0)]))
    low, high = np.min([one[0] for one in ends], axis=0), np.max([one[1] for one in ends], axis=0)
    return {"margin": MARGIN, "ranges": [
        {**entry, "minimum": float(f"{a:.4g}"), "maximum": float(f"{b:.4g}")}
        for entry, a, b in zip(entries, low, high, strict=True)]}


def _entries(environment: Environment, guessed: Sequence[str]) -> list[dict[str, Any]]:
    """What is looked at: name, scale, terms."""
    scales = {signal.name: signal.scale for signal in environment.signals if signal.name not in guessed}
    single: list[dict[str, Any]] = [{"name": name, "scale": scale, "terms": {name: 1.0}}
                                    for name, scale in scales.items()]
    return single + [
        {"name": feature.name, "scale": "log", "terms": dict(feature.terms)} for feature in environment.features
        if len(feature.terms) > 1 and all(scales.get(name) == "log" for name in feature.terms)
        and feature.name not in scales]


def _values(environment: Environment, entries: list[dict[str, Any]],
            observed: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N, r) raw: a signal, or a product of powers of signals. observed: (N, n)."""
    column = {signal.name: observed[:, position] for position, signal in enumerate(environment.signals)}
    return np.stack([
        np.exp(np.sum([power * np.log(column[name]) for name, power in entry["terms"].items()], axis=0))
        if entry["scale"] == "log" else column[next(iter(entry["terms"]))] for entry in entries], axis=1)
