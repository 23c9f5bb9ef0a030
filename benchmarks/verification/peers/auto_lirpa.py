"""auto_LiRPA's Jacobian bounds with a batched branch and bound over the input on top.

Each round bounds the slope from below over the boxes whose parents had the worst bounds (CROWN, all boxes in one
tensor operation a layer), drops the proved ones, tries the slope at a few random points of the others and halves
those along their widest side, in shares of the question's box. (The relaxed gradient does not depend linearly on the
input: no coefficients say which side is better.) Bounds are float32 and not rigorous.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from benchmarks.verification.peers.jacobian import SignedSlope, repair_batches
from benchmarks.verification.peers.question import Clock, PeerResult, Question, pairs_around, refuted, signed_slopes
from models.verification.language.specification import FloatArray
from models.verification.verdict import Status

# Points tried in the whole box, and in each box that a bound did not prove: a small part of the bounds' own time.
FIRST_SAMPLES, SAMPLES = 10_000, 8
# A bound's largest tensors hold (width, boxes, width) numbers. Measured best, boxes a second on one core: 1024 boxes at
# width 64, 64 at 128, 16 at 300; half that many or twice as many cost little.
BATCH_NUMBERS = 1_500_000
# Sides below this share of the question's box are no longer float32 numbers apart that mean anything.
SMALLEST_SIDE = 1e-6


def solve(question: Question, seconds: float, threads: int) -> PeerResult:
    """Peer; see question.py."""
    clock = Clock()
    torch.set_num_threads(threads)
    bounder = _Bounder(question)
    setup = clock.seconds
    clock = Clock()
    with torch.no_grad():
        status, reason, points = _branch_and_bound(question, bounder, seconds, clock)
    if points is None:
        return PeerResult(status, reason, clock.seconds, setup)
    return refuted(question, *pairs_around(question, points), reason, clock.seconds, setup)


def _branch_and_bound(
    question: Question, bounder: "_Bounder", seconds: float, clock: Clock,
) -> tuple[Status, str, FloatArray | None]:
    """Status, reason and the points of a wrong slope, if any."""
    lower, upper = (torch.as_tensor(wall, dtype=torch.float32) for wall in (question.lower, question.upper))
    side = (upper - lower).clamp_min(1e-30)
    rng = np.random.default_rng(0)
    points = _wrong(question, rng, question.lower[None], question.upper[None], FIRST_SAMPLES)
    if points is not None:
        return Status.REFUTED, "a random point has a slope of the wrong sign: 0 boxes", points
    boxes = _Boxes(lower[None], upper[None], torch.zeros(1))
    bounded = 0
    while len(boxes.bound):
        if clock.seconds > seconds:
            return Status.TIMEOUT, f"it ran out of its {seconds:g} s: {bounded} boxes, {len(boxes.bound)} open", None
        batch, boxes = boxes.worst(bounder.batch)
        bounds = bounder.bounds(batch.lower, batch.upper)
        bounded += len(bounds)
        left = bounds < -question.tolerance
        batch = _Boxes(batch.lower[left], batch.upper[left], bounds[left])
        points = _wrong(question, rng, batch.lower.double().numpy(), batch.upper.double().numpy(), SAMPLES)
        if points is not None:
            return Status.REFUTED, f"a random point has a slope of the wrong sign: {bounded} boxes", points
        if bool((((batch.upper - batch.lower) / side).amax(1) < SMALLEST_SIDE).any()):
            return Status.UNKNOWN, f"a box too small to split stays unproved: {bounded} boxes", None
        boxes = boxes.joined(batch.halves(side))
    return Status.PROVED, f"every box is proved: {bounded} boxes", None


def _wrong(
    question: Question, rng: np.random.Generator, lower: FloatArray, upper: FloatArray, samples: int,
) -> FloatArray | None:
    """Those of `samples` points of each box (m, n) at which the slope is below -tolerance, worst first; None: none."""
    share = rng.random((samples, *lower.shape))
    points = (lower + share * (upper - lower)).reshape(-1, lower.shape[1])
    slopes = signed_slopes(question, points)
    order = np.argsort(slopes)
    violating = points[order[slopes[order] < -question.tolerance]]
    return violating if len(violating) else None


@dataclass(frozen=True)
class _Boxes:
    """lower, upper (m, n) float32; bound (m,): of the box or its parent."""

    lower: Tensor
    upper: Tensor
    bound: Tensor

    def worst(self, count: int) -> "tuple[_Boxes, _Boxes]":
        """The `count` boxes with the lowest bounds, and the rest."""
        if len(self.bound) <= count:
            return self, _Boxes(self.lower[:0], self.upper[:0], self.bound[:0])
        chosen = torch.zeros(len(self.bound), dtype=torch.bool)
        chosen[torch.topk(self.bound, count, largest=False).indices] = True
        return (_Boxes(self.lower[chosen], self.upper[chosen], self.bound[chosen]),
                _Boxes(self.lower[~chosen], self.upper[~chosen], self.bound[~chosen]))

    def joined(self, other: "_Boxes") -> "_Boxes":
        return _Boxes(torch.cat([self.lower, other.lower]), torch.cat([self.upper, other.upper]),
                      torch.cat([self.bound, other.bound]))

    def halves(self, side: Tensor) -> "_Boxes":
        """Each box cut in two across its widest side in shares of `side` (n,)."""
        rows, widest = torch.arange(len(self.bound)), ((self.upper - self.lower) / side).argmax(1)
        middle = (self.lower[rows, widest] + self.upper[rows, widest]) / 2
        first, second = self.upper.clone(), self.lower.clone()
        first[rows, widest] = second[rows, widest] = middle
        return _Boxes(torch.cat([self.lower, second]), torch.cat([first, self.upper]), self.bound.repeat(2))


class _Bounder:
    """auto_LiRPA's bounded module of the slope. batch: boxes bounded at once."""

    def __init__(self, question: Question) -> None:
        from auto_LiRPA import BoundedModule

        repair_batches()
        self._module = BoundedModule(SignedSlope(question), torch.zeros(1, question.network.inputs), device="cpu")
        widest = max(len(bias) for bias in question.network.biases)
        self.batch = min(max(BATCH_NUMBERS // widest**2, 8), 4096)

    def bounds(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Lower bounds (m,) of the signed slope over boxes (m, n)."""
        from auto_LiRPA import BoundedTensor, PerturbationLpNorm

        inside = BoundedTensor((lower + upper) / 2, PerturbationLpNorm(norm=np.inf, x_L=lower, x_U=upper))
        bound: Tensor = self._module.compute_bounds(x=(inside,), method="CROWN", bound_upper=False)[0]
        return bound[:, 0]
