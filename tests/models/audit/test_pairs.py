"""Pairs that differ in one feature, against brute force; the noise of repeats, against the noise that was drawn."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.audit.pairs import (
    exact_pairs,
    groups_of_equal,
    levels,
    matched_pairs,
    noise_of_near_repeats,
    noise_of_repeats,
    standardised,
)

MANY = 10 ** 6


def as_set(pairs: np.ndarray) -> set[tuple[int, int]]:
    return {(int(a), int(b)) for a, b in pairs}


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 30), columns=st.integers(1, 4), seed=st.integers(0, 10 ** 6))
def test_exact_pairs_are_those_of_brute_force(rows: int, columns: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, 3, (rows, columns)).astype(float)
    codes = [levels(column, 1e-9) for column in x.T]
    pairs = exact_pairs(groups_of_equal(codes[1:], rows), x[:, 0], codes[0], MANY, seed=0)
    wanted = {(a, b) for a in range(rows) for b in range(rows) if x[a, 0] < x[b, 0] and (x[a, 1:] == x[b, 1:]).all()}
    assert as_set(pairs) == wanted and len(pairs) == len(wanted)


def test_values_apart_by_less_than_the_tolerance_are_one() -> None:
    column = np.array([5.0, 0.0, 10.0, 5.0 + 1e-8, 5.1])
    assert levels(column, 1e-6).tolist() == [1, 0, 3, 1, 2]
    assert levels(column, 0.0).tolist() == [1, 0, 4, 2, 3]
    assert levels(np.full(3, 7.0), 1e-9).tolist() == [0, 0, 0]


def test_of_too_many_pairs_a_seeded_sample_is_taken() -> None:
    feature = np.arange(400.0)
    taken = [exact_pairs(np.zeros(400, dtype=np.int64), feature, levels(feature, 0), 500, seed) for seed in (0, 0, 1)]
    assert 450 < len(taken[0]) <= 500 and len(as_set(taken[0])) == len(taken[0])
    assert (feature[taken[0][:, 0]] < feature[taken[0][:, 1]]).all()
    assert np.array_equal(taken[0], taken[1]) and as_set(taken[0]) != as_set(taken[2])


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 40), held=st.integers(1, 3), seed=st.integers(0, 10 ** 6))
def test_with_partners_enough_matched_pairs_are_those_of_brute_force(rows: int, held: int, seed: int) -> None:
    z = np.random.default_rng(seed).normal(size=(rows, held + 1))
    pairs = matched_pairs(z[:, 1:], z[:, 0], caliper=0.5, step=0.3, partners=rows)
    wanted = {(a, b) for a in range(rows) for b in range(rows)
              if z[b, 0] - z[a, 0] >= 0.3 and np.abs(z[a, 1:] - z[b, 1:]).max() < 0.5}
    assert as_set(pairs) == wanted and len(pairs) == len(wanted)


def test_a_row_is_matched_with_the_nearest_that_differ_in_the_feature() -> None:
    held = np.array([[0.0], [0.01], [0.03], [0.06], [9.0]])
    feature = np.array([0.0, 0.1, 1.0, 2.0, 3.0])  # row 1 is nearest to row 0 but does not differ enough
    assert as_set(matched_pairs(held, feature, 0.25, 0.5, partners=1)) == {(0, 2), (1, 2), (2, 3)}


def test_noise_of_repeats_is_the_pooled_standard_deviation() -> None:
    generator = np.random.default_rng(0)
    group = np.repeat(np.arange(2000), 3)
    y = generator.normal(size=2000)[group] + 0.2 * generator.normal(size=6000)
    assert math.isclose(noise_of_repeats(group, y), 0.2, rel_tol=0.03)
    assert math.isclose(noise_of_repeats(np.zeros(6000, dtype=np.int64), y), y.std(ddof=1))
    assert math.isnan(noise_of_repeats(np.arange(5), np.arange(5.0)))


def test_noise_of_near_repeats_is_found_on_a_smooth_function() -> None:
    generator = np.random.default_rng(0)
    x = generator.random((4000, 2))
    y = x.sum(axis=1) + 0.2 * generator.normal(size=4000)
    assert math.isclose(noise_of_near_repeats(standardised(x), y, 0.25, np.arange(4000)), 0.2, rel_tol=0.1)


def test_equal_rows_are_near_repeats_of_each_other_not_of_themselves() -> None:
    x = np.zeros((50, 1))
    y = np.random.default_rng(0).normal(size=50)
    assert noise_of_near_repeats(x, y, 0.25, np.arange(50)) > 0.5
    assert math.isnan(noise_of_near_repeats(np.array([[0.0], [1.0]]), np.array([1.0, 2.0]), 0.25, np.arange(2)))
    assert math.isnan(noise_of_near_repeats(np.zeros((1, 1)), np.zeros(1), 0.25, np.arange(1)))


def test_near_repeats_are_of_another_group_where_groups_are_told() -> None:
    """What a group adds to all its rows is noise between groups, and unseen within one."""
    generator = np.random.default_rng(0)
    x, group = 0.01 * generator.random((4000, 1)), np.arange(400).repeat(10)[generator.permutation(4000)]
    y = generator.normal(size=400)[group] + 0.1 * generator.normal(size=4000)
    assert math.isclose(noise_of_near_repeats(x, y, 0.25, group), math.sqrt(1.01), rel_tol=0.1)
    assert math.isnan(noise_of_near_repeats(x, y, 0.25, np.zeros(4000, dtype=np.int64)))
