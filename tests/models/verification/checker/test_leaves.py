"""A split tree covers its root by construction; whatever is not a tree is refused."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.verification.checker.archive import Rejected
from models.verification.checker.check import leaf_boxes
from models.verification.checker.time_limit import OutOfTime, time_limit
from tests.models.verification.checker.leaves import all_leaves

# A sum of at most 256 products of 5 differences of numbers near 1, each of which cancels some digits.
VOLUME = 1e-9

relaxed = settings(max_examples=60, deadline=None)
LOWER, UPPER = np.array([0.0, -1.0]), np.array([1.0, 2.0])


def boxes_of(dimension, value, lower=LOWER, upper=UPPER):
    low, high, root = all_leaves(np.array(dimension), np.array(value, dtype=float), lower[None], upper[None])
    assert not root.any()
    return low, high


def random_tree(rng: np.random.Generator, lower: np.ndarray, upper: np.ndarray, depth: int) -> list[tuple[int, float]]:
    """A tree in preorder; some splits lie on a wall of their box."""
    if depth == 0 or rng.random() < 0.25:
        return [(-1, 0.0)]
    d = int(rng.integers(len(lower)))
    v = float(rng.choice([lower[d], upper[d], lower[d] + (upper[d] - lower[d]) * rng.random()], p=[0.05, 0.05, 0.9]))
    left, right = upper.copy(), lower.copy()
    left[d] = right[d] = v
    return [(d, v), *random_tree(rng, lower, left, depth - 1), *random_tree(rng, right, upper, depth - 1)]


@relaxed
@given(seed=st.integers(0, 2**32 - 1), inputs=st.integers(1, 5), depth=st.integers(0, 8))
def test_every_point_of_the_root_lies_in_a_leaf_and_leaves_fill_it_once(seed, inputs, depth) -> None:
    rng = np.random.default_rng(seed)
    lower = rng.normal(size=inputs)
    upper = lower + rng.random(inputs)
    tree = random_tree(rng, lower, upper, depth)
    low, high = boxes_of([d for d, _ in tree], [v for _, v in tree], lower, upper)
    # rng.random is below 1, and float interpolation stays within the walls: no point lies outside of the root
    points = lower + (upper - lower) * rng.random((200, inputs))
    inside = (points[:, None, :] >= low) & (points[:, None, :] <= high)
    assert inside.all(axis=2).any(axis=1).all()
    assert (low <= high).all() and (low >= lower).all() and (high <= upper).all()
    np.testing.assert_allclose(np.prod(high - low, axis=1).sum(), np.prod(upper - lower), rtol=VOLUME)
    assert len(low) == sum(d == -1 for d, _ in tree)


def test_leaves_come_in_preorder_with_the_walls_of_their_splits() -> None:
    low, high = boxes_of([0, -1, 1, -1, -1], [0.25, 0, 0.5, 0, 0])
    assert low.tolist() == [[0.0, -1.0], [0.25, -1.0], [0.25, 0.5]]
    assert high.tolist() == [[0.25, 2.0], [1.0, 0.5], [1.0, 2.0]]


@pytest.mark.parametrize(
    ("dimension", "value"),
    [
        ([], []),  # no leaf
        ([0], [0.5]),  # a split without children
        ([0, -1], [0.5, 0]),  # a child is missing
        ([-1, -1], [0, 0]),  # a second root
        ([0, -1, -1, -1], [0.5, 0, 0, 0]),  # a leaf too many
        ([2, -1, -1], [0.5, 0, 0]),  # no such input
        ([-2, -1, -1], [0.5, 0, 0]),  # counted from the end
        ([-3], [0.0]),
        ([0, -1, -1], [1.5, 0, 0]),  # beyond the wall
        ([0, -1, -1], [-0.5, 0, 0]),
        ([0, 0, -1, -1, -1], [0.5, 0.75, 0, 0, 0]),  # beyond the wall of its own box
        ([0, -1, -1], [np.nan, 0, 0]),
        ([0, -1, -1], [np.inf, 0, 0]),
    ],
)
def test_what_is_not_a_tree_of_splits_is_rejected(dimension, value) -> None:
    with pytest.raises(Rejected):
        boxes_of(dimension, value)


def test_arrays_of_different_lengths_are_no_tree() -> None:
    with pytest.raises(ValueError, match="zip"):
        boxes_of([0, -1, -1], [0.5, 0])


def test_trees_of_several_roots_follow_each_other() -> None:
    lower, upper = np.array([[0.0, 0.0], [2.0, 0.0]]), np.array([[1.0, 1.0], [4.0, 1.0]])
    low, high, root = all_leaves(np.array([-1, 0, -1, -1]), np.array([0.0, 3.0, 0.0, 0.0]), lower, upper)
    assert root.tolist() == [0, 1, 1]
    assert low.tolist() == [[0, 0], [2, 0], [3, 0]] and high.tolist() == [[1, 1], [3, 1], [4, 1]]
    for dimension in ([-1], [-1, -1, -1], [-1, 0, -1]):
        with pytest.raises(Rejected):
            all_leaves(np.array(dimension), np.full(len(dimension), 3.0), lower, upper)


@pytest.mark.parametrize(("dimension", "value"), [
    (np.zeros((2**24, 0), int), np.zeros((2**24, 0))), (np.array([[-1]]), np.zeros((1, 1))),
    (np.array(-1), np.array(0.0)), (np.array([-1.0]), np.zeros(1)), (np.array([-1]), np.zeros(1, dtype=int)),
], ids=lambda array: f"{array.dtype}{list(array.shape)}")
def test_a_tree_is_a_list_of_integers_and_one_of_floats(dimension: np.ndarray, value: np.ndarray) -> None:
    with pytest.raises(Rejected, match="split tree must be a list of integers and one of floats"):
        leaf_boxes(dimension, value, LOWER[None], UPPER[None])


def comb(splits: int, inputs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Split, leaf, split, leaf, ...: a tree as deep as it is long, and its box."""
    dimension = np.append(np.tile(np.array([0, -1], np.int8), splits), -1).astype(np.int8)
    return dimension, np.ones(len(dimension)), np.zeros((1, inputs)), np.ones((1, inputs))


def test_leaves_take_room_for_those_that_come_at_a_time_alone() -> None:
    """A tree of a few kilobytes would else ask for splits x inputs numbers, or, turned round, for depth x inputs."""
    splits, inputs = 20_000, 500
    right = comb(splits, inputs)
    preorder = np.append(np.zeros(splits, np.int8), np.full(splits + 1, -1, np.int8))
    left = preorder, np.zeros(2 * splits + 1), *right[2:]
    for dimension, value, lower, upper in (right, left):
        tracemalloc.start()
        try:
            count = sum(len(low) for low, _, _ in leaf_boxes(dimension, value, lower, upper, 64))
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert count == splits + 1 and most < 0.2 * 8 * splits * inputs


def test_the_way_through_a_tree_ends_with_the_time() -> None:
    with time_limit(0.0), pytest.raises(OutOfTime):
        next(iter(leaf_boxes(*comb(10, 2))))
