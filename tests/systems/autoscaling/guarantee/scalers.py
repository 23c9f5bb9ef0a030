"""Small policies that set replicas and a CPU limit: what they see is (load, limit, replicas, used cores, latency)."""

import numpy as np

from models.verification.checker.chain import Chain
from systems.autoscaling.guarantee.catching_up import PARTS, Scaler, ScalerLaw


def growing(replicas: float, limit: float = 1.0) -> Chain:
    """Multiplies replicas and limit by these factors, whatever it sees."""
    weights = np.zeros((2, len(PARTS)))
    weights[0, PARTS.index("limit")], weights[1, PARTS.index("replicas")] = limit, replicas
    return Chain((weights,), (np.zeros(2),), ())


def hpa(aim: float = 0.7, most: float = 2.0) -> Chain:
    """Replicas k' = max(k, min(most k, used / aim)), limits kept; a limit is 1."""
    of = {name: np.eye(len(PARTS))[PARTS.index(name)] for name in PARTS}
    # excess = relu(used / aim - k); capped = relu((most - 1) k - excess); k' = k + (most - 1) k - capped
    first = np.stack([of["used"] / aim - of["replicas"], of["replicas"], of["limit"]])
    second = np.array([[-1.0, most - 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    third = np.array([[0.0, 0.0, 1.0], [-1.0, most, 0.0]])
    return Chain((first, second, third), (np.zeros(3), np.zeros(3), np.zeros(2)), ("relu", "relu"))


def scaler(policy: Chain) -> Scaler:
    """It sees what is, exactly."""
    return Scaler(policy, np.eye(len(PARTS)), np.zeros(len(PARTS)), np.zeros(len(PARTS)), limit=0, replicas=1)


def law(change: float = 0.02, limits: tuple[float, float] = (0.5, 2.0), replicas: tuple[int, int] = (2, 8)
        ) -> ScalerLaw:
    """Loads from 1 to 3 cores; half of what runs may go in a step."""
    return ScalerLaw(15.0, 1.0, 3.0, change, *limits, *replicas, objective_ms=15.0, kept_share=0.5)
