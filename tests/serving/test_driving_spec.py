"""How a policy is driven, as a contract says it: what is read, and what is refused."""

from typing import Any

import pytest

from feature_store.errors import InputError
from serving.driving_spec import driving_spec

GOOD: dict[str, Any] = {"acting": {"module": "a.b_c", "sha256": "0a" * 32}, "step_s": 15.0,
                        "current": {"target": "now"}, "whole": ["target"],
                        "settings": {"slo_ms": 15.0},
                        "seen": {"margin": 1.5, "ranges": [{"name": "load", "scale": "log", "terms": {"load": 1.0},
                                                            "minimum": 2.0, "maximum": 80.0}]}}
INPUTS = ["now", "slo_ms", "load"]


def test_what_is_written_is_read_back() -> None:
    assert driving_spec(GOOD, INPUTS, ["target"]).to_json() == GOOD
    assert driving_spec(GOOD, INPUTS, ["target"]).acting.module == "a.b_c"
    levels = {**GOOD, "whole": [], "levels": {"target": [800.0, 1000.0]}}
    assert driving_spec(levels, INPUTS, ["target"]).to_json() == levels


@pytest.mark.parametrize(("change", "message"), [
    *(({"acting": acting}, "acting must be the name of a module and the SHA-256 of its code") for acting in (
        "a.b", None, {"module": "a.b"}, {"module": "../evil", "sha256": "0" * 64},
        {"module": "os; rm", "sha256": "0" * 64}, {"module": "", "sha256": "0" * 64},
        {"module": "a", "sha256": "0" * 63}, {"module": "a", "sha256": "G" * 64},
        {"module": 1, "sha256": "0" * 64}, {"module": "a", "sha256": "0" * 64, "more": 1})),
    ({"step_s": 0}, "step_s must be a number > 0"),
    ({"step_s": 10**400}, "step_s must be a number > 0"),
    ({"step_s": True}, "step_s must be a number > 0"),
    ({"current": {}}, "current must name an input for each of target"),
    ({"current": {"target": "nothing"}}, "current must name an input"),
    ({"whole": ["load"]}, "whole must be a list of outputs"),
    ({"levels": {"load": [1.0, 2.0]}}, "levels must be outputs with ascending numbers"),
    ({"levels": {"target": [1.0, 2.0]}}, "levels must be outputs"),  # it is whole
    ({"whole": [], "levels": {"target": [2.0, 1.0]}}, "levels must be outputs"),
    ({"whole": [], "levels": {"target": [1.0]}}, "levels must be outputs"),
    ({"whole": [], "levels": {"target": [0.0, 1.0]}}, "levels must be outputs"),
    ({"whole": [], "levels": {"target": [1.0, float("inf")]}}, "levels must be outputs"),
    ({"whole": "target"}, "whole must be a list of outputs"),
    ({"settings": {"slo_ms": float("inf")}}, "settings must be inputs with finite numbers"),
    ({"settings": {"other": 1.0}}, "settings must be inputs"),
    ({"seen": {}}, "seen must have the keys"),
    ({"more": 1}, "driving must have the keys"),
])
def test_anything_else_is_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        driving_spec({**GOOD, **change}, INPUTS, ["target"])
    assert "\n" not in str(refused.value)
