"""Fronts of violations and resources, and what is saved at equal violations.

A controller is run at several settings (targets of a policy, settings of a rule). Its cost at a share of violating
steps is interpolated between the two settings about it, linear in the logarithms of both, as they are on average over
the applications. The interval of a saving is a bootstrap over applications, the same for both, and over seeds.

Symbols: P settings of one controller, A applications, S seeds; shares in 0 to 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
_LEAST_SHARE = 1e-5


@dataclass(frozen=True)
class Front:
    """One controller at P settings.

    Attributes:
        names: (P,) of the settings.
        figures: name -> (P, A), among them `violated` and `cost`.
    """

    names: tuple[str, ...]
    figures: Mapping[str, Numbers]

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"names": list(self.names), "figures": {name: value.tolist() for name, value in self.figures.items()}}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Front":
        """The reverse of `document`."""
        return cls(tuple(document["names"]),
                   {name: np.array(value) for name, value in document["figures"].items()})

    def at(self, share: float, figure: str = "cost", weights: Numbers | None = None, by: str = "violated") -> float:
        """A figure at that share of violations.

        Args:
            figure: interpolated as the cost is; > 0.
            weights: (A,) how often each application counts; None: once.
            by: how violations are counted: `violated`, of the steps, or `violated_requests`.

        Returns:
            NaN where the share lies outside of the front.
        """
        means = {name: np.average(self.figures[name], axis=1, weights=weights) for name in {by, "cost", figure}}
        order = _efficient(means[by], means["cost"])
        violated = np.log(np.maximum(means[by][order], _LEAST_SHARE))
        if len(order) == 1 or not violated[0] <= np.log(share) <= violated[-1]:
            return float("nan")
        return float(np.exp(np.interp(np.log(share), violated, np.log(np.maximum(means[figure][order], 1e-9)))))


def joined(fronts: Sequence[Front]) -> Front:
    """The settings of several as one."""
    return Front(tuple(name for front in fronts for name in front.names),
                 {name: np.concatenate([front.figures[name] for front in fronts]) for name in fronts[0].figures})


def _efficient(violated: Numbers, cost: Numbers) -> NDArray[np.intp]:
    """Settings that no other beats in both, by rising violations."""
    kept: list[int] = []
    for index in np.lexsort((cost, violated)):
        if not kept or cost[index] < cost[kept[-1]]:
            kept.append(int(index))
    return np.array(kept)


@dataclass(frozen=True)
class Saving:
    """Share saved, with the ends of its 95 % interval."""

    mean: float
    low: float
    high: float


def saving(fronts: Sequence[Front], rule: Front, share: float, figure: str = "cost", resamples: int = 1000,
           seed: int = 0) -> Saving:
    """1 - figure of the policy / figure of the rule at equal violations.

    Args:
        fronts: (S,) of the policies, one for each seed.
        rule: what they are compared with, on the same applications.
    """
    applications = next(iter(rule.figures.values())).shape[1]
    random = np.random.default_rng(seed)
    drawn = []
    for _ in range(resamples):
        weights = np.bincount(random.integers(0, applications, applications), minlength=applications).astype(float)
        own = rule.at(share, figure, weights)
        seeds = random.integers(0, len(fronts), len(fronts))
        drawn.append(1.0 - np.mean([fronts[index].at(share, figure, weights) for index in seeds]) / own)
    mean = 1.0 - np.mean([front.at(share, figure) for front in fronts]) / rule.at(share, figure)
    finite = np.array([value for value in drawn if np.isfinite(value)])
    if len(finite) < 0.95 * resamples:
        return Saving(float(mean), float("nan"), float("nan"))
    return Saving(float(mean), *(float(end) for end in np.quantile(finite, [0.025, 0.975])))


def table_of(front: Front) -> list[dict[str, Any]]:
    """Means over the applications, a row a setting."""
    return [{"setting": name, **{figure: float(values[row].mean()) for figure, values in front.figures.items()}}
            for row, name in enumerate(front.names)]
