"""How cases become one set of arrays."""

import numpy as np

from models.verification.language.unsafe_set import unsafe_set

ONE, TWO = (np.array([[1.0, 0.0]]), np.array([-3.0])), (np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([-1.0, 0.5]))


def test_an_alternative_with_fewer_constraints_is_padded_with_its_last_one() -> None:
    """A row that holds anyway would be nearest to a proof for ever, and no other's bound be improved."""
    made = unsafe_set([(np.zeros(2), np.ones(2), ONE), (np.zeros(2), 2 * np.ones(2), TWO)])
    assert made.coefficients.shape == (2, 1, 2, 2)
    assert made.coefficients[0, 0].tolist() == [[1, 0], [1, 0]] and made.constants[0, 0].tolist() == [-3, -3]
    assert made.coefficients[1, 0].tolist() == TWO[0].tolist() and made.constants[1, 0].tolist() == [-1, 0.5]
    outputs = np.array([[3.5, 0.0], [2.5, 9.0]])
    assert made.violation(np.array([0, 0]), outputs).tolist() == [0.5, -0.5]
    assert made.violation(np.array([1, 1]), outputs).tolist() == [-1.0, 8.0]


def test_alternatives_of_one_box_stand_side_by_side_and_one_that_is_not_there_never_happens() -> None:
    box = (np.zeros(2), np.ones(2))
    made = unsafe_set([(*box, ONE), (*box, TWO), (np.ones(2), 2 * np.ones(2), ONE)])
    assert made.coefficients.shape == (2, 2, 2, 2)
    assert not made.coefficients[1, 1].any() and (made.constants[1, 1] == -1).all()
    assert made.violation(np.array([0, 1]), np.array([[0.0, 5.0], [0.0, 5.0]])).tolist() == [4.0, -1.0]
