"""Markdown pieces of the tables: numbers with their unit and spread, rows, and the markers between which they stand.

A table stands between `<!-- table: NAME -->` and `<!-- end table -->`, each on a line of its own, anywhere in
README.md or docs/; what is between them is replaced.
"""

import re
import statistics
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

MARKED = re.compile(r"^<!-- table: (?P<name>[^\n]*?) -->\n(?P<body>.*?)^<!-- end table -->$", re.MULTILINE | re.DOTALL)
NOT_MEASURED = "*Not measured yet.*"
OPENING = re.compile(r"^\s*<!-- table: ", re.MULTILINE)
SIGNIFICANT = 3
# From seconds: below these a smaller unit reads better.
_SMALLER = {"s": (0.1, 1000.0, "ms")}


def marked_tables(text: str) -> list[str]:
    """Names of the tables that a page holds. Raises ValueError for a marker without its end."""
    names = [match["name"] for match in MARKED.finditer(text)]
    # without its own end, a table takes the next one's, and swallows that table
    if len(names) != len(OPENING.findall(text)):
        raise ValueError("every `<!-- table: NAME -->` must be followed by a line `<!-- end table -->`")
    return names


def fill(text: str, render: Callable[[str], str]) -> str:
    """The page with every table made again; `render` gives "" for one without results."""
    def made(match: re.Match[str]) -> str:
        body = render(match["name"])
        return f"<!-- table: {match['name']} -->\n{body}{chr(10) if body else ''}<!-- end table -->"

    return MARKED.sub(made, text)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A Markdown table, or that nothing is measured where it has no rows; `right`: columns aligned to the right."""
    if not rows:
        return NOT_MEASURED
    if any(len(row) != len(header) for row in rows):
        raise ValueError(f"expected {len(header)} cells in each row, got {[len(row) for row in rows]}")
    rule = ["---:" if column in right else "---" for column in range(len(header))]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in [header, rule, *rows]]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def paragraph(*sentences: str) -> str:
    """Sentences as one paragraph, wrapped as the pages are."""
    return textwrap.fill(" ".join(sentences), width=118, break_long_words=False, break_on_hyphens=False)


def number(value: float) -> str:
    """Three significant digits, thousands separated, no exponent between 0.0001 and a billion."""
    if value == 0:
        return "0"
    if abs(value) >= 999.5:  # which rounds to a thousand
        return f"{float(f'{value:.{SIGNIFICANT}g}'):,.0f}"
    text = f"{value:#.{SIGNIFICANT}g}"
    return text.rstrip(".")


def with_unit(value: float, unit: str, like: float | None = None, exact: bool = False) -> str:
    """A value and its unit: seconds below 0.1 as ms, shares as percent.

    Args:
        like: another value of the same unit that decides whether the smaller one is used.
        exact: a goal, which is written as it was set, without digits that nobody measured.
    """
    decisive = abs(value if like is None else like)
    if unit in _SMALLER and 0 < decisive < _SMALLER[unit][0]:
        value, unit = value * _SMALLER[unit][1], _SMALLER[unit][2]
    if unit in ("share", "cores"):
        return (f"{100 * value:g}" if exact else f"{100 * value:.1f}") + {"share": " %", "cores": " % of a core"}[unit]
    return (f"{value:g}" if exact else number(value)) + {"1": "", "us": " µs"}.get(unit, f" {unit}")


def measured(quantity: dict[str, Any]) -> str:
    """`median (minimum to maximum of n)`, the spread only where there are several values."""
    median, unit = quantity["median"], quantity["unit"]
    if len(quantity["values"]) < 2:
        return with_unit(median, unit)
    low, high = (with_unit(quantity[key], unit, median) for key in ("minimum", "maximum"))
    return f"{with_unit(median, unit)} ({low} to {high}, {len(quantity['values'])} values)"


def median_and_range(values: Sequence[float], how: Callable[[float], str] = number) -> str:
    """`median (least to most)`; one value stands alone, none is ""."""
    if len(values) < 2:
        return "".join(map(how, values))
    return f"{how(statistics.median(values))} ({how(min(values))} to {how(max(values))})"


def mean_and_spread(values: Sequence[float], digits: int, scale: float = 1.0) -> str:
    """`mean ± standard deviation` over the seeds (sample deviation; one value stands alone)."""
    scaled = [scale * value for value in values]
    mean = f"{statistics.fmean(scaled):.{digits}f}"
    return mean if len(scaled) < 2 else f"{mean} ± {statistics.stdev(scaled):.{digits}f}"
