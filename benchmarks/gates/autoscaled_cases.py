"""Paired episodes of two autoscalers in the environment of a workload, as `assay run` compares a policy with another.

Two rules of autoscaling act. The second one's figures are moved by what it is worse on average over all repeats of the
workload, so that both are as good, and one looks better by luck. What the luck is of:

    episodes   the workload's recorded load; each repeat draws other episodes and variations of the application
    loads      each repeat has a made day of its own, of another shape: what nobody can know from one recorded load

Symbols: W workloads, R repeats, N episodes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.metrics import Better
from models.paired_comparison import ComparisonRule, block_length, compare, interval

WORKLOADS = ("nginx", "redis", "mysql", "search")
RULES = ("hpa-cpu-p99-vpa-memory", "keda-rate-aimd-p99")
IMPROVEMENTS = (0.0, 0.05, 0.2)
CONFIDENCE = 0.99  # of an end of an interval that a gate asks for (models/tasks/control/comparing.py)
_MINUTES = 1440

Array = NDArray[np.float64]
Json = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """What is compared: cost (W, R, N) of champion and challenger, or reward."""

    label: str
    better: Better
    champion: Array
    challenger: Array

    def pair(self, workload: int, repeat: int, improvement: float) -> tuple[Array, Array]:
        """(N,) scores of a challenger that is better by this share in the workload, and of the champion."""
        champion, challenger = (scores[workload] for scores in (self.champion, self.challenger))
        if self.better == "smaller":
            moved = challenger * (champion.mean() / challenger.mean() * (1.0 - improvement))
        else:
            moved = challenger + champion.mean() * (1.0 + improvement) - challenger.mean()
        return moved[repeat], champion[repeat]


def play(luck: str, repeats: int, say: Callable[[str], None]) -> tuple[Figure, Figure]:
    """Cost and reward of both rules, where repeats differ in `luck`: episodes or loads."""
    import pandas as pd

    from models.control.contract.systems import environment_of
    from models.control.simulation.rollout import roll_out
    from models.tasks.task import load_task
    from systems.autoscaling.rules.rules import make
    from systems.autoscaling.simulator.arrivals import made_traces

    task = load_task("autoscaling")
    system, steps, episodes = environment_of(task.environment), task.judging.steps, task.judging.episodes
    assert system.telemetry is not None  # it comes with the task
    telemetry = pd.read_parquet(system.telemetry)
    found = np.empty((2, 2, len(WORKLOADS), repeats, episodes))
    for w, workload in enumerate(WORKLOADS):
        settings = task.workload(workload).settings
        recorded = telemetry[telemetry["workload"] == workload].sort_values("window_start")
        shapes = made_traces(repeats, seed=100 + w)
        environment = system.twin(recorded, settings, {})
        for r in range(repeats):
            if luck == "loads":
                start = pd.Timestamp("2026-01-01", tz="UTC")
                load = pd.DataFrame({"window_start": start + pd.to_timedelta(60.0 * np.arange(_MINUTES), unit="s"),
                                     "window_s": 60.0, "rate_rps": float(recorded["rate_rps"].mean()) * shapes[r]})
                environment = system.twin(load, settings, {})
            drawn = environment.draw("held_out", episodes, steps, task.judging.seed + (r if luck == "episodes" else 0))
            for c, rule in enumerate(RULES):
                rollout = roll_out(environment, make(rule, {}), drawn, steps, task.judging.counted_from(steps))
                found[0, c, w, r], found[1, c, w, r] = rollout.cost, rollout.reward
        say(f"autoscaling, {workload}: {repeats} {luck}")
    return (Figure("cost", "smaller", *found[0]), Figure("reward", "larger", *found[1]))


def promoted(figure: Figure, improvement: float) -> Json:
    """Share of the pairs in which the challenger would replace the champion, and in which a gate that asks for a
    saving of at least 0 at the lower end of its interval would pass."""
    count, repeats, _ = figure.champion.shape
    wins, passes = [], []
    for workload in range(count):
        for repeat in range(repeats):
            challenger, champion = figure.pair(workload, repeat, improvement)
            wins.append(compare(challenger, champion, figure.better, ComparisonRule()).wins)
            gain = challenger - champion if figure.better == "larger" else champion - challenger
            passes.append(interval(gain, block_length(gain), CONFIDENCE)[0] >= 0.0)
    return {"figure": figure.label, "improvement": improvement, "promoted": float(np.mean(wins)),
            "gate": float(np.mean(passes))}


def measure(repeats: int, say: Callable[[str], None]) -> list[Json]:
    """A row a luck, figure and improvement."""
    return [{"luck": luck, **promoted(figure, improvement)} for luck in ("episodes", "loads")
            for figure in play(luck, repeats, say) for improvement in IMPROVEMENTS]
