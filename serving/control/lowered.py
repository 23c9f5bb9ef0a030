"""Since when a control was not lowered, by whoever: what the cool-down asks for."""

from collections.abc import Mapping

EXACT = 1e-6  # share by which a network that keeps a value may miss it
ROUNDED = 1e-3  # share by which what is set may be read back as less


def lowered(ago_s: Mapping[str, float], before: Mapping[str, float], now: Mapping[str, float],
            share: float = EXACT) -> dict[str, float]:
    """Control -> seconds since it was lowered; 0 for those that now are less than before by more than a share.

    Args:
        ago_s: as it was.
        before, now: control -> value; what is missing or NaN in one of them was not lowered.
    """
    return {**ago_s, **{name: 0.0 for name, value in now.items() if name in before
                        and value < before[name] * (1.0 - share)}}
