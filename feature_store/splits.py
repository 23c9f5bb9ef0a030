"""Which side of the train-test split a row is on: by groups, from a hash of the group's key.

Flow: features.py splits a workload's rows with it. A group (all rows with equal `split_by`, such as one
window with every workload measured in it) is on one side whole. The side follows from seed and group key
alone: not from the order of the rows, not from the other groups. So two workloads measured in one window fall
on the same side although they are split apart, and a group keeps its side when more telemetry arrives.

Source: vPALs, section "Data processing pipeline" (80 % train, 20 % test). The paper shuffles single rows,
which puts neighbours of one window on both sides; groups replace rows for that reason.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feature_store.digests import canonical_texts
from feature_store.errors import InputError


@dataclass(frozen=True)
class Split:
    """`test` [rows]: whether a row is on the test side; and how many groups each side has."""

    test: NDArray[np.bool_]
    train_groups: int
    test_groups: int


def split_by_group(table: pd.DataFrame, split_by: Sequence[str], test_share: float, seed: int) -> Split:
    """A group is on the test side where hash(seed, group key) < test_share.

    The hash is SHA-256, read as a number in [0, 1). The expected share of groups is test_share; the actual
    one varies by sqrt(test_share * (1 - test_share) / groups), one standard deviation.

    Raises:
        InputError: no keys, test_share is not in (0, 1), or a side would be empty.
    """
    if not split_by:
        raise InputError("split_by: expected at least one column, got none")
    if not 0.0 < test_share < 1.0:
        raise InputError(f"test_share must be between 0 and 1, got {test_share} (split)")
    group, keys = _groups(table, split_by)
    chosen = np.asarray([_unit_interval(seed, key) < test_share for key in keys], dtype=np.bool_)
    test_groups = int(chosen.sum())
    if not 0 < test_groups < len(keys):
        raise InputError(f"split must leave groups on both sides, got {len(keys) - test_groups} for training "
                         f"and {test_groups} for testing ({len(keys)} groups by {', '.join(split_by)}, test "
                         f"share {test_share}, seed {seed}); add data or take another seed")
    return Split(chosen[group], len(keys) - test_groups, test_groups)


def _groups(table: pd.DataFrame, split_by: Sequence[str]) -> tuple[NDArray[np.int64], list[tuple[str, ...]]]:
    """The group of each row [rows], numbered in order of appearance, and the key of each group as texts."""
    texts = pd.DataFrame({name: canonical_texts(table[name]) for name in split_by})
    group = np.asarray(texts.groupby(list(split_by), sort=False).ngroup(), dtype=np.int64)
    _, first = np.unique(group, return_index=True)
    return group, list(texts.iloc[first].itertuples(index=False, name=None))


def _unit_interval(seed: int, key: tuple[str, ...]) -> float:
    digest = hashlib.sha256(json.dumps([seed, *key]).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48
