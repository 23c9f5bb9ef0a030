"""What is to become of bad rows: `bad_rows` of a mapping, which lets a few of them be dropped where one would stop all.

    bad_rows: {drop: true, at_most: 1 %}              every rule that a single row can break
    bad_rows: {drop: [not_null, range], at_most: 0.01}

Flow: mapping.py reads it, origin.py carries it beside the telemetry, dropping.py applies it before the data gate.
Of measurements: measurement_mapping.py reads it, measurement_dropping.py applies it while the file is read.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from feature_store.written.model import ListOf, Written

# Rules (rules.py) that a single row can break, in the order in which they are applied: what is judged beside other rows
# is judged once the rows are gone that are bad by themselves. numeric: a cell that no number or time can be read from.
RowRule = Literal["numeric", "not_null", "finite", "range", "time_plausible", "unique_windows", "time_order",
                  "time_overlap", "time_gap"]
ROW_RULES: tuple[str, ...] = get_args(RowRule)
RunRule = Literal["numeric", "not_null", "finite", "range"]  # those that a run of a file of measurements can break
RUN_RULES: tuple[str, ...] = get_args(RunRule)
DROP_THEM = "have a few such rows dropped by `bad_rows` in the mapping"  # what a message advises
MOST_ADVISED_PERCENT = 10  # of the rows; where more are bad, it is not they that are to go
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")


def _share(given: Any) -> Any:
    percent = _PERCENT.fullmatch(given) if isinstance(given, str) else None
    share = float(percent[1]) / 100 if percent else given
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise ValueError(f"expected a share above 0 and below 1, such as 1 % or 0.01, got {given!r}")
    return share


Share = Annotated[float, BeforeValidator(_share, json_schema_input_type=str | float)]


@dataclass(frozen=True)
class BadRows:
    """Which bad rows are dropped.

    Attributes:
        rules: of ROW_RULES: a row that breaks one of them is dropped.
        at_most: share of a workload's rows, in (0, 1); where more are bad, none is dropped and the workload stops.
    """

    rules: tuple[str, ...]
    at_most: float

    def allowed(self, rows: int) -> int:
        """How many of a number of rows may be dropped."""
        return math.floor(self.at_most * rows + 1e-9)  # 0.29 of 100 are 29


def _policy(drop: Literal[True] | Sequence[str], rules: tuple[str, ...], at_most: float) -> BadRows:
    """Of the rules that can be broken, in their order: all, or those that are listed."""
    return BadRows(rules if drop is True else tuple(rule for rule in rules if rule in drop), at_most)


class BadRowsFields(Written):
    """Bad rows are dropped, counted and listed, as long as they are few."""

    drop: Literal[True] | Annotated[ListOf[RowRule], Field(min_length=1)] = Field(
        default=True, description="`true`: rows that break any of the rules that a single row can break; a list: of "
                                  "these alone")
    at_most: Share = Field(
        description="Share of a workload's rows that may be dropped: `1 %` or 0.01. Where more are bad, the workload "
                    "stops")

    def policy(self) -> BadRows:
        """As a plain value."""
        return _policy(self.drop, ROW_RULES, self.at_most)


class BadRunsFields(Written):
    """Bad runs are dropped, counted and listed, as long as they are few."""

    drop: Literal[True] | Annotated[ListOf[RunRule], Field(min_length=1)] = Field(
        default=True, description="`true`: runs that break any of the rules; a list: of these alone")
    at_most: Share = Field(
        description="Share of a workload's runs that did not fail that may be dropped: `1 %` or 0.01. Where more are "
                    "bad, the file is refused")

    def policy(self) -> BadRows:
        """As a plain value."""
        return _policy(self.drop, RUN_RULES, self.at_most)
