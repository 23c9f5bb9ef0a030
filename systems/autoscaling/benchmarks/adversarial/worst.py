"""The worst violation of a demand that the falsifier finds, replayed in onnxruntime on the exported file.

`decide` stops at the first counterexample. Here the demand is weakened by what was found, again and again, until the
falsifier (models/verification/attack) finds nothing worse. It looks in two places:

    anywhere   all that can be observed, the box of the specification
    near       around states that occurred: limits, replicas and the objective as they were, every measurement
               within NEAR of what it was; the signal that a demand is monotone in, within SWEPT

What is found is a lower bound of the worst.

Symbols: P states, R boxes, n signals, m controls; x (n,) raw, lower, upper (R, n).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from models.control.policy.policy import Policy, PolicyShape
from models.control.policy.policy_chain import chain
from models.control.policy.policy_model import chain_onnx
from models.control.simulation.rollout import Acting
from models.tasks.control.judging import model_acting
from models.verification.attack.falsification import SlopeFalsifier, SlopeQuery
from models.verification.attack.output_falsification import OutputFalsifier
from models.verification.attack.output_witness import OutputWitness
from models.verification.attack.replay import Replay
from models.verification.language.claim import read_claim
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.onnx_reader import OnnxNetwork, read_onnx
from models.verification.obligations.compile import RelationObligation
from models.verification.obligations.slopes import Slopes
from models.verification.verdict import Witness
from systems.autoscaling.benchmarks.adversarial.demands import Array, Row, specification_text

NEAR = 0.1  # latency is measured with an error of about so much (simulator.py)
# What is not measured but known.
KNOWN = ("cpu_limit_cores", "memory_limit_mib", "replicas", "raised_s_ago", "ready_replicas", "slo_ms")
# The signal that a demand is monotone in: from how much to how much of which signal.
SWEPT = {"p99_ms": (0.5, 2.0, "slo_ms"), "served_share": (0.5, 1.0, "served_share"),
         "rate_rps": (0.5, 2.0, "rate_1min_rps")}
WORSE = 1.02  # what counts as worse than what was found
TRIES = 3  # seeds of a search
ROWS = 16384  # that onnxruntime is fed with at a time: all at once take gigabytes
PAIR_SAMPLES, PAIR_STEPS, PAIR_GRID = 4096, 16, 25


@dataclass(frozen=True)
class Violation:
    """A demand that is not kept.

    Attributes:
        amount: by how much, in the target's unit, as onnxruntime computes it.
        states: (1, n), or (2, n) where the second, all else equal, should not lead to less than the first.
    """

    amount: float
    states: Array


@dataclass(frozen=True)
class ExportedPolicy:
    """A policy as it ships: read as it is verified, and run."""

    shape: PolicyShape
    network: OnnxNetwork
    replay: Replay
    acting: Acting

    @classmethod
    def of(cls, policy: Policy, path: Path) -> "ExportedPolicy":
        """Writes the file."""
        model = chain_onnx(*chain(policy), {})
        path.write_bytes(model)
        network = read_onnx(path)
        return cls(policy.shape, network, Replay(path), model_acting(model))

    def targets(self, states: Array) -> Array:
        """(..., n) -> (..., m), by onnxruntime."""
        flat = torch.from_numpy(states.reshape(-1, states.shape[-1]).astype(np.float32))
        found = torch.cat([self.acting(rows, 0.0) for rows in flat.split(ROWS)]).double().numpy()
        return found.reshape(*states.shape[:-1], found.shape[-1])


def around(shape: PolicyShape, states: Array) -> tuple[Array, Array]:
    """Boxes (P, n) of what might have been measured in place of the states (P, n); what is known is as it was."""
    low, high = (np.array([getattr(signal, side) for signal in shape.signals]) for side in ("low", "high"))
    known = np.array([signal.name in KNOWN for signal in shape.signals])
    states = states.astype(np.float64)
    lower, upper = ((np.clip(np.where(known, states, states * factor), low, high)) for factor in (1 - NEAR, 1 + NEAR))
    return lower, upper


def worst(policy: ExportedPolicy, row: Row, folder: Path, starts: Array, near: bool, seed: int = 0) -> Violation | None:
    """The worst that was found; None where there was nothing.

    Args:
        folder: for the specification.
        starts: (P, n) states at which the search begins.
        near: whether to stay near them; or else anywhere.
    """
    if near and not len(starts):
        return None
    path = folder / "row.yaml"
    path.write_text(specification_text(policy.shape, row.written))
    found = [_pair(policy, part.obligation, part.lower, part.upper, starts, near, seed)
             if isinstance(part.obligation, Slopes) else _state(policy, part.obligation, starts, near, seed)
             for part in read_claim(path, policy.network.graph, policy.network.number).parts
             if isinstance(part.obligation, Slopes | RelationObligation)]
    return max((one for one in found if one is not None), key=lambda one: one.amount, default=None)


def _pair(policy: ExportedPolicy, slopes: Slopes, lower: Array, upper: Array, starts: Array, near: bool,
          seed: int) -> Violation | None:
    """Two states that differ in the signal alone."""
    ((feature,), (direction,)) = slopes.features, slopes.rows
    (output,) = np.flatnonzero(direction)
    if near:
        lower, upper = swept(policy.shape, feature, starts)
    falsifier = SlopeFalsifier(policy.network.graph, [SlopeQuery(feature, int(direction[output]), int(output))], 0.0,
                               lower, upper)
    for witness in _pairs(falsifier, None if near else starts, seed):
        if policy.replay.pair(witness, lower, upper, 0.0):
            states = np.stack([policy.replay.representable(one) for one in (witness.low, witness.high)])
            if direction[output] < 0:
                states = states[::-1]
            before, after = policy.targets(states)[:, output]
            return Violation(float(before - after), states)
    return None


def _pairs(falsifier: SlopeFalsifier, points: Array | None, seed: int) -> list[Witness]:
    """The worst first."""
    found = [witness for number in range(TRIES)
             for witness in falsifier.search(points, samples=PAIR_SAMPLES, steps=PAIR_STEPS, grid=PAIR_GRID,
                                             seed=seed + number)]
    return sorted(found, key=lambda witness: -witness.excess)


def swept(shape: PolicyShape, feature: int, states: Array) -> tuple[Array, Array]:
    """The boxes around the states, wide in the signal that a demand is monotone in."""
    lower, upper = around(shape, states)
    signal = shape.signals[feature]
    low, high, of = SWEPT[signal.name]
    base = states[:, shape.column(of)]
    lower[:, feature] = np.clip(low * base, signal.low, signal.high)
    upper[:, feature] = np.clip(high * base, signal.low, signal.high)
    return lower, upper


def _state(policy: ExportedPolicy, relation: RelationObligation, starts: Array, near: bool,
           seed: int) -> Violation | None:
    """One state: the search is repeated with a demand that allows what was found."""
    unsafe = _cut(relation.unsafe, *around(policy.shape, starts)) if near else relation.unsafe
    if not len(unsafe.lower):
        return None
    found: Violation | None = None
    points, weaker = starts, unsafe
    while (witness := _first(policy, relation, weaker, points, seed)) is not None:
        x = policy.replay.representable(witness.x)
        y = policy.replay(x)
        amount = float(unsafe.coefficients[witness.box, 0, 0] @ np.concatenate([y, x])
                       + unsafe.constants[witness.box, 0, 0])
        found = Violation(amount, x[None])
        constants = unsafe.constants.copy()
        constants[:, :, 0] -= WORSE * amount
        weaker = replace(unsafe, constants=constants)
        points = np.concatenate([points, x[None]])
    return found


def _first(policy: ExportedPolicy, relation: RelationObligation, unsafe: UnsafeSet, points: Array,
           seed: int) -> OutputWitness | None:
    falsifier = OutputFalsifier(relation.graph, unsafe)
    for number in range(TRIES):
        found = falsifier.search(points, seed=seed + number,
                                 accept=lambda witness: policy.replay.related(witness, unsafe))
        if found is not None:
            return found
    return None


def _cut(unsafe: UnsafeSet, lower: Array, upper: Array) -> UnsafeSet:
    """The cases of an unsafe set within boxes (R, n), where conditions between inputs may hold."""
    kept: list[tuple[int, NDArray[np.bool_], Array, Array]] = []
    for case in range(len(unsafe.lower)):
        low, high = np.maximum(lower, unsafe.lower[case]), np.minimum(upper, unsafe.upper[case])
        inputs = low.shape[1]
        conditions, constants = unsafe.coefficients[case, 0, 1:, -inputs:], unsafe.constants[case, 0, 1:]
        most = np.maximum(conditions, 0) @ high.T + np.minimum(conditions, 0) @ low.T + constants[:, None]
        inside = (low <= high).all(axis=1) & (most >= 0).all(axis=0)
        kept.append((case, inside, low[inside], high[inside]))
    cases = np.concatenate([np.full(np.count_nonzero(inside), case) for case, inside, _, _ in kept])
    return UnsafeSet(np.concatenate([low for _, _, low, _ in kept]), np.concatenate([high for *_, high in kept]),
                     unsafe.coefficients[cases], unsafe.constants[cases])


def chosen(states: Array, amounts: Sequence[float] | Array, most: int, seed: int) -> Array:
    """At most so many of the states (P, n): a fifth those with the largest amounts (P,), the others at random."""
    order = np.argsort(-np.asarray(amounts), kind="stable")
    worst_of, others = order[:most // 5], order[most // 5:]
    random = np.random.default_rng(seed).permutation(others)[:most - len(worst_of)]
    return states[np.concatenate([worst_of, random])]
