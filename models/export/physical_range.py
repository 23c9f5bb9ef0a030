"""A predictor's answers held within what its target can be, by construction: the last nodes of its file.

The network is trained without them: whatever was measured lies within the range, so that holding an answer within it
never takes it further from what was measured, while a ReLU behind the last layer would stop the gradient of just those
rows whose answers are impossible. What is judged, proved and shipped has them.

They stand last and in raw units, for a constant and a ReLU never add up to less than the constant, rounding included
(`kept_limits` in models/verification/checker/rounding.py), which a scaling behind them would undo.

Symbols: y the answer; m and M the ends of the range, M - m = w:
    max(y, m) = m + relu(y - m);  min(y, M) = M - relu(M - y);  both: m + relu(w - relu(M - y)).
"""

import numpy as np

from feature_store.errors import InputError
from feature_store.scaling import MinMaxScaling
from models.verification.network.fully_connected import ReluNetwork

# Least and largest value that the target can be; None: no end on that side.
Range = tuple[float | None, float | None]
UNBOUNDED: Range = (None, None)
# The file's ends lie so far within the range, as a share of what training saw: far more than the proof's own bounds are
# rounded by, far less than anybody reads.
ROOM = 1e-7


def range_layers(ends: Range, span: float) -> list[tuple[float, float]]:
    """(factor 1 or -1, shift) of each layer, one after the other with a ReLU between two: y held within the range.

    The shifts are numbers of float32, a little within the range. span: largest minus smallest target that training saw,
    in the same unit. Empty where there is no range. Raises InputError where it holds no such number.
    """
    low, high = (None if end is None else _float32(end + side * ROOM * span, side * np.inf)
                 for end, side in zip(ends, (1, -1), strict=True))
    if low is not None and high is not None:
        if low >= high:
            raise InputError(f"range of a target must hold several numbers of float32, got {ends}")
        width = _float32(high - low, -np.inf)
        return [(-1.0, high), (-1.0, width), (1.0, low)]
    if low is not None:
        return [(1.0, -low), (1.0, low)]
    return [] if high is None else [(-1.0, high), (-1.0, high)]


def held_within(network: ReluNetwork, ends: Range, target: MinMaxScaling) -> ReluNetwork:
    """The network in scaled coordinates with the same layers: what its file computes. ends: raw units."""
    base, span = target.minimum[0], target.maximum[0] - target.minimum[0]
    low, high = (None if end is None else (end - base) / span for end in ends)
    layers = range_layers((low, high), 1.0)
    if not layers:
        return network
    (factor, shift), *later = layers
    first = np.float32(factor)
    return ReluNetwork(
        (*network.weights[:-1], network.weights[-1] * first, *(np.full((1, 1), f, np.float32) for f, _ in later)),
        (*network.biases[:-1], network.biases[-1] * first + np.float32(shift),
         *(np.full(1, s, np.float32) for _, s in later)))


def _float32(value: float, inwards: float) -> float:
    """The number of float32 next to the value on the side of `inwards`, infinity or minus it; itself if it is one."""
    near = np.float32(value)
    beyond = float(near) < value if inwards > 0 else float(near) > value
    return float(np.nextafter(near, np.float32(inwards)) if beyond else near)
