"""The fallback of a contract: what is read, and what is refused."""

from typing import Any

import pytest

from feature_store.errors import InputError
from serving.fallback_spec import fallback_spec

RANGE = {"minimum": 1, "maximum": 64, "most_down": 0.25, "most_up": 1.0}
GOOD: dict[str, Any] = {"rule": "hpa-cpu", "settings": {"target": 0.6, "mode": "AIMD"},
                        "safe_ranges": {"replicas": RANGE}}


def test_what_is_written_is_read_back() -> None:
    assert fallback_spec(GOOD, ["replicas"]).to_json() == GOOD
    less = {**GOOD, "safe_ranges": {"replicas": {**RANGE, "safe_side": "less"}}}
    assert fallback_spec(less, ["replicas"]).to_json() == less
    ceilings = {"heat": {"start": 3, "end": 1, "at_most": 2}}
    ceiled = {**GOOD, "safe_ranges": {"replicas": {**RANGE, "ceilings": ceilings}}}
    found = fallback_spec(ceiled, ["replicas"], ["heat"])
    assert found.to_json() == ceiled
    assert [found.safe_ranges["replicas"].at_most({"heat": heat}) for heat in (0.5, 2.0, 3.5)] == [2.0, 33.0, 64.0]
    assert found.safe_ranges["replicas"].at_most({}) == 64.0


@pytest.mark.parametrize(("change", "message"), [
    ({"rule": ""}, "rule must"),
    ({"settings": {"target": float("nan")}}, "settings must be names with numbers or words"),
    ({"settings": {"target": 10**400}}, "settings must be names with numbers or words"),
    ({"safe_ranges": {}}, "safe_ranges must be one for each of replicas"),
    ({"safe_ranges": {"replicas": {**RANGE, "minimum": 65}}}, "safe range of replicas must have minimum <= maximum"),
    ({"safe_ranges": {"replicas": {**RANGE, "most_down": 2}}}, "safe range of replicas"),
    ({"safe_ranges": {"replicas": {**RANGE, "safe_side": "up"}}}, "safe_side, more or less, if any"),
    *(({"safe_ranges": {"replicas": {**RANGE, "ceilings": ceilings}}}, "ceilings of replicas must leave its least")
      for ceilings in ({"heat": {"start": 3, "end": 1, "at_most": -5}},
                       {name: {"start": 3, "end": 1, "at_most": 20} for name in ("heat", "noise")})),
    *(({"safe_ranges": {"replicas": {**RANGE, "ceilings": ceilings}}}, "ceilings of replicas must be inputs with")
      for ceilings in ([], {"heet": {"start": 3, "end": 1, "at_most": 2}}, {"heat": 3},
                       {"heat": {"start": 3, "end": 1}},
                       {"heat": {"start": 1, "end": 1, "at_most": 2}},
                       {"heat": {"start": "3", "end": 1, "at_most": 2}})),
    ({"more": 1}, "fallback must have the keys"),
])
def test_anything_else_is_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        fallback_spec({**GOOD, **change}, ["replicas"], ["heat", "noise"])
    assert "\n" not in str(refused.value)
