"""One way to write JSON that is hashed or signed, and one strict way to read JSON from a bundle.

Canonical means: keys sorted, no spaces, ASCII escapes, no NaN. Two programs that agree on the value
agree on the bytes, so a digest of the bytes names the value.
"""

import json
from typing import Any

from feature_store.errors import RefusedError

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: Any) -> bytes:
    """The bytes that a digest or a signature of `value` is taken over.

    Raises:
        ValueError: the value holds NaN or an infinity.
    """
    return _ENCODER.encode(value).encode("ascii")


def parse_json(data: bytes, where: str) -> dict[str, Any]:
    """Reads one JSON object and refuses what two readers could understand differently.

    NaN is let through: a metric that is NaN has to reach its gate, which fails closed on it.

    Raises:
        RefusedError: not UTF-8, not JSON, not an object, nested too deep, or a key is given twice.
    """
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{where} must be a JSON object, got {type(error).__name__}: {error}") from error
    if not isinstance(value, dict):
        raise RefusedError(f"{where} must be a JSON object, got {type(value).__name__}")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"key {key!r} is given twice")
        result[key] = value
    return result
