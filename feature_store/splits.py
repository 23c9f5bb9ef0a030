"""Which side of the train-test split a row is on: by groups, from a hash of the group's key.

Flow: features.py splits a workload's rows with it; trained_rows.py asks it again for a champion. A group (all rows with
equal `split_by`, such as one window with every workload measured in it) is on one side whole. The side follows from the
group's key alone: not from the order of the rows, not from the other groups, not from a run's seed. So two workloads
measured in one window fall on the same side although they are split apart, a group keeps its side when more telemetry
arrives, and no run trains on what another one is tested on.

Source: vPALs, section "Data processing pipeline" (80 % train, 20 % test). The paper shuffles single rows,
which puts neighbours of one window on both sides; groups replace rows for that reason.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feature_store.digests import canonical_texts
from feature_store.errors import InputError, nearest

# In every hash: what a champion has not seen stays unseen only while nobody may choose it.
SALT = 0


@dataclass(frozen=True)
class Split:
    """`test` [rows]: whether a row is on the test side; and how many groups each side has."""

    test: NDArray[np.bool_]
    train_groups: int
    test_groups: int


def split_by_group(table: pd.DataFrame, split_by: Sequence[str], test_share: float) -> Split:
    """A group is on the test side where hash(SALT, group key) < test_share.

    The hash is SHA-256, read as a number in [0, 1). The expected share of groups is test_share; the actual
    one varies by sqrt(test_share * (1 - test_share) / groups), one standard deviation.

    Raises:
        InputError: no keys, test_share is not in (0, 1), or a side would be empty.
    """
    group, chosen = _sides(table, split_by, test_share)
    keys, test_groups = len(chosen), int(chosen.sum())
    if not 0 < test_groups < keys:
        raise InputError(f"split must leave groups on both sides, got {keys - test_groups} for training and "
                         f"{test_groups} for testing ({keys} groups by {', '.join(split_by)}, test share "
                         f"{test_share}); add data, split by finer groups, or change the test share")
    return Split(chosen[group], keys - test_groups, test_groups)


def on_test_side(table: pd.DataFrame, split_by: Sequence[str], test_share: float) -> NDArray[np.bool_]:
    """[rows]: as `split_by_group`, where a side may be empty.

    Raises:
        InputError: no keys, a column is missing, or test_share is not in (0, 1).
    """
    group, chosen = _sides(table, split_by, test_share)
    return chosen[group]


def _sides(table: pd.DataFrame, split_by: Sequence[str],
           test_share: float) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The group of each row [rows], and whether each group is on the test side."""
    if not split_by:
        raise InputError("split_by: expected at least one column, got none")
    if not 0.0 < test_share < 1.0:
        raise InputError(f"test_share must be between 0 and 1, got {test_share} (split)")
    for name in split_by:
        if name not in table:
            raise InputError(f"split_by: expected a column of the rows, got {name!r}; "
                             + nearest(name, map(str, table.columns)))
    group, keys = _groups(table, split_by)
    return group, np.asarray([_unit_interval(key) < test_share for key in keys], dtype=np.bool_)


def _groups(table: pd.DataFrame, split_by: Sequence[str]) -> tuple[NDArray[np.int64], list[tuple[str, ...]]]:
    """The group of each row [rows], numbered in order of appearance, and the key of each group as texts."""
    texts = pd.DataFrame({name: canonical_texts(table[name]) for name in split_by})
    group = np.asarray(texts.groupby(list(split_by), sort=False).ngroup(), dtype=np.int64)
    _, first = np.unique(group, return_index=True)
    return group, list(texts.iloc[first].itertuples(index=False, name=None))


def _unit_interval(key: tuple[str, ...]) -> float:
    text = ", ".join((str(SALT), *map(encode_basestring_ascii, key)))  # in brackets json.dumps, in a third of its time
    digest = hashlib.sha256(f"[{text}]".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48
