"""The features of TL+ (thesis, section 5.5.2): a forecast of the load, and a table from allocation to performance.

The thesis forecasts by ARIMA. Ours is ARIMA(p, 1, 0): an autoregression of the differences of the logarithm of the
rate, its coefficients found by ridge least squares over all training series together, written out here; moving-average
terms, which need an iterative likelihood, and coefficients for each series are left out.

Symbols: S series, T steps, p order; A applications, R records, b cells of the table.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_RIDGE = 1e-3  # of the mean square of the differences, a row


@dataclass(frozen=True)
class Autoregression:
    """coefficients: (p) of the last p differences, the oldest first."""

    coefficients: Tensor

    @property
    def order(self) -> int:
        """p."""
        return len(self.coefficients)

    def change(self, logarithms: Tensor) -> Tensor:
        """(N, p + 1) logarithms of the last rates, the latest last -> (N) of the next over the latest."""
        return logarithms.diff(dim=1) @ self.coefficients


def fit_autoregression(logarithms: Tensor, order: int = 8) -> Autoregression:
    """Least squares over (S, T) logarithms of rates, T > p + 1."""
    differences = logarithms.double().diff(dim=1)
    rows = differences.unfold(1, order + 1, 1).reshape(-1, order + 1)
    past, following = rows[:, :-1], rows[:, -1]
    ridge = _RIDGE * len(rows) * differences.square().mean().clamp(min=1e-12)
    gram = past.T @ past + ridge * torch.eye(order, dtype=torch.float64)
    return Autoregression(torch.linalg.solve(gram, past.T @ following).float())


def allocation_table(allocation: Tensor, performance: Tensor, edges: Tensor, prior: Tensor) -> Tensor:
    """(A, b): mean performance of each application's records whose allocation falls into a cell.

    Args:
        allocation: (A, R), such as the load a core as a logarithm; NaN where there is no record.
        performance: (A, R), such as log(p99 / SLO).
        edges: (b - 1) ascending.
        prior: (b) of the cells, which counts as one record, so that an empty cell holds it.
    """
    there = allocation.isfinite() & performance.isfinite()
    cell = torch.bucketize(allocation.nan_to_num(0.0).contiguous(), edges)
    total = prior.expand(len(allocation), -1).clone()
    count = torch.ones_like(total)
    total.scatter_add_(1, cell, torch.where(there, performance, 0.0))
    count.scatter_add_(1, cell, there.to(total.dtype))
    return total / count
