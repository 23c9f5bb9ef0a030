"""Services whose payload or load changes, as section 5.2.3 of the thesis has it, and how soon that is seen.

The simulator of systems/autoscaling, with a load that keeps its distribution (its logarithm is autoregressive: of two
values a minute apart the correlation is 0.9; standard deviation 0.3) and without the slow drift of CPU time that it
gives to training: nothing but the scenario changes.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from models.monitoring.chances import WINDOWS, level_of
from models.monitoring.drift import drifts, references

STEP_S, TRAINING, CHANGE, STEPS, WARM_UP, DRAWN, SEED = 15.0, 5760, 7680, 15360, 20, 60, 3
RULE, EPISODE, EPISODES, DEGRADATION = "hpa-cpu", 100, 10, 0.026
TRACES, TRACE_MINUTES, MEMORY, SPREAD = 40, 4000, 0.9, 0.3
Json = dict[str, Any]


def delays(scenario: str, applications: int) -> Json:
    """Minutes from the change to the first alarm, of each application that it concerns; None: there is none.

    Negative: before the change. cpu: times that a request takes after it.
    """
    from models.control.simulation.rollout import acting_of
    from models.tasks.control.judging import play
    from systems.autoscaling.interface import SIGNALS
    from systems.autoscaling.observer import AutoscalingObserver
    from systems.autoscaling.rules.rules import make
    from systems.autoscaling.simulator.simulator import Autoscaling

    environment = Autoscaling(traces=_loads())
    episodes, ordinary = (environment.draw("held_out", DRAWN, STEPS, SEED, scenario=name) for name in (scenario, ""))
    growth = episodes.cpu_s / ordinary.cpu_s
    episodes = replace(episodes, cpu_s=(episodes.applications.cpu_s * growth).contiguous())
    after = growth[-1].numpy()
    chosen = np.flatnonzero(after > 1.01 if scenario.startswith("payload") else after > 0)[:applications]
    played = play(environment, episodes, STEPS - 1, acting_of(environment, make(RULE, {})))
    names = [signal.name for signal in SIGNALS]
    found: Json = {"drift": [], "by": [], "reward": [], "cpu": [float(after[k]) for k in chosen]}
    for place in chosen:
        seen = pd.DataFrame(played.observations[:, place].astype(np.float64), columns=names)
        minutes, feature = _drift_delay(seen[list(AutoscalingObserver().measured)])
        found["drift"].append(minutes)
        found["by"].append(feature)
        found["reward"].append(_reward_delay(played.series["reward"][:, place].astype(np.float64)))
    return found


def _loads() -> np.ndarray:
    """(TRACES, TRACE_MINUTES) with mean 1."""
    from scipy.signal import lfilter

    noise = np.random.default_rng(SEED).normal(size=(TRACES, 1000 + TRACE_MINUTES)) * np.sqrt(1 - MEMORY**2)
    shapes = np.exp(SPREAD * lfilter([1.0], [1.0, -MEMORY], noise, axis=1)[:, 1000:])
    return np.asarray(shapes / shapes.mean(axis=1, keepdims=True))


def _drift_delay(frame: pd.DataFrame) -> tuple[float | None, str]:
    """And the feature that showed it."""
    known = references(frame.iloc[WARM_UP:TRAINING], tuple(frame))
    for look, end in enumerate(range(TRAINING + WINDOWS[0], len(frame) + 1, WINDOWS[0]), start=1):
        tested = drifts(known, frame.iloc[max(TRAINING, end - WINDOWS[-1]):end])
        if tested and tested[0].chance <= level_of(look, 1, 2):
            return (end - CHANGE) * STEP_S / 60.0, tested[0].feature
    return None, ""


def _reward_delay(rewards: np.ndarray) -> float | None:
    """Of Algorithm 5.1, from SERVING on."""
    from models.control.training.lifecycle import EpisodeEnded, Profile, Stage, State, advance

    def sums(begin: int, end: int) -> np.ndarray:
        return rewards[begin:begin + (end - begin) // EPISODE * EPISODE].reshape(-1, EPISODE).sum(axis=1)

    trained = sums(WARM_UP, TRAINING)
    profile = Profile(t_serving=(1 - DEGRADATION) * float(trained.mean()), t_var=max(2 * float(trained.std()), 1e-3),
                      largest_reward=2.0 * EPISODE, episodes=EPISODES, steps=EPISODE)
    state = State(stage=Stage.SERVING)
    for episode, reward in enumerate(sums(TRAINING, len(rewards))):
        state, moved = advance(state, EpisodeEnded(episode, float(reward), "policy"), profile)
        if moved is not None:
            return (TRAINING + (episode + 1) * EPISODE - CHANGE) * STEP_S / 60.0
    return None
