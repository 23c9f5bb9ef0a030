"""Two steps of a policy with a law between them as one chain: never scale up and then down again.

"At constant load a scale-up by more than m is not followed by a scale-down by more than m in the next step":

    y = policy(x),   x' = law(x, y, f) in the box,   y' = policy(x')
    never   y - now > m   and   y - y' > m        now: what runs before, a stated affine function of x

The law is piecewise linear: a chain that takes (x, y, f), f being free within its limits (a latency that may be
anything after a change, noise). The utilisation that follows a change, load / (replicas limit), is a quotient; its
logarithm is a sum: log u' = log u + log r - log r'. So a policy that takes logarithms is put together with it behind
its logarithms (`behind` takes the first layers of its chain off). x' is brought into the box before it is fed, as a
controller does it.

Rounding. What the policy gives when it is executed is off by at most e (checker/rounding.py). The law is applied to
what it gives: to y + r for any r within e, which is free. And y - now, y - y' are taken to be larger by e and 2 e.

Symbols: n inputs of the policy, o outputs, p free inputs of the law.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from feature_store.errors import InputError
from feature_store.whole_files import write_file
from models.verification.checker.chain import Chain
from models.verification.checker.rounding import chain_error
from models.verification.closed_loop.chain_builder import Block, ChainBuilder, chain_file, chain_values
from models.verification.closed_loop.one_step import ROUNDED
from models.verification.decide import decide
from models.verification.network.fed_numbers import hull
from models.verification.network.graph import FloatArray
from models.verification.onnx_verdict import OnnxVerdict
from models.verification.proof_file import ProofCheck, check_proof


@dataclass(frozen=True)
class TwoSteps:
    """The policy, the law, and what is asked of them.

    policy: (n,) -> (o,); law: (n + o + p,) -> (n,); low, high (n,): the box; free_low, free_high (p,): of f.
    output: the number of the target that it is about; now (n,), now_offset: what runs before as now @ x + now_offset.
    margin: m, > 0. Raises InputError where these do not fit.
    """

    policy: Chain
    law: Chain
    low: FloatArray
    high: FloatArray
    output: int
    now: FloatArray
    now_offset: float
    margin: float
    free_low: FloatArray
    free_high: FloatArray

    def __post_init__(self) -> None:
        inputs, outputs = self.policy.weights[0].shape[1], len(self.policy.biases[-1])
        taken = inputs + outputs + len(self.free_low)
        if self.law.weights[0].shape[1] != taken or len(self.law.biases[-1]) != inputs:
            raise InputError(f"law must take {taken} values (observation, targets, what is free) and give {inputs}, "
                             f"got {self.law.weights[0].shape[1]} and {len(self.law.biases[-1])}")
        if not self.low.shape == self.high.shape == self.now.shape == (inputs,) or \
                self.free_low.shape != self.free_high.shape:
            raise InputError(f"box and `now` must have {inputs} numbers, got shapes {self.low.shape}, "
                             f"{self.high.shape}, {self.now.shape}")
        if not (0 <= self.output < outputs and self.margin > 0):
            raise InputError(f"output must be in 0..{outputs - 1} and margin > 0, got {self.output} and "
                             f"{self.margin!r}")
        if (self.low > self.high).any() or (self.free_low > self.free_high).any():
            raise InputError("box must have low <= high")

    @cached_property
    def box(self) -> tuple[FloatArray, FloatArray]:
        """The box with all that is fed for its walls."""
        return hull(self.low, self.high, self.policy.fed)

    @cached_property
    def error(self) -> FloatArray:
        """e (o,): how far an executed target may be from the exact one, over the box and what is fed for it."""
        error = chain_error(self.policy, *self.box) * (1 + 1e-9)
        if not np.isfinite(error).all():
            raise InputError("policy must be executed within a known error of what is proved, got none: its numbers "
                             "may overflow")
        return error

    def chain(self) -> Chain:
        """(y - now, y - y') of (x - low, f - free_low, r + e, off + rounding of x'), all of which is >= 0."""
        (low, high), inputs, outputs = self.box, len(self.low), len(self.error)
        one, off = np.eye(inputs), self._off()
        builder = ChainBuilder({"x": inputs, "f": len(self.free_low), "r": outputs, "s": inputs})
        kept = ["x", "f", "r", "s"]
        builder.layer({"seen": ({"x": one}, low)}, kept, relu=False)
        builder.through(self.policy, "seen", "y", kept)
        picked, every = np.eye(outputs)[[self.output]], np.eye(outputs)
        constant = np.array([-(self.now @ low) - self.now_offset])
        # signed values are carried as what is above and what is below zero
        builder.layer({"rise": ({"y": picked, "x": -self.now[None]}, constant),
                       "fall": ({"y": -picked, "x": self.now[None]}, -constant),
                       "y_up": ({"y": every}, np.zeros(outputs)), "y_down": ({"y": -every}, np.zeros(outputs))}, kept)
        kept = ["rise", "fall", "y_up", "y_down", "s"]
        builder.layer({"state": self._state(low)}, kept, relu=False)
        builder.through(self.law, "state", "next", kept)
        # into the box, counted down from its upper wall; a rounding of what is fed moves it further
        builder.layer({"below": ({"next": -one, "s": -one}, high + off)}, kept[:-1])
        builder.layer({"above": ({"below": -one}, high - low)}, kept[:-1])
        builder.layer({"fed": ({"above": one}, low)}, kept[:-1], relu=False)
        builder.through(self.policy, "fed", "y_next", kept[:-1])
        first, second = np.array([[1.0], [0.0]]), np.vstack([np.zeros((1, outputs)), picked])
        builder.layer({"out": ({"rise": first, "fall": -first, "y_up": second, "y_down": -second, "y_next": -second},
                               np.zeros(2))}, relu=False)
        return builder.chain()

    def _state(self, low: FloatArray) -> Block:
        """What the law takes: x, the target as it is executed, and what is free."""
        inputs, outputs, free = len(self.low), len(self.error), len(self.free_low)
        places = np.eye(inputs + outputs + free)
        of_x, of_y, of_f = places[:, :inputs], places[:, inputs : inputs + outputs], places[:, inputs + outputs :]
        return ({"x": of_x, "y_up": of_y, "y_down": -of_y, "r": of_y, "f": of_f},
                np.concatenate([low, -self.error, self.free_low]))

    def claim_text(self) -> str:
        """What must not happen, as VNN-LIB."""
        (floor, top), error, off = self.box, self.error, self._off()
        size = float(np.abs(self.now) @ np.maximum(np.abs(floor), np.abs(top)) + abs(self.now_offset))
        slack = float(error[self.output]) + ROUNDED * (size + self.margin)
        low = np.zeros(len(self.low) + len(self.free_low) + len(error) + len(off))
        high = np.concatenate([top - floor, self.free_high - self.free_low, 2 * error, 2 * off])
        high = high * (1 + 4 * 2.0**-53)
        lines = [f"(declare-const X_{i} Real)" for i in range(len(low))]
        lines += ["(declare-const Y_0 Real)", "(declare-const Y_1 Real)"]
        lines += [f"(assert (>= X_{i} {a!r}))\n(assert (<= X_{i} {b!r}))" for i, (a, b) in enumerate(
            zip(low.tolist(), high.tolist(), strict=True))]
        lines += [f"(assert (>= Y_0 {self.margin - slack!r}))", f"(assert (>= Y_1 {self.margin - 2 * slack!r}))"]
        return "\n".join(lines) + "\n"

    def prove(self, folder: Path, seconds: float = 60.0) -> OnnxVerdict:
        """Decides it and writes chain, claim and proof to the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        model, claim, proof = self._write(folder)
        return decide(model, claim, seconds, certificate=proof)

    def check(self, proof: Path, folder: Path) -> ProofCheck:
        """Checks a proof about chain and claim as they are made again, in a folder for them."""
        model, claim, _ = self._write(folder)
        return check_proof(proof, model, claim)

    def steps_of(self, found: OnnxVerdict) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray] | None:
        """x, y, x', y' of a counterexample, with the policy in its own type; None where there is none."""
        if found.witness is None:
            return None
        point = np.array(list(found.witness["points"][0]["inputs"].values()))
        inputs, free = len(self.low), len(self.free_low)
        x, f = self.low + point[:inputs], self.free_low + point[inputs : inputs + free]
        (y,) = chain_values(self.policy, x[None])
        after = np.clip(chain_values(self.law, np.concatenate([x, y, f])[None])[0], self.low, self.high)
        return x, y, after, chain_values(self.policy, after[None])[0]

    def _off(self) -> FloatArray:
        """How far x' as it is fed may be from the law's: by rounding to the type, and of the chain's constants."""
        reach = np.maximum(*map(np.abs, self.box)) + 1.0
        return (float(np.finfo(self.policy.fed).eps) + ROUNDED) * reach

    def _write(self, folder: Path) -> tuple[Path, Path, Path]:
        model, claim = folder / "two_steps.onnx", folder / "two_steps.vnnlib"
        write_file(model, chain_file(self.chain()))
        write_file(claim, self.claim_text())
        return model, claim, folder / "two_steps.npz"


def behind(policy: Chain, layers: int) -> Chain:
    """The policy without its first layers: what it makes of their values. Raises InputError where none are left."""
    if not 0 <= layers < len(policy.weights):
        raise InputError(f"layers must be less than the policy's {len(policy.weights)}, got {layers}")
    return replace(policy, weights=policy.weights[layers:], biases=policy.biases[layers:], kinds=policy.kinds[layers:])


def affine_law(*parts: FloatArray, offset: FloatArray) -> Chain:
    """x' = parts[0] @ x + parts[1] @ y + parts[2] @ f + offset as a chain."""
    return Chain((np.hstack(parts),), (offset,), ())
