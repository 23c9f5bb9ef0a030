"""Trains one way until it earns the goal or its time is over, in a process of its own; prints its curve as JSON.

    python -m systems.autoscaling.benchmarks.time_to_reward_child WAY SEED SECONDS GOAL DEVICE

One thread; on the CPU seconds of CPU time, on another device (cuda) of the clock, less those of the measurements. The
ways of Stable-Baselines3 import nothing that its interpreter lacks, and run on the CPU alone.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded

import torch

from models.control.simulation.rollout import WARM_UP_STEPS
from systems.autoscaling.simulator.simulator import Autoscaling

MEASURED = 256  # applications
MEASURING_SEED = 8_800_000


class Over(Exception):
    """The goal is reached, or time is over."""


class Clock:
    """The curve of one training."""

    def __init__(self, seconds: float, goal: float, device: str) -> None:
        self.curve: list[dict[str, float]] = []
        self.device, self._seconds, self._goal = device, seconds, goal
        self._started, self._measuring = self._now(), 0.0

    def _now(self) -> float:
        if self.device == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    def measured(self, steps: int, reward_of: Callable[[], float]) -> None:
        """Measures a policy; its time does not count. Raises Over."""
        now = self._now()
        seconds = now - self._started - self._measuring
        reward = reward_of()
        self._measuring += self._now() - now
        self.curve.append({"seconds": round(seconds, 3), "steps": steps, "reward": round(reward, 5)})
        if reward >= self._goal or seconds > self._seconds:
            raise Over


def ours(environment: Autoscaling, name: str, seed: int, clock: Clock) -> None:
    """A method of models/control/training with its defaults; measured every second episode."""
    from models.control.training import training_run
    from models.control.training.methods import method
    from models.control.training.objective import ObjectiveSettings

    learned, every = method(name), 5 if name == "ddpg" else 2
    settings = learned.settings(episodes=100_000, objective=ObjectiveSettings(kind="reward"), validate_every=every,
                                validation_applications=MEASURED)
    measure = training_run.evaluate

    def evaluate(environment: Any, controller: Any, split: str, count: int, seed: int) -> Any:
        found: list[Any] = []

        def reward() -> float:
            found.append(measure(environment, controller, split, count, MEASURING_SEED))
            return float(found[0].reward)

        clock.measured(settings.applications * environment.steps * every * (len(clock.curve) + 1), reward)
        return found[0]

    training_run.evaluate = evaluate  # type: ignore[assignment]  # the run's own measurement is this one
    try:
        learned.train(environment, settings, seed)
    finally:
        training_run.evaluate = measure


def through_environment(environment: Autoscaling, seed: int, clock: Clock) -> None:
    """Gradients through the environment, with the defaults of its training; measured after each round."""
    from models.control.policy.policy import PolicyShape
    from models.control.training.through_environment import Settings, ThroughEnvironment
    from models.control.training.training_run import evaluate

    settings = Settings(objective="reward", applications=256, rounds=100_000, judged_every=100_000,
                        judged_applications=1)

    def measured(event: Any) -> None:
        policy = run.state.policy.member(0)
        clock.measured(settings.applications * environment.steps * event["round"],
                       lambda: float(evaluate(environment, policy, "train", MEASURED, MEASURING_SEED).reward))

    shape = PolicyShape(environment.signals, environment.controls, environment.features, anchors=environment.anchors)
    run = ThroughEnvironment(environment.differentiable, environment, shape, settings, [seed], [0.5],
                             on_progress=measured)
    run.run()


def peer(environment: Autoscaling, way: str, seed: int, clock: Clock) -> None:
    """Stable-Baselines3; measured after each of its rollouts, or every 2,000 steps of SAC."""
    from stable_baselines3 import PPO, SAC
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecNormalize

    from models.control.simulation.gymnasium_wrappers import Episodes
    from systems.autoscaling.benchmarks.stable_baselines import AllAtOnce, one_by_one

    judged = AllAtOnce(environment, MEASURED, episodes=Episodes("train", WARM_UP_STEPS + environment.steps))
    if way == "peer_ppo":
        acting = VecNormalize(AllAtOnce(environment, 256), norm_reward=False)
        model: Any = PPO("MlpPolicy", acting, learning_rate=2e-3, n_steps=environment.steps, batch_size=1600,
                         n_epochs=5, gamma=0.9, gae_lambda=0.9, seed=seed, device="cpu",
                         policy_kwargs={"activation_fn": torch.nn.ReLU, "log_std_init": math.log(0.6)})
        every = 2 * 256 * environment.steps
    else:
        acting = one_by_one(environment, 8)
        model = (PPO if way == "peer_ppo_defaults" else SAC)("MlpPolicy", acting, seed=seed, device="cpu")
        every = 2048 * 8 if way == "peer_ppo_defaults" else 2000

    def reward() -> float:
        judged.seed(MEASURING_SEED)
        observation, total = judged.reset(), 0.0
        for step in range(WARM_UP_STEPS + environment.steps):
            seen = acting.normalize_obs(observation) if isinstance(acting, VecNormalize) else observation
            action, _ = model.predict(seen, deterministic=True)
            observation, rewards, _, _ = judged.step(action)
            total += float(rewards.mean()) * (step >= WARM_UP_STEPS)
        return total / environment.steps

    class Watch(BaseCallback):
        due = every

        def _on_step(self) -> bool:
            if self.num_timesteps >= self.due:
                self.due += every
                clock.measured(self.num_timesteps, reward)
            return True

    model.learn(10**9, callback=Watch())


def train(environment: Autoscaling, way: str, seed: int, clock: Clock) -> None:
    """Raises Over at its end."""
    if way == "through_environment":
        through_environment(environment, seed, clock)
    else:
        (peer if way.startswith("peer_") else ours)(environment, way, seed, clock)


def main(way: str, seed: int, seconds: float, goal: float, device: str) -> None:
    torch.set_num_threads(1)
    environment = Autoscaling().on(device)
    clock = Clock(seconds, goal, device)
    with torch.device(device), suppress(Over):
        train(environment, way, seed, clock)
    print(json.dumps(clock.curve))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
