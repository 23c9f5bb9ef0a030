"""Links by family, each a row of a fixed table of random numbers: equal numbers are equal links.

    aurora    PCC-RL's ranges, which are the first of the thesis, appendix A.6
    wide      the wider ranges of that appendix, uniform in their logarithms
    changing  aurora's, with a bandwidth that walks between a quarter and four times its mean and jumps
    cross     aurora's, beside traffic that comes and goes and heeds nobody
    rival     aurora's without loss, beside a TCP Reno (RFC 5681)

Symbols: N rows, one a sender; G places of a grid in time, T steps; tensors (N,) float32 unless stated. A link of A
senders, who are next to each other, has A rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feature_store.errors import InputError
from models.control.simulation.tensors import float32, log_uniform

FAMILIES = ("aurora", "wide", "changing", "cross", "rival")
LINKS = {"train": 4096, "held_out": 1024}
GRID = 256
NOISES = 3
MBPS = 1e6 / (8 * 1500)  # packets a second
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Links:
    """Links and all that is random on them.

    Attributes:
        bandwidth_pps, cross_pps: (G, N) of the link, and of the traffic that heeds nobody; from the end on again.
        grid_s: length of a place of the grid.
        base_s: round trip without a queue.
        queue_packets: that the queue holds.
        loss: share of packets that get lost at random.
        rival: 1.0 where a TCP Reno sends beside, else 0.0.
        first_pps: rate at the beginning.
        jitter_s: standard deviation of a packet's round trip.
        most_queueing_s: the objective.
        noise: (T, 3, N) standard normal, of loss, round trip and slope; 0: none.
        senders: A.
    """

    bandwidth_pps: Tensor
    cross_pps: Tensor
    grid_s: Tensor
    base_s: Tensor
    queue_packets: Tensor
    loss: Tensor
    rival: Tensor
    first_pps: Tensor
    jitter_s: Tensor
    most_queueing_s: Tensor
    noise: Tensor
    senders: int = 1

    def take(self, index: Tensor | NDArray[np.int64]) -> "Links":
        """Those links at some positions, with all of their senders."""
        rows = (torch.as_tensor(index)[:, None] * self.senders + torch.arange(self.senders)).flatten()
        some: dict[str, Any] = {name: value[..., rows] for name, value in self.tensors().items()}
        return replace(self, **some)

    def tensors(self) -> dict[str, Tensor]:
        """By name, all but how many send."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}


def draw_links(split: str, count: int, steps: int, seed: int, family: str,
               numbers: Sequence[int] | None = None) -> Links:
    """See `Environment.draw`. family: "" for all of them in turns.

    Raises:
        InputError: an unknown split or family.
    """
    if split not in LINKS or family not in ("", *FAMILIES):
        raise InputError(f"split and scenario: expected train or held_out and one of {', '.join(FAMILIES)}, got "
                         f"{split!r} and {family!r}")
    random = np.random.default_rng([seed, split == "train"])
    chosen = random.permutation(count) % LINKS[split] if numbers is None else np.asarray(numbers)
    own = np.random.default_rng([11, split == "train"]).random((LINKS[split], 10))[chosen % LINKS[split]].T
    # the family follows from the link's number, so that a link is the same whoever asks for it
    kind = chosen % len(FAMILIES) if family == "" else np.full(count, FAMILIES.index(family))
    wide, changing, cross, rival = (kind == FAMILIES.index(name) for name in FAMILIES[1:])
    bandwidth = np.where(wide, log_uniform(own[0], 0.1, 128.0) * MBPS, 100.0 + 400.0 * own[0])
    base_s = np.where(wide, log_uniform(own[1], 1e-3, 0.512), 0.1 + 0.9 * own[1])
    queue = np.where(wide, log_uniform(own[2], 1.0, 10240.0), 1.0 + np.floor(np.exp(8.0 * own[2])))
    queue = np.where(rival, bandwidth * base_s * log_uniform(own[2], 0.25, 4.0) + 4.0, queue)
    loss = own[3] * np.select([wide, rival], [0.1, 0.0], 0.05)
    grid_s = log_uniform(own[4], 0.2, 2.0)
    steps_of = np.where(random.random((GRID, count)) < 0.02, 1.2, 0.15) * random.standard_normal((GRID, count))
    walk = np.where(changing, _walk(steps_of), 0.0)
    # on and off for a few places of the grid each, at up to two thirds of the link
    on = np.cumsum(random.random((GRID, count)) < 0.1, axis=0) % 2
    heedless = np.where(cross, on * bandwidth * 0.66 * own[5], 0.0)
    return Links(
        float32(bandwidth * np.exp(walk)), float32(heedless), float32(grid_s), float32(base_s), float32(queue),
        float32(loss), float32(rival), first_pps=float32(bandwidth * (0.3 + 1.2 * own[6])),
        jitter_s=float32(log_uniform(own[7], 1e-5, 2e-3)), most_queueing_s=float32(log_uniform(own[8], 0.02, 1.0)),
        noise=float32(random.standard_normal((steps, NOISES, count))))


def shared(links: Links, senders: int, seed: int) -> Links:
    """Links of one sender each with so many, who begin at rates of their own: a tenth to twice a fair share."""
    rows = replace(links, senders=senders, **{
        name: value.repeat_interleave(senders, dim=-1) for name, value in links.tensors().items()})
    random = np.random.default_rng([seed, senders])
    first = log_uniform(random.random(len(rows.base_s)), 0.1, 2.0) * rows.bandwidth_pps[0].double().numpy() / senders
    return replace(rows, first_pps=float32(first), noise=float32(random.standard_normal(tuple(rows.noise.shape))))


def _walk(steps: Numbers) -> Numbers:
    """(G, N) a walk of logarithms, drawn to 0 and kept within a factor of four."""
    place, places = np.zeros(steps.shape[1]), []
    for step in steps:
        place = np.clip(0.97 * place + step, -np.log(4.0), np.log(4.0))
        places.append(place)
    return np.stack(places)
