"""A query whose boxes count as proved only if the independent checker proves them too."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.verification.search.branch_and_bound import Margins, Query
from models.verification.search.search_result import Check


@dataclass
class CheckedQuery:
    """The search's query and the checker's; lowest: the smallest margin that the checker found in a proved box."""

    query: Query
    check: Check
    lowest: float = float("inf")

    @property
    def device(self) -> str:
        """The search's; the checker runs on the CPU."""
        return self.query.device

    def bound(self, lower: Tensor, upper: Tensor, root: Tensor, dtype: torch.dtype) -> Margins:
        """Margins whose `proved` both agree on."""
        margins = self.query.bound(lower, upper, root, dtype)
        rows = margins.proved.nonzero()[:, 0]
        if len(rows):
            holds, by = self.check(*(values[rows].cpu().numpy() for values in (lower, upper, root)))
            refused = rows[torch.as_tensor(~holds, device=rows.device)]
            margins.proved[refused] = False
            margins.charge[refused] = 0
            margins.margin[refused] = torch.as_tensor(by[~holds]).to(margins.margin)
            self.lowest = min(self.lowest, float(by[holds].min(initial=np.inf)))
        return margins
