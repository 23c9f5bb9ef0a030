"""Algorithm 1 of vPALs: train, verify, add counterexamples, repeat; and its unverified twin.

A counterexample's corrected label is its order, as in Ouroboros (MLSys 2023) for monotonicity: a pair
of inputs whose outputs must not stand the wrong way round, trained with a hinge on the pair beside
the mean squared error. A counterexample counts as predicted correctly when the order holds.

Methods (task file, training.method):
    plain                   never verified in the loop; what the twin is
    counterexample_guided   Algorithm 1 as in the papers
    monotone                Algorithm 1 on a network that is monotone by construction (sign_pattern.py), so that the
                            first verification proves it
    certified               Algorithm 1 with a loss on the bounds that the proof needs (derivative_penalty.py)
    certified_guided        the papers' loop, started from a network of certified training

The twin is an ordinary network of the same sizes from the same seed, which sees the same batches for the
same number of epochs and is never shown a counterexample (vPALs, section "Experimental Setup"). Each time
the verifier is activated it also attacks the twin as it is then. The counterexample set of the comparison
(figure 6) is everything found on the way, from both: a network that is monotone by construction has none.

Symbols: x (m, n) scaled features, y (m,) scaled target; a counterexample set is two arrays (c, n).
"""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from models.learners.mlp import linear_layers
from models.training.adam import Adam
from models.training.derivative_penalty import DerivativePenalty
from models.training.settings import TrainingSettings
from models.training.sign_pattern import project
from models.verification.attack.falsification import falsify
from models.verification.language.specification import FloatArray, Specification
from models.verification.network.fully_connected import ReluNetwork, network_from_torch
from models.verification.search.branch_and_bound import Budget
from models.verification.verdict import Status, Verdict, Witness
from models.verification.verify import verify

# Ouroboros weighs the counterexamples' hinge with 0.1 beside the mean squared error (its LinnOS task).
HINGE_WEIGHT = 0.1
# Shares of the planned epochs: until the certified loss is at full weight, and until `certified_guided` drops it.
RAMP_SHARE, CERTIFIED_SHARE = 0.6, 0.8


@dataclass(frozen=True)
class Epoch:
    """Mean squared error on the training data after an epoch, of the verified learner and of its twin."""

    epoch: int
    loss: float
    twin_loss: float


@dataclass(frozen=True)
class VerificationRound:
    """One activation of the verifier: after which epoch, how long, with which outcome."""

    epoch: int
    seconds: float
    status: str
    lower_bound: float
    counterexamples: int
    twin_counterexamples: int


@dataclass
class Counterexamples:
    """Pairs (low, high) that differ in one feature and were once in the wrong order; sign: +1 rising, -1 falling."""

    low: list[FloatArray] = field(default_factory=list)
    high: list[FloatArray] = field(default_factory=list)
    sign: list[int] = field(default_factory=list)
    feature: list[int] = field(default_factory=list)

    def add(self, witnesses: Sequence[Witness]) -> None:
        """Appends the witnesses' pairs."""
        for witness in witnesses:
            self.low.append(witness.low)
            self.high.append(witness.high)
            self.sign.append(witness.sign)
            self.feature.append(witness.feature)

    def extend(self, other: "Counterexamples") -> None:
        """Appends all pairs of another set."""
        self.low += other.low
        self.high += other.high
        self.sign += other.sign
        self.feature += other.feature

    def arrays(self, inputs: int) -> dict[str, np.ndarray]:
        """low, high (c, n) float64; sign, feature (c,) int."""
        return {"low": np.array(self.low, dtype=np.float64).reshape(-1, inputs),
                "high": np.array(self.high, dtype=np.float64).reshape(-1, inputs),
                "sign": np.array(self.sign, dtype=np.int64), "feature": np.array(self.feature, dtype=np.int64)}


@dataclass(frozen=True)
class LoopResult:
    """The verified learner, its twin, the last verdict on each, and how the loop went."""

    network: nn.Sequential
    twin: nn.Sequential
    verdict: Verdict
    twin_verdict: Verdict
    epochs: tuple[Epoch, ...]
    rounds: tuple[VerificationRound, ...]
    counterexamples: Counterexamples
    seconds: dict[str, float]


class CounterexampleLoop:
    """One run of the loop: two networks, two optimisers, one stream of batches.

    Args:
        network: where the verified learner starts; twin: where its unverified twin starts. Both are trained in place.
        x: (m, n) scaled features; y: (m,) scaled target.
        on_progress: called after every epoch and every verification with a flat mapping.
    """

    def __init__(
        self, network: nn.Sequential, twin: nn.Sequential, x: FloatArray, y: FloatArray, specification: Specification,
        settings: TrainingSettings, seed: int, on_progress: Callable[[dict[str, Any]], None] = lambda event: None,
    ) -> None:
        self.network, self.twin = network, twin
        self.x = torch.as_tensor(x, dtype=torch.float32)
        self.y = torch.as_tensor(y, dtype=torch.float32)
        self.points = np.asarray(x, dtype=np.float64)
        self.specification, self.settings, self.seed = specification, settings, seed
        self.on_progress = on_progress
        self.optimisers = [Adam(net.parameters()) for net in (network, twin)]
        self.batches = torch.Generator().manual_seed(seed)
        self.hinge_picks = torch.Generator().manual_seed(seed + 1)
        self.found = Counterexamples()  # by the learner itself: what it is trained on
        self.attacks = Counterexamples()  # found on the twin: for the comparison only
        self.pairs: tuple[Tensor, Tensor, Tensor] | None = None
        self.penalty = self._certified_loss() if settings.method in ("certified", "certified_guided") else None
        self.epochs: list[Epoch] = []
        self.rounds: list[VerificationRound] = []
        self.seconds = {"training": 0.0, "twin": 0.0, "verification": 0.0}

    def run(self) -> LoopResult:
        """Trains and verifies until PROVED or the limit of iterations (Algorithm 1)."""
        phases = self.phases()
        while True:
            try:
                epochs = next(phases)
            except StopIteration as end:
                result: LoopResult = end.value
                return result
            self.train(epochs)

    def phases(self) -> Generator[int, None, LoopResult]:
        """Algorithm 1, whoever trains: yields how many epochs must be trained before it goes on; returns the result."""
        settings = self.settings
        yield settings.epochs // 2
        # the verifier is also activated half way: its counterexamples are those of networks still in training
        verdict, twin_verdict = self._verify()
        yield settings.epochs - settings.epochs // 2
        verdict, twin_verdict = self._verify()
        for _ in range(settings.iterations):
            if verdict.status is Status.PROVED or settings.method == "plain":
                break
            yield settings.epochs_per_iteration
            verdict, twin_verdict = self._verify()
        merged = Counterexamples()
        for part in (self.found, self.attacks):
            merged.extend(part)
        return LoopResult(self.network, self.twin, verdict, twin_verdict, tuple(self.epochs), tuple(self.rounds),
                          merged, dict(self.seconds))

    def train(self, epochs: int) -> None:
        """Trains both networks for so many epochs, one after the other."""
        for _ in range(epochs):
            order = self.draw_order()
            losses = [self._epoch(network, optimiser, order) for network, optimiser in
                      zip((self.network, self.twin), self.optimisers, strict=True)]
            self.end_epoch(*losses)

    def draw_order(self) -> Tensor:
        """(m,) int64: the rows in the order of the next epoch's batches, the same for both networks."""
        return torch.randperm(len(self.x), generator=self.batches)

    def end_epoch(self, loss: float, twin_loss: float) -> None:
        """Records an epoch that was trained, and reports it."""
        self.epochs.append(Epoch(len(self.epochs) + 1, loss, twin_loss))
        self.on_progress({"stage": "finetune", "epoch": len(self.epochs), "epochs": self.settings.epochs,
                          "loss": loss})

    def learning_rate(self) -> float:
        """Cosine from the task's rate to a twentieth of it over the planned epochs; constant in later iterations."""
        done = min(len(self.epochs) / self.settings.epochs, 1.0)
        return self.settings.learning_rate * (0.05 + 0.95 * 0.5 * (1 + np.cos(np.pi * done)))

    def _epoch(self, network: nn.Sequential, optimiser: Adam, order: Tensor) -> float:
        """One pass over the data; returns the mean squared error seen on the way."""
        started, total, rate = time.monotonic(), 0.0, self.learning_rate()
        verified = network is self.network
        for batch in order.split(self.settings.batch_size):
            error = ((network(self.x[batch])[:, 0] - self.y[batch]) ** 2).mean()
            loss = error + HINGE_WEIGHT * self._hinge() if verified and self.pairs is not None else error
            ramp = self._ramp()
            if verified and self.penalty is not None and ramp > 0:
                loss = loss + self.settings.certified_weight * ramp * self.penalty(linear_layers(network), ramp)
            optimiser.step(loss, rate)
            if verified and self.settings.method == "monotone":
                project(linear_layers(network), self.specification.queries)
            total += float(error.detach()) * len(batch)
        self.seconds["training" if verified else "twin"] += time.monotonic() - started
        return total / len(self.x)

    def _certified_loss(self) -> DerivativePenalty:
        lower, upper = (torch.as_tensor(wall, dtype=torch.float32)
                        for wall in (self.specification.lower, self.specification.upper))
        return DerivativePenalty(self.specification.queries, lower, upper, self.settings.certified_margin,
                                 self.settings.certified_boxes, torch.Generator().manual_seed(self.seed + 2))

    def _ramp(self) -> float:
        """Weight and box size of the certified loss, 0..1; `certified_guided` drops it near the end."""
        done = len(self.epochs) / self.settings.epochs
        if self.settings.method == "certified_guided" and done > CERTIFIED_SHARE:
            return 0.0
        return min(done / RAMP_SHARE, 1.0)

    def _hinge(self) -> Tensor:
        """Mean violation of a batch of counterexamples by the learner, with the margin that is trained for."""
        assert self.pairs is not None
        low, high, sign = self.pairs
        pick = torch.randint(len(low), (min(len(low), self.settings.batch_size),), generator=self.hinge_picks)
        gap = sign[pick] * (self.network(low[pick]) - self.network(high[pick]))[:, 0]
        return torch.relu(gap + self.settings.hinge_margin).mean()

    def _verify(self) -> tuple[Verdict, Verdict]:
        """Activates the verifier on the learner, and attacks the twin as it is now."""
        limit = self.settings.counterexamples_per_iteration
        seed = self.seed + len(self.rounds)
        started = time.monotonic()
        if self.settings.method == "plain":
            verdict = Verdict(Status.UNKNOWN, "the method does not verify")
        else:
            budget = Budget(seconds=self.settings.loop_verify_seconds)
            verdict = verify(network_from_torch(self.network), self.specification, budget, self.points, seed)
            self.found.add(verdict.witnesses[:limit])
            self._gather_pairs()
        seconds = time.monotonic() - started
        attacks = falsify(network_from_torch(self.twin), self.specification, self.points, limit=64, seed=seed)
        self.attacks.add(attacks)
        twin = Verdict(Status.REFUTED, "a counterexample was found", witnesses=attacks) if attacks else \
            Verdict(Status.UNKNOWN, "no counterexample was found, no proof was tried")
        self.seconds["verification"] += seconds
        self.rounds.append(VerificationRound(len(self.epochs), seconds, str(verdict.status), verdict.lower_bound,
                                             len(verdict.witnesses), len(attacks)))
        self.on_progress({"stage": "verify", "epoch": len(self.epochs), "status": str(verdict.status),
                          "iteration": len(self.rounds), "counterexamples": len(verdict.witnesses)})
        return verdict, twin

    def _gather_pairs(self) -> None:
        arrays = self.found.arrays(self.x.shape[1])
        if len(arrays["low"]):
            self.pairs = (torch.as_tensor(arrays["low"], dtype=torch.float32),
                          torch.as_tensor(arrays["high"], dtype=torch.float32),
                          torch.as_tensor(arrays["sign"], dtype=torch.float32))


def counterexample_accuracy(network: ReluNetwork, arrays: dict[str, np.ndarray], tolerance: float) -> float:
    """Share of the pairs whose order holds within the tolerance (1.0 of an empty set)."""
    if not len(arrays["low"]):
        return 1.0
    gap = arrays["sign"] * (network.value(arrays["low"]) - network.value(arrays["high"]))
    distance = np.abs(arrays["high"] - arrays["low"]).sum(axis=1)
    return float(np.mean(gap <= tolerance * distance + 1e-9))
