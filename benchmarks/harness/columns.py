"""Tables that are said column by column: its header, what of a row it shows, how that is printed.

    columns_table(results["entries"],
                  left("data", "data"), right("workloads", "workloads", ","), right("fit, s", "fit.seconds", number))

A row is what the caller makes of the result: an entry, a group of entries, a name with its values.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from benchmarks.harness.markdown import table

What = str | Callable[[Any], Any]
How = str | Callable[[Any], str]


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        header: its first line.
        what: of a row: a key ("seconds"; "fit.seconds" of a part), or a function of the row.
        how: a value is printed: a format specification (",", ".2f"), or a function. None is an empty cell.
        right: whether it is aligned to the right.
    """

    header: str
    what: What
    how: How
    right: bool

    def cell(self, row: Any) -> str:
        """What is printed of a row."""
        if isinstance(self.what, str):
            value = reduce(lambda part, key: part[key], self.what.split("."), row)
        else:
            value = self.what(row)
        if value is None:
            return ""
        return format(value, self.how) if isinstance(self.how, str) else self.how(value)


def left(header: str, what: What, how: How = "") -> Column:
    """A column of names and sentences."""
    return Column(header, what, how, right=False)


def right(header: str, what: What, how: How = "") -> Column:
    """A column of numbers."""
    return Column(header, what, how, right=True)


def percent(digits: int = 0, unit: str = " %", sign: str = "") -> Callable[[float], str]:
    """How a share is printed; without a unit where the header says it."""
    return lambda share: f"{100 * share:{sign}.{digits}f}{unit}"


def columns_table(rows: Iterable[Any], *columns: Column) -> str:
    """A Markdown table, a line a row; says that nothing is measured where there are none."""
    return table([column.header for column in columns], [[column.cell(row) for column in columns] for row in rows],
                 [place for place, column in enumerate(columns) if column.right])
