"""Aurora as published: PPO with PCC-RL's settings (its training script) in its simulator, by Stable-Baselines3.

The settings that PCC-RL leaves to Stable-Baselines are those of its PPO1: entropy 0.01, lambda 0.95, clip 0.2, four
epochs, Adam with 1e-3. It decides once in half of a mean round trip, as it was trained.
"""

import contextlib
import random
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from feature_store.errors import MissingToolError
from systems.congestion.benchmarks.pcc_rl import Connection

STEPS = 6 * 1600 * 410
SIMULATORS = 8  # side by side, so that one pass through the network decides for all
_KEPT = 8 * 8192  # steps between two writings of the file


def trained(module: Any, file: Path, steps: int) -> Any:
    """The model of this file, trained on there until it has seen so many steps.

    Raises:
        MissingToolError: Stable-Baselines3 is not installed.
    """
    try:
        from stable_baselines3 import PPO
        from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor
        from torch.nn import Tanh
    except ModuleNotFoundError:
        raise MissingToolError("Stable-Baselines3 is not installed; pip install -e '.[peers]'") from None
    class Simulator(module.SimulatedNetworkEnv, gymnasium.Env):  # type: ignore[misc, name-defined]
        """With gymnasium's signatures, and neither prints nor files."""

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            with contextlib.redirect_stdout(None):
                return super().reset().astype(np.float32), {}

        def step(self, actions: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            row, reward, done, known = super().step(actions)
            return row.astype(np.float32), reward, False, done, known

        def dump_events_to_file(self, filename: str) -> None:
            """Nothing."""

    with contextlib.redirect_stdout(None):
        simulators = VecMonitor(DummyVecEnv([Simulator] * SIMULATORS))
    if file.exists():
        model = PPO.load(file, simulators, device="cpu")
    else:
        model = PPO("MlpPolicy", simulators, n_steps=8192 // SIMULATORS, batch_size=2048, n_epochs=4,
                    learning_rate=1e-3, ent_coef=0.01, seed=0, device="cpu",
                    policy_kwargs={"net_arch": {"pi": [32, 16], "vf": [32, 16]}, "activation_fn": Tanh})
    while model.num_timesteps < steps:
        random.seed(model.num_timesteps)
        model.learn(min(_KEPT, steps - model.num_timesteps), reset_num_timesteps=False)
        earned = np.mean([one["r"] / one["l"] for one in model.ep_info_buffer])
        print(f"Aurora: {model.num_timesteps:,} of {steps:,} steps, reward {earned:.2f} an interval", flush=True)
        model.save(temporary := file.with_name(f"{file.stem}.next.zip"))
        temporary.replace(file)
    return model


def rewards(module: Any, model: Any, count: int, steps: int, warm_up: int, seed: int) -> np.ndarray:
    """(N,) mean reward of each connection, on the links of `pcc_rl.rewards`."""
    random.seed(seed)
    connections = [Connection(module) for _ in range(count)]
    random.seed(seed + 1)
    total = np.zeros(count)
    seconds = [one.seconds for one in connections]
    for step in range(steps):
        rows = np.array([np.array(one.sender.get_obs()).reshape(-1) for one in connections], dtype=np.float32)
        actions, _ = model.predict(rows, deterministic=True)
        for place, one in enumerate(connections):
            one.sender.apply_rate_delta(float(actions[place, 0]))
            reward = float(one.network.run_for_dur(seconds[place]))
            one.sender.record_run()
            if (trip := float(one.sender.get_run_data().get("avg latency"))) > 0:
                seconds[place] = 0.5 * trip
            total[place] += reward * (step >= warm_up)
    return total / (steps - warm_up)
