"""A ranking claim as VNN-LIB: what must not happen in one step, for the chain of one_step.py.

W' <= max(base, W - step) wherever V <= within. Unsafe is what breaks that by no more than what execution may add:

    Y_0 >= base - slack   and   Y_1 >= -step - slack   and   Y_2 <= within + slack

A row that nothing depends on is left out: the second where W <= base + step throughout (any fall will do), the third
where the claim holds whatever V is. The proof then splits no inputs for its sake.
"""

from dataclasses import dataclass

from models.verification.network.graph import FloatArray


@dataclass(frozen=True)
class RankingClaim:
    """base, and where they are needed step and within."""

    base: float
    step: float | None
    within: float | None

    def text(self, low: FloatArray, high: FloatArray, slack: float) -> str:
        """The property file. low, high (n,): the box of the chain's inputs."""
        lines = [f"(declare-const X_{i} Real)" for i in range(len(low))]
        lines += [f"(declare-const Y_{j} Real)" for j in range(3)]
        lines += [f"(assert (>= X_{i} {a!r}))\n(assert (<= X_{i} {b!r}))" for i, (a, b) in enumerate(
            zip(low.tolist(), high.tolist(), strict=True))]
        lines.append(f"(assert (>= Y_0 {float(self.base - slack)!r}))")
        if self.step is not None:
            lines.append(f"(assert (>= Y_1 {float(-self.step - slack)!r}))")
        if self.within is not None:
            lines.append(f"(assert (<= Y_2 {float(self.within + slack)!r}))")
        return "\n".join(lines) + "\n"
