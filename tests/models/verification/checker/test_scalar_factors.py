"""Scalar factors beside a MatMul, which onnxruntime multiplies together in float32."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from feature_store.errors import InputError
from models.verification.checker.archive import Rejected
from models.verification.checker.chain import read_chain
from models.verification.checker.scalar_factors import ScalarFactors
from models.verification.decide import decide
from models.verification.network.onnx_reader import read_onnx
from tests.models.verification.network.test_onnx_reader import build, op


def scaled(*factors: float, kind: str = "Mul", dtype: type = np.float64) -> bytes:
    """MatMul, then each factor."""
    names = ["t", *(f"s{k}" for k in range(len(factors)))]
    nodes = [op("MatMul", "x w", "t"), *(op(kind, f"{a} {b.replace('s', 'c')}", b) for a, b in pairwise(names))]
    constants = {f"c{k}": np.array([factor]) for k, factor in enumerate(factors)}
    return build([*nodes, op("Identity", names[-1])], {"w": np.eye(3), **constants}, (1, 3), dtype=dtype)


NEAR = 1 + 2.0**-20  # float32 has it, not its square
CASES = [
    ((0.1,), "Mul", np.float64, False), ((1 + 2.0**-30,), "Mul", np.float64, False), ((NEAR,), "Mul", np.float64, True),
    ((NEAR, NEAR), "Mul", np.float64, False), ((3.0,), "Div", np.float64, False), ((-0.25,), "Div", np.float64, True),
    ((0.1,), "Mul", np.float32, True), ((3.0, 255.0), "Div", np.float32, True), ((0.0, 5.0), "Mul", np.float64, True),
    ((2.0**-100, 2.0**-100), "Mul", np.float64, False), ((2.0**-70, 2.0**-70), "Mul", np.float32, False)]


@pytest.mark.parametrize(("factors", "kind", "dtype", "taken"), CASES)
def test_factors_that_float32_does_not_have_together_are_refused(
    factors: tuple[float, ...], kind: str, dtype: type, taken: bool,
) -> None:
    content = scaled(*factors, kind=kind, dtype=dtype)
    readers = ((read_onnx, InputError), (read_chain, Rejected)) if kind == "Mul" else ((read_onnx, InputError),)
    for read, error in readers:
        if taken:
            read(content)
        else:
            with pytest.raises(error, match=rf"scalar factors .*beside a MatMul must be .*\(node .*, {kind}\)$"):
                read(content)


def test_every_product_of_accepted_factors_is_exact_in_float32() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        factors, taken = ScalarFactors(), 1.0
        for value in rng.integers(1, 2**12, size=6) * 2.0 ** rng.integers(-40, 40, size=6):
            if factors.objection(float(value), False, np.float64):
                break
            taken *= float(value)
            assert np.float64(np.float32(taken)) == taken and taken != 0


def test_without_a_matmul_or_with_a_factor_for_each_value_nothing_is_refused() -> None:
    read_onnx(build([op("Mul", "x c")], {"c": np.array([0.1])}, (1, 3), dtype=np.float64))
    read_onnx(build([op("MatMul", "x w", "t"), op("Mul", "t c")], {"w": np.eye(3), "c": np.full(3, 0.1)}, (1, 3),
                    dtype=np.float64))


@pytest.mark.parametrize("certified", [False, True])
def test_a_sliver_of_the_box_in_which_the_runtime_rounds_a_factor_is_not_proved(
    tmp_path: Path, certified: bool,
) -> None:
    # of x in [a, a + 2 d] onnxruntime makes y = 0.97, and 0 elsewhere: no point need ever lie there
    a, d, c, k, h = 0.123, 1e-6, 1 - 2.0**-30, 2.0**30, 1 + 0.9 * 2.0**-30
    constants = {"w1": np.ones((1, 3)), "b1": np.array([-a, -a - d, -a - 2 * d]), "c": np.array(c),
                 "w2": np.array([[1.0], [-2.0], [1.0]]) * h / d, "b2": np.array([-1.0]), "w3": np.array([[k]]),
                 "w4": np.array([[1.0]])}
    nodes = [op("MatMul", "x w1", "z"), op("Add", "z b1", "zz"), op("Relu", "zz", "r"), op("MatMul", "r w2", "p"),
             op("Mul", "p c", "q"), op("Add", "q b2", "s"), op("MatMul", "s w3", "t"), op("Relu", "t", "u"),
             op("MatMul", "u w4")]
    (tmp_path / "m.onnx").write_bytes(build(nodes, constants, (1, 1), dtype=np.float64))
    (tmp_path / "p.yaml").write_text("box: {x0: [0, 1]}\nproperties: [range: {maximum: 0.5}]\n")
    with pytest.raises(InputError, match="scalar factors of float64 beside a MatMul"):
        decide(tmp_path / "m.onnx", tmp_path / "p.yaml", 10, certificate=tmp_path / "p.npz" if certified else None)
