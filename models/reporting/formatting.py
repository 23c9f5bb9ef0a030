"""Numbers as a reader wants them: four digits, a unit after a blank, "missing" for what is not there.

Flow: sections.py puts these texts into tables and captions; nothing else rounds.
"""

import math
from typing import Any

from models.metrics import finite_number

MISSING = "missing"
# Suffixes of names that say the unit, and words that readers write otherwise.
UNIT_SUFFIXES = ("ms", "s", "rps", "pps", "cores", "mib", "gib", "ghz", "w")
PLAIN = ("", "1", "share", "count")  # units that no name gives up its last word for, and no heading repeats
SUFFIX_OF = {"degC": "c"}  # unit -> how a name ends that says it, where that is not the unit itself
ABBREVIATIONS = {"cpu": "CPU", "slo": "SLO", "io": "I/O", "kpi": "KPI", "psi": "PSI", "mse": "MSE", "rtt": "RTT"}
GAP = "\N{NO-BREAK SPACE}"  # keeps a number and its unit on one line


def number(value: Any, unit: str = "") -> str:
    """Four significant digits, thousands apart; text as it is, None and NaN as "missing"."""
    if isinstance(value, str):
        return value or MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    known = finite_number(value)
    if known is None:
        infinite = isinstance(value, float) and math.isinf(value)
        return ("infinite" if value > 0 else "-infinite") if infinite else MISSING
    return _digits(known) + (GAP + unit if unit else "")


def _digits(value: float) -> str:
    size = abs(value)
    if value == int(value) and size < 1e9:
        return f"{int(value):,}"
    if size >= 1e9 or size < 1e-4:
        return f"{value:.3g}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:.4g}"


def significant(value: float, digits: int = 3) -> str:
    """That many significant digits, thousands apart: 0.000412, 1.5, 1,230."""
    return f"{float(f'{value:.{digits}g}'):,.12g}"


def coefficient(value: float) -> str:
    """A correlation with two decimals, without a sign before zero; "missing" where it is not known."""
    return f"{round(value, 2) + 0.0:.2f}" if math.isfinite(value) else MISSING


def percent(share: Any) -> str:
    """A share 0..1 in percent with one decimal; up to three, then "<" or ">", where rounding would make it 0 or 100."""
    known = finite_number(share)
    if known is None:
        return MISSING
    if known in (0.0, 1.0):
        return f"{100 * known:.0f}{GAP}%"
    if not 0 < known < 1:  # no share; what it is must be seen
        return number(known)
    for decimals in (1, 2, 3):
        text = f"{100 * known:.{decimals}f}"
        if float(text) not in (0.0, 100.0):
            return f"{text}{GAP}%"
    return f"< 0.001{GAP}%" if known < 0.5 else f"> 99.999{GAP}%"


def points(share: Any, other: Any) -> str:
    """How far `share` lies above `other`, in percentage points."""
    first, second = finite_number(share), finite_number(other)
    if first is None or second is None or abs(first - second) > 1:
        return MISSING
    return f"{100 * (first - second):+.1f}{GAP}points"


def duration(seconds: Any) -> str:
    """Seconds up to two minutes, then minutes and seconds, then hours and minutes."""
    known = finite_number(seconds)
    if known is None:
        return MISSING
    if known < 120 or known > 1e9:
        return f"{known:.3g}{GAP}s"
    minutes, rest = divmod(round(known), 60)
    if minutes < 120:
        return f"{minutes}{GAP}min {rest}{GAP}s"
    return f"{minutes // 60}{GAP}h {minutes % 60}{GAP}min"


def said(name: str, unit: str = "") -> str:
    """A signal's name as words, without a suffix that says its unit: p99_ms -> p99, power_w -> power."""
    parts = name.split("_")
    says_unit = parts[-1] in UNIT_SUFFIXES or (unit not in PLAIN and parts[-1] == SUFFIX_OF.get(unit, unit.lower()))
    if len(parts) > 1 and says_unit:
        parts.pop()
        if len(parts) > 1 and parts[-1] == "per":
            parts.pop()
    return " ".join(ABBREVIATIONS.get(part, part) for part in parts)


def titled(name: str, unit: str = "") -> str:
    """As said, the unit in brackets where it says more than the name: p99_ms in ms -> p99 (ms)."""
    shown = said(name, unit)
    return shown if unit in (*PLAIN, shown) else f"{shown} ({unit})"


def words(name: str) -> str:
    """A key as words: underscores become blanks."""
    return str(name).replace("_", " ")


def count(amount: int, one: str, many: str = "") -> str:
    """`1 row`, `2,000 rows`."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"
