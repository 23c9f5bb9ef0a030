"""A ranking claim as VNN-LIB: what must not happen in one step, for the chain of one_step.py.

W' <= max(base, W - step) wherever V <= within. Unsafe is what exceeds both by no more than what execution may add:

    Y_0 >= base - slack   and   Y_1 >= -step - slack   and   Y_2 <= within + slack
"""

from models.verification.network.graph import FloatArray


def claim_text(low: FloatArray, high: FloatArray, base: float, step: float, within: float, slack: float) -> str:
    """The property file. low, high (n,): the box of the chain's inputs."""
    lines = [f"(declare-const X_{i} Real)" for i in range(len(low))]
    lines += [f"(declare-const Y_{j} Real)" for j in range(3)]
    lines += [f"(assert (>= X_{i} {a!r}))\n(assert (<= X_{i} {b!r}))" for i, (a, b) in enumerate(
        zip(low.tolist(), high.tolist(), strict=True))]
    base, step, within, slack = map(float, (base, step, within, slack))
    lines += [f"(assert (>= Y_0 {base - slack!r}))", f"(assert (>= Y_1 {-step - slack!r}))",
              f"(assert (<= Y_2 {within + slack!r}))"]
    return "\n".join(lines) + "\n"
