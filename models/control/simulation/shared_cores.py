"""Work of many on the cores of one machine or cluster in one step, each within a limit of its own.

Symbols: N groups of A who share; tensors (N, A) unless stated.
"""

from typing import NamedTuple

from torch import Tensor

FILLS_AT = 0.9  # of the whole busy: from here on idle cores within a limit are not there at once, assumed


class Worked(NamedTuple):
    """has: cores that each can count on; served: requests a second; left: requests that wait on after the step."""

    has: Tensor
    served: Tensor
    left: Tensor


def worked(rate_rps: Tensor, backlog: Tensor, work_s: Tensor, limits: Tensor, capacity: Tensor, step_s: float,
           gives_up_s: float) -> Worked:
    """A step; where more cores would be busy than there are, each has its part of them.

    Args:
        backlog: requests that are left over from before.
        work_s: core seconds of a request.
        limits: cores that each may use.
        capacity: (N, 1) cores that all share.
        step_s: length of the step.
        gives_up_s: work that is left over beyond so many seconds is given up.
    """
    offered = rate_rps + backlog / step_s
    busy = (offered * work_s).minimum(limits)
    all_busy = busy.mean(dim=1, keepdim=True) * busy.shape[1]
    full = ((all_busy / capacity - FILLS_AT) / (1.0 - FILLS_AT)).clamp(0.0, 1.0)
    has = limits.lerp(busy * (capacity / all_busy).clamp(max=1.0), full)
    served = offered.minimum(has / work_s)
    left = ((offered - served) * step_s).minimum(gives_up_s * has / work_s)
    return Worked(has, served, left)
