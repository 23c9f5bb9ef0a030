"""Any environment of the contract as a `gymnasium.Env` (one application) or a `gymnasium.vector.VectorEnv` (N of them).

For the libraries of others: a reinforcement learner that knows gymnasium trains on every control task of this project
whose applications act alone.
An episode ends by truncation after `steps` steps, for all N at once; nothing terminates it earlier. A reset draws new
episodes from the wrapper's own generator: `reset(seed=s)` makes all that follows the same to the bit.

Symbols: N applications, n signals, f features, m controls; observations and actions are float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor

from feature_store.errors import InputError
from models.control.contract.environment import Environment, Outcome, agents_of
from models.control.contract.signals import feature_matrix
from models.control.simulation.scaling import Scaling

Observations = NDArray[np.float32]
Info = dict[str, Any]
_LARGEST_SEED = 2**31 - 1


@dataclass(frozen=True)
class Interface:
    """What an agent sees, sets and is rewarded for.

    Attributes:
        observations: signals: (n) in raw units; features: (f) scaled, and each mapped from its range onto [-1, 1].
        actions: changes: (m) in [-1, 1], from the largest cut of the present value over none to the largest raise
            (`Control.most_down`, `most_up`; of whole numbers at least one); targets: (m) in raw units.
        reward: paper: the task's own; cost: -cost - violation_weight * violation.
        violation_weight: cost that one unit of violation is worth, >= 0.
    """

    observations: Literal["signals", "features"] = "features"
    actions: Literal["changes", "targets"] = "changes"
    reward: Literal["paper", "cost"] = "paper"
    violation_weight: float = 1.0


@dataclass(frozen=True)
class Episodes:
    """Which episodes are drawn; see `Environment.draw`.

    Attributes:
        split: train or held_out.
        steps: until truncation; None: the environment's own number.
        scenario: one of the environment's.
        applications: (N,) their numbers; None: drawn anew at each reset.
    """

    split: str = "train"
    steps: int | None = None
    scenario: str = ""
    applications: Sequence[int] | None = None


class ApplicationEnv(gymnasium.Env[Observations, Observations]):
    """One application of an environment."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self, environment: Environment, interface: Interface = Interface(), episodes: Episodes = Episodes(),
    ) -> None:
        self._batch = _Batch(environment, interface, episodes, 1)
        self.observation_space, self.action_space = self._batch.observation_space, self._batch.action_space

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Info]:
        """Draws an episode.

        Args:
            seed: of this episode and of all later ones.
            options: may hold `scenario` and `applications` of this episode alone.

        Returns:
            (n) or (f) the observation, nothing.
        """
        super().reset(seed=seed)
        return self._batch.reset(self.np_random, options)[0], {}

    def step(self, action: Observations) -> tuple[Observations, float, bool, bool, Info]:
        """Lets `Environment.step_seconds` pass.

        Args:
            action: (m) see `Interface.actions`.

        Returns:
            Observation, reward, terminated (never), truncated, and a dictionary of cost, violation, violated and
            `measures`.
        """
        observation, outcome = self._batch.step(np.asarray(action, dtype=np.float32)[None])
        info = {name: value.item() for name, value in _figures(outcome).items()}
        info["measures"] = {name: float(value) for name, value in outcome.measures.items()}
        return observation[0], float(self._batch.reward(outcome)[0]), False, self._batch.is_over, info


class ApplicationsEnv(gymnasium.vector.VectorEnv[Observations, Observations, NDArray[Any]]):
    """N applications of an environment, stepped as one tensor operation.

    All end at the same step, so that all are reset together, as `autoreset_mode` says (gymnasium's documentation of it:
    https://farama.org/Vector-Autoreset-Mode).
    """

    def __init__(
        self,
        environment: Environment,
        num_envs: int = 1,
        interface: Interface = Interface(),
        episodes: Episodes = Episodes(),
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.num_envs, self._mode = num_envs, autoreset_mode
        self.metadata = {"render_modes": [], "autoreset_mode": autoreset_mode}
        self._batch = _Batch(environment, interface, episodes, num_envs)
        self.single_observation_space, self.single_action_space = (
            self._batch.observation_space, self._batch.action_space)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Info]:
        """Draws N episodes; see `ApplicationEnv.reset`.

        Raises:
            InputError: `reset_mask` among the options leaves some of the applications out.
        """
        super().reset(seed=seed)
        mask = (options or {}).get("reset_mask")
        if mask is not None and not np.all(mask):
            raise InputError(f"reset_mask: expected all {self.num_envs} applications, which end together, "
                             f"got {np.count_nonzero(mask)}; reset all of them")
        return self._batch.reset(self.np_random, options), {}

    def step(self, actions: Observations) -> tuple[Observations, NDArray[Any], NDArray[Any], NDArray[Any], Info]:
        """Steps all applications; see `ApplicationEnv.step`.

        Args:
            actions: (N, m); ignored by the step that resets (`AutoresetMode.NEXT_STEP`).

        Returns:
            (N, n or f) observations, (N,) rewards, (N,) terminated, (N,) truncated, and a dictionary of (N,) arrays.
            With `AutoresetMode.SAME_STEP` the last ones of an episode are `final_obs` and `final_info`.

        Raises:
            InputError: the episodes have ended, and the mode leaves it to the caller to reset them.
        """
        never = np.zeros(self.num_envs, dtype=np.bool_)
        if self._batch.is_over:
            if self._mode is not AutoresetMode.NEXT_STEP:
                raise InputError(f"expected a reset after the last of {self._batch.steps} steps, got another step")
            return self._batch.reset(self.np_random, None), np.zeros(self.num_envs), never, never.copy(), {}
        observations, outcome = self._batch.step(np.asarray(actions, dtype=np.float32))
        truncated = np.full(self.num_envs, self._batch.is_over)
        measures = {name: _array(value) for name, value in outcome.measures.items()}
        info = self._with_masks({**_figures(outcome), "measures": self._with_masks(measures)})
        if self._batch.is_over and self._mode is AutoresetMode.SAME_STEP:
            final = np.empty(self.num_envs, dtype=object)
            final[:] = list(observations)
            info = self._with_masks({"final_obs": final, "final_info": info})
            observations = self._batch.reset(self.np_random, None)
        return observations, self._batch.reward(outcome), never, truncated, info

    def _with_masks(self, info: Mapping[str, Any]) -> Info:
        """Gymnasium's vector form: beside each entry, `_name` says which applications have it; here, all."""
        return {**info, **{f"_{name}": np.ones(self.num_envs, dtype=np.bool_) for name in info}}


class _Batch:
    """N applications between numpy and the environment; what both wrappers share."""

    def __init__(self, environment: Environment, interface: Interface, episodes: Episodes, count: int) -> None:
        if (agents := agents_of(environment)) > 1:
            raise InputError("environment: expected an environment whose applications act alone, got groups of "
                             f"{agents}")
        self._environment, self._interface, self._episodes, self._count = environment, interface, episodes, count
        self.steps = environment.steps if episodes.steps is None else episodes.steps
        self._passed = self.steps
        self._scaling = Scaling(environment.signals)
        self._matrix = torch.tensor(feature_matrix(environment.features, environment.signals), dtype=torch.float32)
        low, high = (torch.tensor([getattr(signal, end) for signal in environment.signals], dtype=torch.float32)
                     for end in ("low", "high"))
        self._middle, self._half = _feature_range(self._matrix, self._scaling(low), self._scaling(high))
        controls = environment.controls
        self._low = torch.tensor([control.low for control in controls])
        self._high = torch.tensor([control.high for control in controls])
        self._most_down = torch.tensor([control.most_down for control in controls])
        self._most_up = torch.tensor([control.most_up for control in controls])
        self._least = torch.tensor([float(control.whole) for control in controls])
        self._current = [self._scaling.column(control.current) for control in controls]
        self.observation_space = (Box(low.numpy(), high.numpy()) if interface.observations == "signals"
                                  else Box(-1.0, 1.0, (len(environment.features),)))
        self.action_space = (Box(self._low.numpy(), self._high.numpy()) if interface.actions == "targets"
                             else Box(-1.0, 1.0, (len(controls),)))

    @property
    def is_over(self) -> bool:
        """Whether the episodes have no step left, or none has begun."""
        return self._passed >= self.steps

    def reset(self, rng: np.random.Generator, options: Mapping[str, Any] | None) -> Observations:
        options = options or {}
        with torch.no_grad():
            drawn = self._environment.draw(
                self._episodes.split, self._count, self.steps + 1, int(rng.integers(_LARGEST_SEED)),
                options.get("scenario", self._episodes.scenario),
                options.get("applications", self._episodes.applications))
            self._state, self._passed = self._environment.reset(drawn), 0
            return self._observe()

    def step(self, actions: Observations) -> tuple[Observations, Outcome]:
        if self.is_over:
            raise InputError(f"expected a reset before the first and after the last of {self.steps} steps, "
                             "got another step")
        with torch.no_grad():
            self._state, outcome = self._environment.step(self._state, self._targets(torch.from_numpy(actions)))
            self._passed += 1
            return self._observe(), outcome

    def reward(self, outcome: Outcome) -> NDArray[np.float64]:
        """(N,) what the interface pays."""
        reward = (outcome.reward if self._interface.reward == "paper"
                  else -outcome.cost - self._interface.violation_weight * outcome.violation)
        return _array(reward)

    def _observe(self) -> Observations:
        self._raw = self._environment.observe(self._state)
        if self._interface.observations == "signals":
            return self._raw.numpy().copy()
        features = (self._scaling(self._raw) @ self._matrix.T - self._middle) / self._half
        return features.clamp(-1.0, 1.0).numpy()  # one rounding may step over the end of the box

    def _targets(self, actions: Tensor) -> Tensor:
        """(N, m) raw targets of actions."""
        if self._interface.actions == "targets":
            return actions
        current = self._raw[:, self._current]
        up, down = ((current * share).maximum(self._least) for share in (self._most_up, self._most_down))
        return (current + torch.where(actions > 0, actions * up, actions * down)).maximum(self._low).minimum(self._high)


def _feature_range(matrix: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """(f,) middle and (f,) half of the range of each feature, for signals anywhere in their own ranges."""
    half = matrix.abs() @ ((high - low) / 2)
    return matrix @ ((low + high) / 2), torch.where(half > 0, half, 1.0)


def _figures(outcome: Outcome) -> dict[str, NDArray[Any]]:
    """(N,) each: what the info of a step says beside the measures."""
    return {"cost": _array(outcome.cost), "violation": _array(outcome.violation),
            "violated": _array(outcome.violated) > 0}


def _array(values: Tensor) -> NDArray[np.float64]:
    """A copy: what an agent is given must not change with the next step."""
    return values.numpy().astype(np.float64)
