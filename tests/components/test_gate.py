"""A champion that cannot be measured fails the gates that compare with it, and takes no other workload along."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.gate import _champion
from feature_store.errors import AssayError, InputError, RefusedError, UnavailableError


def measured(champion: Any, version: int | None = 3, opened: Any = None) -> Any:
    """What the gate step learns of the champion from a kind with this `champion`."""
    registry = SimpleNamespace(champion=lambda task, workload: version, open_champion=opened or (lambda *_: None))
    return _champion(registry, SimpleNamespace(champion=champion), SimpleNamespace(name="t"), "w", Path(), Path())


@pytest.mark.parametrize(("error", "reason"), [
    (InputError("inputs differ"), "inputs differ"), (KeyError("test_mse"), "KeyError: 'test_mse'"),
    (ValueError("shapes (3,) and (4,)"), "ValueError: shapes (3,) and (4,)"), (SystemExit(0), "SystemExit: 0"),
])
def test_whatever_a_kind_raises_is_the_reason(error: BaseException, reason: str) -> None:
    def champion(*_: Any) -> Any:
        raise error

    assert measured(champion) == {"version": 3, "metrics": {}, "reason": reason}


def test_what_a_kind_returns_is_no_mapping() -> None:
    found = measured(lambda *_: 5)
    assert found["metrics"] == {} and found["reason"].startswith("TypeError")


def test_the_version_is_the_registrys_word() -> None:
    assert measured(lambda *_: {"version": 99, "metrics": {"a": 1.0}}) == {"version": 3, "metrics": {"a": 1.0}}
    assert measured(lambda *_: {}, version=None) is None


@pytest.mark.parametrize("error", [UnavailableError("registry must answer"), AssayError("ledger must be readable")])
def test_a_service_that_is_away_says_nothing_against_the_new_model(error: AssayError) -> None:
    """Else its gate would fail, and the ledger would call it rejected for good."""
    def opened(*_: Any) -> Any:
        raise error

    with pytest.raises(UnavailableError, match=str(error)):
        measured(lambda *_: {}, opened=opened)


def test_a_champion_that_is_refused_is_the_reason() -> None:
    def opened(*_: Any) -> Any:
        raise RefusedError("bundle was exchanged")

    assert measured(lambda *_: {}, opened=opened)["reason"] == "bundle was exchanged"
