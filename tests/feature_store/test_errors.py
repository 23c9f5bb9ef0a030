"""The exception family: every message is one line."""

import pytest

from feature_store.errors import AssayError, InputError, RefusedError, nearest


@pytest.mark.parametrize("family", [AssayError, InputError, RefusedError])
def test_what_a_library_says_in_several_lines_is_one(family: type[AssayError]) -> None:
    said = "Nodes must be sorted,\n  but input 'z'  is no output.\r\n\n==> Context\n"
    assert str(family(said)) == "Nodes must be sorted, but input 'z'  is no output. ==> Context"


def test_a_near_name_is_offered_and_otherwise_all() -> None:
    assert nearest("latncy", ["latency", "load"]) == "did you mean 'latency'?"
    assert nearest("x", ["load", "cores"]) == "known: cores, load"
    assert nearest("x", []) == "known: none"
