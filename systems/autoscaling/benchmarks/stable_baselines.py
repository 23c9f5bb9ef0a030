"""Our environment under Stable-Baselines3: its own wrapper over single ones, and its interface over ours of many.

Imported only where Stable-Baselines3 is installed (the extra `peers`).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from models.control.contract.environment import Environment
from models.control.simulation.gymnasium_wrappers import ApplicationEnv, ApplicationsEnv, Episodes, Interface

Indices = None | int | Iterable[int]


def one_by_one(environment: Environment, count: int, interface: Interface = Interface(),
               episodes: Episodes = Episodes()) -> VecEnv:
    """The wrapper that Stable-Baselines3 uses by default: a Python loop over single environments."""
    return DummyVecEnv([lambda: ApplicationEnv(environment, interface, episodes)] * count)


class AllAtOnce(VecEnv):
    """Many applications as one tensor operation, in Stable-Baselines3's terms."""

    def __init__(self, environment: Environment, count: int, interface: Interface = Interface(),
                 episodes: Episodes = Episodes()) -> None:
        self.render_mode = None
        self._environment = ApplicationsEnv(environment, count, interface, episodes, AutoresetMode.SAME_STEP)
        super().__init__(count, self._environment.single_observation_space, self._environment.single_action_space)

    def reset(self) -> Any:
        observations, _ = self._environment.reset(seed=self._seeds[0])
        self._reset_seeds()
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        observations, rewards, _, truncated, info = self._environment.step(self._actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if truncated[0]:  # all at once
            for one, last in zip(infos, info["final_obs"], strict=True):
                one.update({"terminal_observation": last, "TimeLimit.truncated": True})
        return observations, rewards.astype(np.float32), truncated, infos

    def close(self) -> None:
        self._environment.close()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        return [getattr(self, attr_name)] * len(self._places(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        raise AttributeError(f"{attr_name}: the applications are one environment, whose attributes are not set")

    def env_method(self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
                   ) -> list[Any]:
        raise AttributeError(f"{method_name}: the applications are one environment, without methods of their own")

    def env_is_wrapped(self, wrapper_class: type, indices: Indices = None) -> list[bool]:
        return [False] * len(self._places(indices))

    def _places(self, indices: Indices) -> Sequence[int]:
        if indices is None:
            return range(self.num_envs)
        return [indices] if isinstance(indices, int) else list(indices)
