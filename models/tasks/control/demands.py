"""A specification that is common to workloads: walls may be said as multiples of a workload's settings and limits.

    when: {p99_ms: ["slo_ms", 65536]}        of a workload with slo_ms 250: [250, 65536]
    box: {slo_ms: ["0.5 slo_ms", "slo_ms"]}  [125, 250]
    range: {output: target_rate_pps, maximum: "1.0003 target_rate_pps.high"}    with limits of [4, 4000]: 4001.2
"""

import re
from collections.abc import Mapping
from typing import Any

from feature_store.errors import nearest
from feature_store.written.field_errors import FieldError

_MULTIPLE = re.compile(r"(?:(\d+(?:\.\d+)?) )?([A-Za-z_]\w*(?:\.(?:low|high))?)")


def demanded(written: Any, known: Mapping[str, float], path: tuple[str | int, ...] = ()) -> Any:
    """The specification with numbers in place of multiples.

    Args:
        written: a specification as parsed YAML, or a part of one.
        known: settings of the workload, and its limits as `control.low` and `control.high`.
        path: of the part, for messages.

    Raises:
        FieldError: a multiple of what is not known.
    """
    if isinstance(written, Mapping):
        return {key: _number(value, known, (*path, key)) if key in ("minimum", "maximum") and isinstance(value, str)
                else demanded(value, known, (*path, key)) for key, value in written.items()}
    if not isinstance(written, list | tuple):
        return written
    walls = len(path) > 1 and path[-2] in ("when", "box")
    return [_number(value, known, (*path, number)) if walls and isinstance(value, str)
            else demanded(value, known, (*path, number)) for number, value in enumerate(written)]


def _number(text: str, known: Mapping[str, float], path: tuple[str | int, ...]) -> float:
    found = _MULTIPLE.fullmatch(text)
    if found is None or found[2] not in known:
        raise FieldError(path, f"expected a number or a multiple of a setting or limit, such as '0.5 slo_ms' or "
                               f"'2 target_rate_pps.low', got {text!r}; {nearest(text.split(' ')[-1], known)}")
    return float(found[1] or 1.0) * known[found[2]]
