"""One way to write JSON that is hashed or signed.

Canonical means: keys sorted, no spaces, ASCII escapes, no NaN. Two programs that agree on the value
agree on the bytes, so a digest of the bytes names the value.
"""

import json
from typing import Any

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: Any) -> bytes:
    """The bytes that a digest or a signature of `value` is taken over.

    Raises:
        ValueError: the value holds NaN or an infinity.
    """
    return _ENCODER.encode(value).encode("ascii")
