"""What a policy is told beyond the present observation: the one thing in which a generic policy and its rivals differ.

    Nothing      the generic policy
    Window       features of earlier steps
    Hidden       the application's true parameters: an oracle, what identification can earn at most
    Coming       the true load of the next steps: a clairvoyant, what forecasting can earn at most
    Given        numbers that stay for an episode: an embedding (thesis, section 5.3.2), identified parameters, a table
    Forecast     the load of the next step by an autoregression (TL+ of section 5.5.2)
    Joined       several of them

Symbols: N episodes side by side, n signals, f features, e further inputs, each within -reach and reach.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from models.control.adaptation.load_forecast import Autoregression
from models.control.contract.environment import Environment
from models.control.contract.signals import feature_matrix
from models.control.simulation.scaling import Scaling


class Inputs(Protocol):
    """Numbers that a policy is told beside an observation, by episode."""

    @property
    def names(self) -> tuple[str, ...]:
        """(e) as the policy's further signals are called."""

    @property
    def reach(self) -> float:
        """Largest absolute value of a number."""

    def start(self, observation: Tensor) -> Any:
        """What is remembered at the first step; observation: (N, n) raw."""

    def __call__(self, environment: Environment, state: Any, observation: Tensor, memory: Any) -> tuple[Tensor, Any]:
        """(N, e) at this step, and what is remembered for the next one."""


class Nothing:
    """No further inputs."""

    names: tuple[str, ...] = ()
    reach = 1.0

    def start(self, observation: Tensor) -> None:
        """Nothing to remember."""

    def __call__(self, environment: Environment, state: Any, observation: Tensor, memory: None) -> tuple[Tensor, None]:
        """(N, 0)."""
        return observation[:, :0], None


class Window:
    """Features of the last `steps` steps before the present one; before the first one, of the first one."""

    reach = 16.0  # the logarithm of the widest range of a signal, 2^20, is 13.9

    def __init__(self, environment: Environment, steps: int) -> None:
        self._scaling = Scaling(environment.signals)
        self._matrix = torch.tensor(feature_matrix(environment.features, environment.signals), dtype=torch.float32)
        self._steps = steps
        self.names = tuple(f"{feature.name}, {ago + 1} before" for ago in range(steps)
                           for feature in environment.features)

    def start(self, observation: Tensor) -> Tensor:
        """(N, steps, f), the latest first."""
        return self._features(observation)[:, None].expand(-1, self._steps, -1)

    def __call__(self, environment: Environment, state: Any, observation: Tensor,
                 memory: Tensor) -> tuple[Tensor, Tensor]:
        """(N, steps f)."""
        following = torch.cat([self._features(observation)[:, None], memory[:, :-1]], dim=1)
        return memory.flatten(1), following

    def _features(self, observation: Tensor) -> Tensor:
        return (self._scaling(observation) @ self._matrix.T).clamp(-self.reach, self.reach)


class Hidden:
    """`Environment.hidden_parameters`."""

    reach = 4.0

    def __init__(self, environment: Environment) -> None:
        self.names = tuple(environment.hidden)

    def start(self, observation: Tensor) -> None:
        """Nothing to remember."""

    def __call__(self, environment: Environment, state: Any, observation: Tensor, memory: None) -> tuple[Tensor, None]:
        """(N, h)."""
        return environment.hidden_parameters(state).clamp(-self.reach, self.reach), None


class Coming:
    """`Environment.coming_load`, of so many numbers as it gives."""

    reach = 4.0

    def __init__(self, steps: int) -> None:
        self.names = tuple(f"load in {ahead} steps" for ahead in range(steps))

    def start(self, observation: Tensor) -> None:
        """Nothing to remember."""

    def __call__(self, environment: Environment, state: Any, observation: Tensor, memory: None) -> tuple[Tensor, None]:
        """(N, n_future)."""
        return environment.coming_load(state).clamp(-self.reach, self.reach), None


class Given:
    """Numbers that stay for an episode.

    Args:
        values: (N, e).
        prefix: of the names.
        reach: largest absolute value; beyond it they are cut.
    """

    def __init__(self, values: Tensor, prefix: str = "embedding", reach: float = 1.0) -> None:
        self.values, self.reach = values.clamp(-reach, reach), reach
        self.names = tuple(f"{prefix} {position}" for position in range(values.shape[1]))

    def start(self, observation: Tensor) -> None:
        """Nothing to remember."""

    def __call__(self, environment: Environment, state: Any, observation: Tensor, memory: None) -> tuple[Tensor, None]:
        """(N, e)."""
        return self.values, None


class Forecast:
    """The logarithm of the next step's load over the present one, as an autoregression of the observed rate says."""

    names: tuple[str, ...] = ("forecast load",)
    reach = 3.0

    def __init__(self, environment: Environment, model: Autoregression, signal: str = "rate_rps") -> None:
        self._column = [one.name for one in environment.signals].index(signal)
        self._model = model

    def start(self, observation: Tensor) -> Tensor:
        """(N, p + 1) logarithms of the rate, the latest last."""
        return observation[:, self._column, None].log().expand(-1, self._model.order + 1)

    def __call__(self, environment: Environment, state: Any, observation: Tensor,
                 memory: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 1)."""
        memory = torch.cat([memory[:, 1:], observation[:, self._column, None].log()], dim=1)
        return self._model.change(memory)[:, None].clamp(-self.reach, self.reach), memory


class Joined:
    """Several one after the other, within the widest reach."""

    def __init__(self, parts: Sequence[Inputs]) -> None:
        self.parts = tuple(parts)
        self.names = tuple(name for part in parts for name in part.names)
        self.reach = max(part.reach for part in parts)

    def start(self, observation: Tensor) -> tuple[Any, ...]:
        """One memory each."""
        return tuple(part.start(observation) for part in self.parts)

    def __call__(self, environment: Environment, state: Any, observation: Tensor,
                 memory: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
        """(N, e), all of them."""
        found = [part(environment, state, observation, own) for part, own in zip(self.parts, memory, strict=True)]
        return torch.cat([values for values, _ in found], dim=1), tuple(own for _, own in found)
