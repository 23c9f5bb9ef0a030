"""One strict way to read JSON of bundles, requests, rows: what two readers could understand differently is refused."""

import json
from typing import Any

from feature_store.errors import AssayError, RefusedError


def parse_json(data: bytes, where: str, error_kind: type[AssayError] = RefusedError) -> dict[str, Any]:
    """Reads one JSON object and refuses what two readers could understand differently.

    NaN is let through: a metric that is NaN has to reach its gate, which fails closed on it.

    Args:
        error_kind: InputError of what a user or a client wrote.

    Raises:
        RefusedError: or `error_kind`: not UTF-8, not JSON, not an object, nested too deep, or a key is given twice.
    """
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise error_kind(f"{where} must be a JSON object, got {type(error).__name__}: {error}") from error
    if not isinstance(value, dict):
        raise error_kind(f"{where} must be a JSON object, got {type(value).__name__}")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"it must say each thing once, key {key!r:.80} is given twice")
        result[key] = value
    return result
