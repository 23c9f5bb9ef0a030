"""One way to write JSON that is signed, one strict way to read it."""

import math

import pytest

from feature_store.errors import RefusedError
from feature_store.strict_json import parse_json
from serving.canonical import canonical_json


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":',
    ],
)
def test_json_that_two_readers_could_read_differently_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedError, match="file must be a JSON object"):
        parse_json(data, "file")


def test_canonical_json_refuses_nan() -> None:
    assert canonical_json({"b": [1, 2.5], "a": "é"}) == b'{"a":"\\u00e9","b":[1,2.5]}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": math.nan})
