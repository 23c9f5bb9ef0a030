"""Since when a control did not move away from its safe side, by whoever: what the cool-down asks for."""

from collections.abc import Collection, Mapping

EXACT = 1e-6  # share by which a network that keeps a value may miss it
ROUNDED = 1e-3  # share by which what is set may be read back as something else


def moved_away(ago_s: Mapping[str, float], before: Mapping[str, float], now: Mapping[str, float],
               less: Collection[str] = (), share: float = EXACT) -> dict[str, float]:
    """Control -> seconds since it moved away from its safe side; 0 for those that did so now by more than a share.

    Args:
        ago_s: as it was.
        before, now: control -> value; what is missing or NaN in one of them did not move.
        less: controls whose safe side is less; that of the others is more.
    """
    return {**ago_s, **{name: 0.0 for name, value in now.items() if name in before and (
        value > before[name] * (1.0 + share) if name in less else value < before[name] * (1.0 - share))}}
