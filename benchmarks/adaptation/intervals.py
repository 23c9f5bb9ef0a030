"""Student's interval of a mean over seeds or splits, as the tables of adaptation print it."""

import numpy as np
from scipy.stats import t


def with_interval(values: np.ndarray, digits: int) -> str:
    """Mean with its sign, and the ends of its 95 % interval where there are several values."""
    mean = values.mean()
    if len(values) < 2:
        return f"{mean:+.{digits}f}"
    reach = _reach(values)
    return f"{mean:+.{digits}f} ({mean - reach:+.{digits}f} to {mean + reach:+.{digits}f})"


def difference(of_seed: np.ndarray) -> str:
    """The same of paired differences, which says so where the interval holds 0."""
    clear = len(of_seed) < 2 or abs(of_seed.mean()) > _reach(of_seed)
    return with_interval(of_seed, 3) + ("" if clear else ", not clear of 0")


def joined(values: np.ndarray) -> str:
    """An error for each number of runs."""
    return " / ".join(f"{value:.3f}" for value in values)


def _reach(values: np.ndarray) -> float:
    return float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
