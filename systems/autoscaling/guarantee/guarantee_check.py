"""Checks a guarantee that a bundle carries: the law, what the policy sees and the sentence are made here.

The file says the service (CPU time a request, memory, objective), the load, by how much it changes, limits and
replicas; they stand in the sentence, and all else follows from them (in_fluid_law.py). The guarantee rests on orders
that are proved of the same model as its specification; `missing` says what lacks. No torch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from models.verification.checker.archive import Rejected
from models.verification.checker.chain import read_chain
from models.verification.closed_loop.answer import GuaranteeCheck
from models.verification.language.amounts import plain
from systems.autoscaling.guarantee.catching_up import KEPT, ScalerLaw
from systems.autoscaling.guarantee.check_scaler_guarantee import check_scaler_guarantee
from systems.autoscaling.guarantee.in_fluid_law import Service, law_of, scaler_of
from systems.autoscaling.guarantee.packed import packed, unpacked
from systems.autoscaling.interface import CONTROLS

FORMAT = "assay-guarantee/1"
LEAST_LIMIT, LEAST_REPLICAS = 0.5, 2  # of the law: cores, a number
ASSUMED = ("A core works off a core second a second, replicas serve at once, metrics are those of the last step and "
           "exact, memory stays as it is set, disk and network idle, the load has changed no faster for half an hour. "
           "It rests on the orders that are proved of the file itself: more latency never means less, and nothing is "
           "taken away while the objective is missed.")
_FEW, _MOST = 4, 1e9  # replicas of which one may always go; no limit
_WHOLE = 0.01  # by which an order of replicas may be missed: what is rounded up after that stands where it stood
# target -> (what is set at present, by how much an order may be missed, least present value of the law)
_TARGETS = {"target_cpu_limit_cores": ("cpu_limit_cores", KEPT, LEAST_LIMIT),
            "target_replicas": ("replicas", _WHOLE, LEAST_REPLICAS)}


def missing(properties: Sequence[Mapping[str, Any]]) -> str:
    """What a specification (its `properties`, written out) lacks for a guarantee to rest on it; "": nothing."""
    monotone = {(name, one["monotone"]["direction"], one["monotone"]["output"]) for one in properties
                if "monotone" in one and not one["monotone"].get("when")
                for name in one["monotone"]["features"]}
    orders = [one["order"] for one in properties if "order" in one]
    most = {control.name: control.high for control in CONTROLS}
    for target, (current, margin, least) in _TARGETS.items():
        for name, direction in (("p99_ms", "increasing"), ("served_share", "decreasing")):
            if (name, direction, target) not in monotone:
                return f"{target} must be monotone in {name} ({direction})"
        of = [one for one in orders if (one["upper"], one["lower"]) == (target, current)]
        kept = [one for one in of if one.get("at_least", {}) == {"p99_ms": "slo_ms"}]
        if not _covered(_ranges(kept, current, 1.0, margin), least, most[target]):
            return f"{target} must not be below {current} while the objective is missed"
        free = [one for one in of if not one.get("at_least")]
        few = _ranges(free, current, 1.0, 1.0 + _WHOLE) if target == "target_replicas" else []
        ranges = [*_ranges(free, current, 0.75, margin), *(one for one in few if one[1] <= _FEW)]
        if not _covered(ranges, least, most[target]):
            return f"{target} must keep 75 % of {current}, or all but one of up to {_FEW}"
    return ""


def falls(properties: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """By how much the targets of limit and replicas may fall while latency rises: the order's `violation`."""
    found = [max((one["monotone"].get("violation", 0.0) for one in properties if "monotone" in one
                  and one["monotone"]["output"] == target and "p99_ms" in one["monotone"]["features"]
                  and not one["monotone"].get("when")), default=0.0) for target in _TARGETS]
    return found[0], found[1]


def _ranges(orders: Sequence[Mapping[str, Any]], current: str, factor: float, margin: float
            ) -> list[tuple[float, float]]:
    """Present values for which one of the orders holds with that factor and margin at least."""
    conditions = [one.get("when") or {} for one in orders if one["factor"] >= factor and one["margin"] >= -margin]
    return [tuple(when.get(current, (0.0, _MOST))) for when in conditions if set(when) <= {current}]


def _covered(ranges: Sequence[tuple[float, float]], least: float, most: float) -> bool:
    """Whether ranges cover all present values from `least` to `most`."""
    for low, high in sorted(ranges):
        if low <= least:
            least = max(least, high)
    return least >= most


def shipped(folder: Path, service: Service, law: ScalerLaw) -> bytes:
    """The file of a guarantee that `scaler_guarantee` left in the folder, for `check_shipped`."""
    return packed(folder, {
        "format": FORMAT, "service": asdict(service), "load": [law.load_low, law.load_high], "change": law.change,
        "limits": [law.limit_low, law.limit_high], "replicas": [law.replicas_low, law.replicas_high]})


def check_shipped(content: bytes, model: bytes, properties: Sequence[Mapping[str, Any]], settings: Mapping[str, float],
                  seconds: float = math.inf) -> GuaranteeCheck:
    """See `GuaranteeChecker` (models/control/contract/guarantee.py)."""
    try:
        if lacks := missing(properties):
            raise Rejected(f"guarantee must rest on what is proved of the model: {lacks}")
        with TemporaryDirectory(prefix="assay-check-") as name:
            service, law = _asked(unpacked(content, Path(name)))
            if settings.get("slo_ms", service.slo_ms) != service.slo_ms:
                raise Rejected(f"objective must be the policy's, {plain(settings['slo_ms'])} ms, got "
                               f"{plain(service.slo_ms)} ms")
            scaler = scaler_of(read_chain(model), service, law, falls(properties))
            found = check_scaler_guarantee(Path(name), scaler, law, seconds)
        if not found.accepted:
            return found
        return replace(found, statement=said(service, found.statement), about=said(service, found.about))
    except Rejected as error:
        return GuaranteeCheck(False, str(error))
    except Exception as error:  # a malformed file of any kind is a refusal, not a crash
        return GuaranteeCheck(False, f"guarantee must be readable, got {type(error).__name__}: {error}")


def said(service: Service, statement: str) -> str:
    """The sentence with what it is about and what it assumes."""
    return (f"Of requests that take {plain(service.cpu_ms)} ms of CPU, replicas that use {plain(service.memory_mib)} "
            f"MiB and an objective of {plain(service.slo_ms)} ms. {statement} Assumed: {ASSUMED}")


def _asked(about: Mapping[str, Any]) -> tuple[Service, ScalerLaw]:
    """What the file is about. Raises Rejected, KeyError, TypeError, ValueError."""
    keys = {"format", "service", "load", "change", "limits", "replicas"}
    if set(about) != keys or about["format"] != FORMAT:
        raise Rejected(f"guarantee must be {FORMAT} with {', '.join(sorted(keys))}, got {str(about)[:200]}")
    service = Service(**{name: float(value) for name, value in about["service"].items()})
    (low, high), (load_low, load_high) = about["replicas"], map(float, about["load"])
    highest = {control.name: control.high for control in CONTROLS}
    if not (type(low) is type(high) is int and LEAST_REPLICAS <= low <= high <= highest["target_replicas"]):
        raise Rejected(f"replicas must be whole numbers from {LEAST_REPLICAS} to {highest['target_replicas']:g}, got "
                       f"{about['replicas']!r:.100}")
    if not all(0 < value < math.inf for value in vars(service).values()):
        raise Rejected(f"service must be of numbers > 0, got {about['service']!r:.200}")
    limit_low, limit_high = map(float, about["limits"])
    if not LEAST_LIMIT <= limit_low <= limit_high <= highest["target_cpu_limit_cores"]:
        raise Rejected(f"limits must be from {LEAST_LIMIT} to {highest['target_cpu_limit_cores']:g} cores, got "
                       f"{about['limits']!r:.100}")
    return service, law_of(service, (load_low, load_high), float(about["change"]), (limit_low, limit_high), (low, high))
