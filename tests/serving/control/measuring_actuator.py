"""An actuator that measures by itself: a simulated application that it was made of, by its number."""

from typing import Any

from serving.actuators.kind import ActuatorKind
from tests.serving.control.world import World

MADE: list[World] = []


def _make(seed: int, contract: Any, held: Any) -> World:
    MADE.append(World(seed, interval_s=0.01))
    return MADE[-1]


ACTUATOR = ActuatorKind("world", "say which application", lambda part: part.whole("seed", 3), _make, keeps=False,
                        measures=True)
