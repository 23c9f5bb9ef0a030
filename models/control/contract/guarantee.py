"""Guarantees of the closed loop that bundles carry, and what checks them: their system, which knows the law.

A guarantee rests on properties as they hold of all that a policy may be shown. One that is proved of less says nothing
of the rest, for what lies beyond the box is fed as its edge: `narrower` is asked before a guarantee is made, and again
before one is accepted. So is `held_live`: in a step in which the policy may not decide somebody else does, of whom
nothing is proved, and only what the shield keeps holds then.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from feature_store.errors import RefusedError
from feature_store.strict_json import parse_json
from models.control.contract.signals import Ceiling, most_allowed
from models.verification.checker.archive import Rejected
from models.verification.closed_loop.answer import GuaranteeCheck

EXACT = 1e-9  # share by which arithmetic may miss a bound


@dataclass(frozen=True)
class Shipped:
    """A guarantee that goes with a bundle: its file, and what its checker says of it."""

    content: bytes
    checked: GuaranteeCheck


class GuaranteeChecker(Protocol):
    """Checks a guarantee of a policy, and never raises on a bad one."""

    def __call__(self, content: bytes, model: bytes, properties: Sequence[Mapping[str, Any]],
                 settings: Mapping[str, float], levels: Mapping[str, Sequence[float]],
                 seconds: float) -> GuaranteeCheck:
        """Args:
        content: of the guarantee's file; model: of the policy's.
        properties: what is proved of the model itself, of all that it may be shown (`narrower`), as it holds of what
            is executed (`executed`), without bounds that others may exceed (`held_live`).
        settings: inputs of the policy that never change.
        levels: target -> the only values that may be set, ascending; without those of which any may.
        seconds: limit.
        """


def narrower(specification: Mapping[str, Any], shown: Mapping[str, tuple[float, float]],
             present: Mapping[str, tuple[float, float]], settings: Mapping[str, float]) -> str:
    """Of which input a specification covers less than the policy may be shown, in words; "": of none.

    Args:
        specification: as specification.yaml has it, with the `box` of every input.
        shown: input -> (low, high) of what may be observed, in its unit.
        present: of inputs that are present values, the limits of their controls, which whoever acts keeps.
        settings: inputs that never change -> value; the box must hold that alone.
    """
    finite = {*specification.get("inputs", {}), *(name for group in specification.get("one_hot", ()) for name in group)}
    for name, (low, high) in shown.items():
        if name in settings:
            low = high = settings[name]
        elif name in present:
            low, high = max(low, present[name][0]), min(high, present[name][1])
        least, most = (math.nan, math.nan) if name in finite else specification["box"][name]
        if not least <= low <= high <= most:
            proved = "single values" if name in finite else f"{least:g} to {most:g}"
            return (f"the specification's box must cover all that the policy may be shown of {name}, {low:g} to "
                    f"{high:g}, got {proved}")
    return ""


@dataclass(frozen=True)
class HeldLive:
    """What the shield keeps of a target, whoever acts: the policy, the fallback, or an operator's rule.

    Attributes:
        low, high: ends of its safe range.
        present: the signal of its present value.
        ceilings: signal -> ceiling.
    """

    low: float
    high: float
    present: str
    ceilings: Mapping[str, Ceiling]


def exceeded(properties: Sequence[Mapping[str, Any]], targets: Mapping[str, HeldLive],
             shown: Mapping[str, tuple[float, float]]) -> str:
    """Which target that is proved to be at most a signal, in every state, others than the policy may set higher, in
    words; "": none.

    Args:
        properties: as specification.yaml has them, or `executed`.
        targets: by name.
        shown: input -> (low, high) of what may be observed.
    """
    for rule in (one["order"] for one in properties if "order" in one):
        if not _order_held(rule, targets, shown):
            return f"{rule['lower']} is proved to be at most {rule['upper']}, and no ceiling keeps it there"
    return ""


def held_live(properties: Sequence[Mapping[str, Any]], targets: Mapping[str, HeldLive],
              shown: Mapping[str, tuple[float, float]]) -> list[Mapping[str, Any]]:
    """The properties of which a guarantee may follow: without bounds of targets that the shield does not keep.

    A policy has them by itself; beside it stands a fallback, which has not. Arguments as of `exceeded`.
    """
    found: list[Mapping[str, Any]] = []
    for one in properties:
        if "order" in one and not _order_held(one["order"], targets, shown):
            continue
        if "range" in one and "minus" not in one["range"] and one["range"]["output"] in targets:
            rule = _range_held(one["range"], targets[one["range"]["output"]])
            found += [{"range": rule}] if {"minimum", "maximum"} & set(rule) else []
        else:
            found.append(one)
    return found


def _order_held(rule: Mapping[str, Any], targets: Mapping[str, HeldLive],
                shown: Mapping[str, tuple[float, float]]) -> bool:
    """True too of one that is no bound of a target by a signal alone."""
    target, signal = targets.get(rule["lower"]), rule["upper"]
    if target is None or signal not in shown or signal == target.present or rule.get("when") or rule.get("at_least"):
        return True
    low, high = shown[signal]
    ceiling = target.ceilings.get(signal)
    # what is allowed is made of straight lines: where it bends, and at the ends, it is furthest from the signal
    bends = () if ceiling is None else (min(max(end, low), high) for end in (ceiling.start, ceiling.end))
    factor, margin = float(rule.get("factor", 1.0)), float(rule.get("margin", 0.0))
    return all(factor * most_allowed(target.high, target.ceilings, {signal: value}) + margin
               <= value + EXACT * abs(value) for value in (low, high, *bends))


def _range_held(rule: Mapping[str, Any], target: HeldLive) -> dict[str, Any]:
    """Without the side that the shield does not keep."""
    when, found = rule.get("when") or {}, dict(rule)
    seen = {name: min(when[name], key=one.share) for name, one in target.ceilings.items() if name in when}
    most = most_allowed(target.high, target.ceilings, seen)
    if rule.get("maximum") is not None and most > rule["maximum"] + EXACT * abs(most):
        del found["maximum"]
    if rule.get("minimum") is not None and target.low < rule["minimum"] - EXACT * abs(target.low):
        del found["minimum"]
    return found


def executed(specification: Mapping[str, Any], model: bytes) -> list[dict[str, Any]]:
    """The properties of a specification as they hold of what is executed; they are proved of real arithmetic.

    Limits and margins leave room for what execution adds, as the checker bounds it or as `rounding` limits it. One
    whose outputs have neither says nothing of what runs, and is left out. `monotone` says by how much it may be
    violated, as `violation`.

    Args:
        specification: as specification.yaml has it, with the `box` of every input.
        model: the file.
    """
    adds, allowed = _adds(specification, model), specification.get("tolerance") or {}
    found = []
    for one in specification["properties"]:
        ((kind, rule),) = one.items()
        rule = dict(rule)
        if kind == "monotone":
            amount = allowed.get(rule["output"], 0.0) if isinstance(allowed, Mapping) else math.inf
            found.append({kind: {**rule, "violation": amount}})
        elif kind in ("range", "order"):
            sides = ("output", "minus") if kind == "range" else ("upper", "lower")
            times = {"lower": float(rule.get("factor", 1.0))} if kind == "order" else {}
            added = 0.0
            for side in sides:
                if rule.get(side) in specification["outputs"]:
                    added += times.get(side, 1.0) * adds.get(rule[side], math.inf)
            if not math.isfinite(added):
                continue
            for side, sign in (("minimum", -1), ("maximum", 1)) if kind == "range" else (("margin", -1),):
                if rule.get(side, 0.0 if side == "margin" else None) is not None:
                    rule[side] = rule.get(side, 0.0) + sign * added
            found.append({kind: rule})
        else:
            found.append(one)
    return found


def _adds(specification: Mapping[str, Any], model: bytes) -> dict[str, float]:
    """Output -> by how much it may differ as executed."""
    from models.verification.checker.chain import read_chain
    from models.verification.checker.rounding import chain_error

    limits = {name: float(most) for name, most in (specification.get("rounding") or {}).items()}
    try:
        chain = read_chain(model)
    except Rejected:
        return limits
    finite = specification.get("inputs") or {}  # what is in neither is of a one-hot group
    sides = [specification["box"].get(name) or _ends(finite.get(name, {"values": (0.0, 1.0)})["values"])
             for name in specification["features"]]
    low, high = (np.array([side[end] for side in sides], dtype=np.float64) for end in (0, 1))
    error = dict(zip(specification["outputs"], chain_error(chain, low, high).tolist(), strict=True))
    return {name: min(amount, limits.get(name, math.inf)) for name, amount in error.items()}


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def judged(content: bytes, form: str, keys: Sequence[str],
           statement_of: Callable[[Mapping[str, Any]], str]) -> GuaranteeCheck:
    """Whether a guarantee follows that is a few numbers in JSON and has no leaves; never raises on a bad one.

    Args:
        form: its `format`.
        keys: all else that it holds.
        statement_of: a document of these keys -> what is guaranteed. Raises Rejected where it is not so.
    """
    try:
        document = parse_json(content, "guarantee")
        if set(document) != {"format", *keys} or document["format"] != form:
            raise Rejected(f"guarantee must be {form}, got {str(document)[:200]}")
        return GuaranteeCheck(True, statement=statement_of(document))
    except (Rejected, RefusedError) as error:
        return GuaranteeCheck(False, str(error))
    except Exception as error:  # a malformed file of any kind is a refusal, not a crash
        return GuaranteeCheck(False, f"guarantee must be readable, got {type(error).__name__}: {error}")
