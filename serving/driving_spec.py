"""What a contract says of how a policy is driven: how often, what its targets stand against, what it is told.

    "driving": {"acting": {"module": "systems.autoscaling.acting", "sha256": "..."}, "step_s": 15.0,
                "current": {"target_replicas": "replicas"}, "whole": ["target_replicas"],
                "settings": {"slo_ms": 15.0}, "seen": {"margin": 1.5, "ranges": [...]}}

acting: the module of observer and rules, and the digest of its code (models/control/contract/acting.py). settings:
inputs that never change, as the policy was trained for; whoever drives it feeds these, and measures the others. seen:
what training saw (seen_spec.py).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from feature_store.errors import InputError
from feature_store.finite_numbers import is_finite_number
from feature_store.names import is_sha256
from serving.seen_spec import SeenSpec, seen_spec

_WHERE = "contract.json, driving"
_KEYS = {"acting", "step_s", "current", "whole", "settings", "seen"}
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class ActingSpec:
    """A module, and the SHA-256 of its code."""

    module: str
    sha256: str


@dataclass(frozen=True)
class DrivingSpec:
    """How often a policy decides, what its targets stand against, and what it is told.

    Attributes:
        acting: what acts beside a live system.
        step_s: seconds between two decisions, > 0.
        current: output -> the input that observes its present value.
        whole: outputs that are whole numbers.
        levels: output -> the only values that may be set, ascending; left out where any may.
        settings: input -> value.
        seen: what is out of distribution.
    """

    acting: ActingSpec
    step_s: float
    current: Mapping[str, str]
    whole: tuple[str, ...]
    settings: Mapping[str, float]
    seen: SeenSpec = field(default_factory=SeenSpec)
    levels: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As in contract.json."""
        levels = {"levels": {name: list(values) for name, values in self.levels.items()}} if self.levels else {}
        return {**levels, "acting": vars(self.acting).copy(), "step_s": self.step_s, "current": dict(self.current),
                "whole": list(self.whole), "settings": dict(self.settings), "seen": self.seen.to_json()}


def driving_spec(data: Any, inputs: Sequence[str], outputs: Sequence[str]) -> DrivingSpec:
    """Reads it.

    Args:
        inputs, outputs: names of the model's.

    Raises:
        InputError: a key is unknown or missing, a value is of a wrong type, a name is none of the model's.
    """
    if not isinstance(data, Mapping) or set(data) - {"levels"} != _KEYS:
        raise InputError(f"driving must have the keys {', '.join(sorted(_KEYS))}, got {data!r} ({_WHERE})")
    acting, step_s, current, whole, settings = (data[key] for key in
                                                ("acting", "step_s", "current", "whole", "settings"))
    if not isinstance(acting, Mapping) or set(acting) != {"module", "sha256"} or not (
            isinstance(acting["module"], str) and _MODULE.fullmatch(acting["module"]) and is_sha256(acting["sha256"])):
        raise InputError(f"acting must be the name of a module and the SHA-256 of its code, got {acting!r} ({_WHERE})")
    if not is_finite_number(step_s) or step_s <= 0:
        raise InputError(f"step_s must be a number > 0, got {step_s!r} ({_WHERE})")
    if not isinstance(current, Mapping) or set(current) != set(outputs) or \
            not all(isinstance(name, str) and name in inputs for name in current.values()):
        raise InputError(f"current must name an input for each of {', '.join(outputs)}, got {current!r} ({_WHERE})")
    if not isinstance(whole, list) or not all(isinstance(name, str) and name in outputs for name in whole):
        raise InputError(f"whole must be a list of outputs, got {whole!r} ({_WHERE})")
    if not isinstance(settings, Mapping) or \
            not all(name in inputs and is_finite_number(value) for name, value in settings.items()):
        raise InputError(f"settings must be inputs with finite numbers, got {settings!r} ({_WHERE})")
    levels = data.get("levels", {})
    if not isinstance(levels, Mapping) or not all(
            name in outputs and name not in whole and isinstance(values, list) and len(values) > 1
            and all(is_finite_number(value) and value > 0 for value in values)
            and all(below < above for below, above in pairwise(values)) for name, values in levels.items()):
        raise InputError(f"levels must be outputs with ascending numbers > 0, got {levels!r} ({_WHERE})")
    return DrivingSpec(ActingSpec(**acting), float(step_s), dict(current), tuple(whole),
                       {name: float(value) for name, value in settings.items()}, seen_spec(data["seen"], inputs),
                       {name: tuple(map(float, values)) for name, values in levels.items()})
