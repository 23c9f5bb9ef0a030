"""A specification that is common to workloads: walls may be said as multiples of a workload's settings.

    when: {p99_ms: ["slo_ms", 65536]}        of a workload with slo_ms 250: [250, 65536]
    box: {slo_ms: ["0.5 slo_ms", "slo_ms"]}  [125, 250]
"""

import re
from collections.abc import Mapping
from typing import Any

from feature_store.errors import nearest
from feature_store.written.field_errors import FieldError

_MULTIPLE = re.compile(r"(?:(\d+(?:\.\d+)?) )?([A-Za-z_]\w*)")


def demanded(written: Any, settings: Mapping[str, float], path: tuple[str | int, ...] = ()) -> Any:
    """The specification with numbers in place of multiples.

    Args:
        written: a specification as parsed YAML, or a part of one.
        settings: of the workload, by name.
        path: of the part, for messages.

    Raises:
        FieldError: a multiple of what is no setting.
    """
    if isinstance(written, Mapping):
        return {key: demanded(value, settings, (*path, key)) for key, value in written.items()}
    if not isinstance(written, list | tuple):
        return written
    walls = len(path) > 1 and path[-2] in ("when", "box")
    return [_number(value, settings, (*path, number)) if walls and isinstance(value, str)
            else demanded(value, settings, (*path, number)) for number, value in enumerate(written)]


def _number(text: str, settings: Mapping[str, float], path: tuple[str | int, ...]) -> float:
    found = _MULTIPLE.fullmatch(text)
    if found is None or found[2] not in settings:
        raise FieldError(path, f"expected a number or a multiple of a setting, such as '0.5 slo_ms', got {text!r}; "
                               f"{nearest(text.split(' ')[-1], settings)}")
    return float(found[1] or 1.0) * settings[found[2]]
