"""The contract of a controller: raw observations in, raw targets out, for one application or thousands.

Written in numpy alone, so that it also runs where there is no torch: rules are the fallback of a learned policy in
serving. (Tensors on the CPU share their memory with numpy arrays.)

Symbols: N applications, n signals, m controls; float64 or float32 arrays.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from models.control.contract.setting import Setting, Value

Array = NDArray[np.floating[Any]]


class Controller(Protocol):
    """Acts on N applications, which do not know of each other."""

    @property
    def name(self) -> str:
        """As tables and ledgers name it."""

    @property
    def settings(self) -> Mapping[str, float | str]:
        """All that it takes to make it again: a bundle names its fallback by `name` and these."""

    def start(self, applications: int) -> None:
        """Forgets everything; what follows concerns that many applications."""

    def act(self, observation: Mapping[str, Array], seconds: float) -> dict[str, Array]:
        """Targets from what is observed now.

        Args:
            observation: signal -> (N,) in raw units; NaN is a missing metric.
            seconds: since `start`; never falls.

        Returns:
            control -> (N,) in raw units, finite whatever was observed.
        """


class RuleFamily(Protocol):
    """Controllers without a network that differ in their settings: a baseline, and what a policy falls back to."""

    @property
    def declared(self) -> Sequence[Setting]:
        """What can be set, with defaults and what tuning tries."""

    def make(self, settings: Mapping[str, Value]) -> Controller:
        """The controller of these settings, each one value or one for each application.

        Raises:
            InputError: a setting is unknown or out of range.
        """
