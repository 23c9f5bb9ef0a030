"""Times one way of stepping the autoscaling environment, in a process of its own; prints JSON.

    python -m benchmarks.autoscaling.speed_child WAY SECONDS RUNS APPLICATIONS...

One thread; seconds of CPU time, so that work beside it does not count.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded

import torch

from models.environments.autoscaling.simulator import Autoscaling

STEPS = 100  # of an episode
_WARM_UP = 5

Step = Callable[[], object]


def eager(environment: Autoscaling, count: int) -> Step:
    """Step and observation, as a learner takes them; targets change from step to step."""
    return _steps(environment, count, environment.step)


def compiled(environment: Autoscaling, count: int) -> Step:
    """The same, compiled by torch."""
    return _steps(environment, count, torch.compile(environment.step))


def gymnasium_vector(environment: Autoscaling, count: int) -> Step:
    """ApplicationsEnv: numpy in and out, resets included."""
    from models.environments.gymnasium_wrappers import ApplicationsEnv

    env = ApplicationsEnv(environment, count)
    env.reset(seed=0)
    actions = torch.rand(count, 3).mul(2).sub(1).numpy()
    return lambda: env.step(actions)


def stable_baselines_wrapper(environment: Autoscaling, count: int) -> Step:
    """Stable-Baselines3's DummyVecEnv over single environments."""
    from benchmarks.autoscaling.stable_baselines import one_by_one

    return _stable_baselines(one_by_one(environment, count), count)


def stable_baselines_over_ours(environment: Autoscaling, count: int) -> Step:
    """Stable-Baselines3's interface over our environment of many."""
    from benchmarks.autoscaling.stable_baselines import AllAtOnce

    return _stable_baselines(AllAtOnce(environment, count), count)


WAYS: dict[str, Callable[[Autoscaling, int], Step]] = {
    "eager": eager, "compiled": compiled, "gymnasium_vector": gymnasium_vector,
    "stable_baselines_wrapper": stable_baselines_wrapper, "stable_baselines_over_ours": stable_baselines_over_ours}


def measure(way: str, seconds: float, runs: int, counts: list[int]) -> list[dict[str, Any]]:
    """Steps of single applications a second of CPU time: `runs` values for each number of applications."""
    torch.set_num_threads(1)
    environment = Autoscaling(steps=STEPS)
    rows = []
    for count in counts:
        with torch.no_grad():
            step = WAYS[way](environment, count)
            for _ in range(_WARM_UP):
                step()
            values = [count / _seconds_a_step(step, seconds) for _ in range(runs)]
        rows.append({"applications": count, "steps_per_s": values, "median": statistics.median(values)})
    return rows


def _seconds_a_step(step: Step, seconds: float) -> float:
    began, steps = time.process_time(), 0
    while True:
        step()
        steps += 1
        passed = time.process_time() - began
        if passed >= seconds:
            return passed / steps


def _steps(environment: Autoscaling, count: int, one_step: Callable[..., Any]) -> Step:
    state = environment.reset(environment.draw("train", count, STEPS, seed=0))
    first = torch.stack([state.limit, state.memory, state.replicas], dim=1)
    targets = [first * (0.8 + 0.4 * torch.rand(count, 3)) for _ in range(8)]
    at, begin = [state], state

    def step() -> object:
        number = at[0].step
        after, outcome = one_step(at[0] if number < STEPS else begin, targets[number % 8])
        at[0] = after
        return environment.observe(after), outcome

    return step


def _stable_baselines(env: Any, count: int) -> Step:
    env.reset()
    actions = torch.rand(count, 3).mul(2).sub(1).numpy()
    return lambda: env.step(actions)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), [int(one) for one in sys.argv[4:]])))
