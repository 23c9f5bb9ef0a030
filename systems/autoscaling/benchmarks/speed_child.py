"""Times one way of stepping the autoscaling environment, in a process of its own; prints JSON.

    python -m systems.autoscaling.benchmarks.speed_child DEVICE WAY SECONDS RUNS APPLICATIONS...

On the CPU one thread and seconds of CPU time, so that work beside it does not count; on another device (cuda) seconds
of the clock.
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

from systems.autoscaling.simulator.simulator import Autoscaling

STEPS = 100  # of an episode
_WARM_UP = 5

Step = Callable[[], object]


def eager(environment: Autoscaling, count: int) -> Step:
    """Step and observation, as a learner takes them; targets change from step to step."""
    return _steps(environment, count, environment.step)


def compiled(environment: Autoscaling, count: int) -> Step:
    """The same, compiled by torch."""
    return _steps(environment, count, torch.compile(environment.step))


def cuda_graph(environment: Autoscaling, count: int) -> Step:
    """The same, a whole episode recorded once as a CUDA graph and played: every STEPS calls, a whole one."""
    begin, targets = _beginning(environment, count)

    def episode() -> None:
        state = begin
        for number in range(STEPS):
            state, _ = environment.step(state, targets[number % len(targets)])
            environment.observe(state)

    with torch.cuda.stream(torch.cuda.Stream()):
        episode()  # outside of the recording, so that all kernels are loaded
    graph, calls = torch.cuda.CUDAGraph(), [0]
    with torch.cuda.graph(graph):
        episode()

    def step() -> None:
        if calls[0] % STEPS == 0:
            graph.replay()
        calls[0] += 1

    return step


def gymnasium_vector(environment: Autoscaling, count: int) -> Step:
    """ApplicationsEnv: numpy in and out, resets included."""
    from models.control.simulation.gymnasium_wrappers import ApplicationsEnv

    env = ApplicationsEnv(environment, count)
    env.reset(seed=0)
    actions = torch.rand(count, 3).mul(2).sub(1).numpy()
    return lambda: env.step(actions)


def stable_baselines_wrapper(environment: Autoscaling, count: int) -> Step:
    """Stable-Baselines3's DummyVecEnv over single environments."""
    from systems.autoscaling.benchmarks.stable_baselines import one_by_one

    return _stable_baselines(one_by_one(environment, count), count)


def stable_baselines_over_ours(environment: Autoscaling, count: int) -> Step:
    """Stable-Baselines3's interface over our environment of many."""
    from systems.autoscaling.benchmarks.stable_baselines import AllAtOnce

    return _stable_baselines(AllAtOnce(environment, count), count)


WAYS: dict[str, Callable[[Autoscaling, int], Step]] = {
    "eager": eager, "compiled": compiled, "cuda_graph": cuda_graph, "gymnasium_vector": gymnasium_vector,
    "stable_baselines_wrapper": stable_baselines_wrapper, "stable_baselines_over_ours": stable_baselines_over_ours}


def measure(device: str, way: str, seconds: float, runs: int, counts: list[int]) -> list[dict[str, Any]]:
    """Steps of single applications a second: `runs` values for each number of applications."""
    torch.set_num_threads(1)
    environment = Autoscaling(steps=STEPS).on(device)
    seconds_a_step = _cpu_seconds_a_step if device == "cpu" else _seconds_a_step
    rows = []
    for count in counts:
        with torch.no_grad():
            step = WAYS[way](environment, count)
            for _ in range(_WARM_UP if device == "cpu" else STEPS):
                step()
            values = [count / seconds_a_step(step, seconds) for _ in range(runs)]
        rows.append({"applications": count, "steps_per_s": values, "median": statistics.median(values)})
    return rows


def _seconds_a_step(step: Step, seconds: float) -> float:
    """Of the clock; the device is waited for after each episode."""
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while True:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        steps += STEPS
        passed = time.perf_counter() - began
        if passed >= seconds:
            return passed / steps


def _cpu_seconds_a_step(step: Step, seconds: float) -> float:
    began, steps = time.process_time(), 0
    while True:
        step()
        steps += 1
        passed = time.process_time() - began
        if passed >= seconds:
            return passed / steps


def _beginning(environment: Autoscaling, count: int) -> tuple[Any, list[torch.Tensor]]:
    """A first state, and targets that change from step to step."""
    state = environment.reset(environment.draw("train", count, STEPS, seed=0))
    first = torch.stack([state.limit, state.memory, state.replicas], dim=1)
    return state, [first * (0.8 + 0.4 * torch.rand_like(first)) for _ in range(8)]


def _steps(environment: Autoscaling, count: int, one_step: Callable[..., Any]) -> Step:
    begin, targets = _beginning(environment, count)
    at = [begin]

    def step() -> object:
        number = at[0].step
        after, outcome = one_step(at[0] if number < STEPS else begin, targets[number % len(targets)])
        at[0] = after
        return environment.observe(after), outcome

    return step


def _stable_baselines(env: Any, count: int) -> Step:
    env.reset()
    actions = torch.rand(count, 3).mul(2).sub(1).numpy()
    return lambda: env.step(actions)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]),
                             [int(one) for one in sys.argv[5:]])))
