"""Which rows a model was trained on, as its bundle remembers them: nobody may be judged by what they learned from.

Flow: a kind writes it into evidence["seen"]; when a later run measures the champion, it asks which of its own test rows
that champion has seen, and leaves them out (models/tasks/supervised/evidence.py). A row counts as seen

    by its numbers     they are all those of a row that was trained on, whatever time it bears
    by its group       the split had put its group on the training side (splits.py): a row of the same window, though
                       with other numbers. Of models that are not trained on a split of rows: not asked
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feature_store.errors import InputError, nearest
from feature_store.splits import on_test_side

SEEN = "seen"  # in the evidence
_BYTES = 8  # of a row's SHA-256: a million rows against a million take one for another with 5e-8


@dataclass(frozen=True)
class TrainedRows:
    """Rows by their digests, and the split that chose them.

    Attributes:
        columns: numbers that tell rows apart, in the order of the digests.
        digests: (m,) of the rows, sorted.
        split_by: columns of the split; (): the rows come from no split.
        test_share: of it.
    """

    columns: tuple[str, ...]
    digests: NDArray[np.uint64]
    split_by: tuple[str, ...] = ()
    test_share: float = 0.0

    @classmethod
    def of(cls, frame: pd.DataFrame, columns: Sequence[str], split_by: Sequence[str] = (),
           test_share: float = 0.0) -> "TrainedRows":
        """Of the rows of `frame`. Raises InputError: a column is missing."""
        return cls(tuple(columns), np.unique(_digests(frame, columns)), tuple(split_by), test_share)

    def among(self, frame: pd.DataFrame) -> NDArray[np.bool_]:
        """[rows] of `frame`: which of them were seen.

        Raises:
            InputError: the frame lacks a column that tells.
        """
        seen = np.isin(_digests(frame, self.columns), self.digests)
        return seen | ~on_test_side(frame, self.split_by, self.test_share) if self.split_by else seen

    def to_json(self) -> dict[str, Any]:
        """The content of evidence["seen"]."""
        digests = base64.b64encode(self.digests.astype(">u8").tobytes()).decode()
        return {"columns": list(self.columns), "digests": digests, "split_by": list(self.split_by),
                "test_share": self.test_share}

    @classmethod
    def from_json(cls, data: Any) -> "TrainedRows":
        """Reads evidence["seen"].

        Raises:
            InputError: it is not of that form.
        """
        keys = tuple(cls.__dataclass_fields__)
        if not isinstance(data, Mapping) or set(data) != set(keys):
            raise InputError(f"seen: expected a mapping of {', '.join(keys)}, got "
                             f"{', '.join(map(str, data)) if isinstance(data, Mapping) else repr(data)[:40]}")
        for key in ("columns", "split_by"):
            if not isinstance(data[key], list) or not all(isinstance(name, str) for name in data[key]):
                raise InputError(f"seen.{key}: expected a list of names, got {data[key]!r}")
        share = data["test_share"]
        if isinstance(share, bool) or not isinstance(share, int | float):
            raise InputError(f"seen.test_share: expected a number, got {share!r}")
        try:
            digests = np.frombuffer(base64.b64decode(data["digests"], validate=True), dtype=">u8")
        except (TypeError, ValueError, binascii.Error) as error:
            raise InputError(f"seen.digests: expected base64 of {_BYTES} bytes a row, got {error}") from error
        return cls(tuple(data["columns"]), digests.astype(np.uint64), tuple(data["split_by"]), float(share))


def _digests(frame: pd.DataFrame, columns: Sequence[str]) -> NDArray[np.uint64]:
    """[rows]: of the numbers of each row."""
    for name in columns:
        if name not in frame:
            raise InputError(f"rows are told apart by {name!r}, which they lack; "
                             + nearest(name, map(str, frame.columns)))
    numbers = frame[list(columns)].to_numpy(dtype=">f8") + 0.0  # one zero
    return np.array([int.from_bytes(hashlib.sha256(row.tobytes()).digest()[:_BYTES]) for row in
                     np.ascontiguousarray(numbers, dtype=">f8")], dtype=np.uint64)
