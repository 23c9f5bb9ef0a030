"""What a new version promises less than the champion does: gate `specification_not_weaker`.

Flow: `register` asks before a version replaces the champion by itself, `promote` shows the answer and writes it into
the ledger. Both promises come from bundles that were checked. Pure.

A controller that changes to the new version must get everything that the champion's proof gave it: for the same inputs
in the same units, over at least the same inputs, at least the same properties, with at most the same violation allowed
and at most the same added by execution. A property of the champion is kept where one of the new version's says at least
as much, under conditions that hold wherever the champion's do. Whatever is not known here to say as much counts as
weaker: two properties are never put together, and a share or robustness at other points is another one. A guarantee of
the closed loop must say the same, or be about the same with no larger numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from models.verification.language.domain import Domain, narrowed
from models.verification.language.properties import (
    Conditions,
    InputValue,
    Monotonicity,
    OutputOrder,
    OutputRange,
    Property,
    Robustness,
    Share,
    Side,
    where,
)
from models.verification.language.specification import Specification
from serving.contract import InputSpec, OutputSpec
from serving.fallback_spec import SafeRange
from serving.promise import Promise

GATE = "specification_not_weaker"
# A tolerance times a range is rounded; what differs by less is equal.
_ROUNDING = 1e-12


def weaker_in(new: Promise, champion: Promise, leeway: float = 0.0) -> tuple[str, ...]:
    """In what the new promise is weaker than the champion's: a line each, in words; none: it is not weaker.

    Args:
        leeway: by how much a side of the box may fall short (share of the width of the champion's), and by which share
            the violation that the tolerance allows, what execution adds, and the numbers of a guarantee may be larger.
    """
    return (*_inputs(new, champion, leeway), *_properties(new.specification, champion.specification, leeway),
            *_tolerance(new.specification, champion.specification, leeway),
            *_rounding(new.specification, champion.specification, leeway), *_outputs(new, champion),
            *_embedding(new, champion), *_safe_ranges(new, champion), *_guarantee(new, champion, leeway))


def _inputs(new: Promise, champion: Promise, leeway: float) -> Iterator[str]:
    found, known = ({item.name: item for item in promise.contract.inputs} for promise in (new, champion))
    for name, old in known.items():
        item = found.get(name)
        if item is None:
            yield f"input {name} is not taken any more"
            continue
        yield from _quantity("input", item, old)
        short = 0.0 if old.values is not None else leeway * (old.maximum - old.minimum)  # a value is kept or not
        if item.minimum > old.minimum + short or item.maximum < old.maximum - short:
            yield (f"box of {name} is {item.minimum:.6g} to {item.maximum:.6g} {item.unit}, the champion's is "
                   f"{old.minimum:.6g} to {old.maximum:.6g} {old.unit}: not all of it is covered")
        if item.values is not None and (old.values is None or not set(old.values) <= set(item.values)):
            before = "every value of its box" if old.values is None else _listed(old.values)
            yield f"values of {name} are {_listed(item.values)}, the champion's are {before}: not all are covered"
    for name in found.keys() - known.keys():
        yield f"input {name} is new: what feeds the champion does not give it"
    if list(found) != list(known) and found.keys() == known.keys():
        yield f"inputs stand in another order: {', '.join(found)}, the champion's {', '.join(known)}"
    for group in new.contract.one_hot:
        if group not in champion.contract.one_hot:
            yield f"exactly one of {', '.join(group)} must be 1, which the champion does not ask"


def _quantity(what: str, new: InputSpec | OutputSpec, old: InputSpec | OutputSpec) -> Iterator[str]:
    """Unit and physical limits, which say what a number means and which ones are refused."""
    if new.unit != old.unit:
        yield f"unit of {what} {new.name} is {new.unit or 'none'}, the champion's is {old.unit or 'none'}"
    limits, known = ((item.physical_minimum, item.physical_maximum) for item in (new, old))
    if limits != known:
        yield f"physical limits of {what} {new.name} are {_range(*limits)}, the champion's are {_range(*known)}"


@dataclass(frozen=True)
class _Demand:
    """One thing that is proved, by names: of what (equal where two can be compared), how much, and where.

    strength: larger is stronger, each number of it; words: for people; compared: pairs of inputs of which the first is
    at least the second wherever it holds.
    """

    of: tuple[object, ...]
    strength: tuple[float, ...]
    when: Conditions
    words: str
    compared: frozenset[tuple[str, str]] = frozenset()


def _properties(new: Specification, champion: Specification, leeway: float) -> Iterator[str]:
    proved = list(_demands(new))
    for demand in _demands(champion):
        domain = narrowed(champion, demand.when)
        if not any(one.of == demand.of and len(one.strength) == len(demand.strength)
                   and all(a >= b for a, b in zip(one.strength, demand.strength, strict=True))
                   and one.compared <= demand.compared and _holds_throughout(one.when, new, domain)
                   for one in proved) \
                or not _box_covers(new, domain, demand.when, leeway):
            yield f"{demand.words} is not proved any more"


def _demands(specification: Specification) -> Iterator[_Demand]:
    """What is proved, one demand each: a monotone property is one for each of its features, a range one a side."""
    names, outputs = specification.feature_names, specification.output_names
    for rule in specification.properties:
        if isinstance(rule, Monotonicity):
            for feature in rule.features:
                words = f"{outputs[rule.output]} {rule.direction} in {names[feature]}{where(rule.when, names)}"
                yield _Demand(("monotone", outputs[rule.output], rule.direction, names[feature]), (), rule.when, words)
            continue
        said = rule.statement(names, outputs)
        pairs = rule.at_least if isinstance(rule, OutputOrder) else ()
        compared = frozenset((names[more], names[less]) for more, less in pairs)
        for of, strength in _limits(rule, specification):
            yield _Demand(of, strength, rule.when, said, compared)


def _limits(rule: Property, specification: Specification) -> Iterator[tuple[tuple[object, ...], tuple[float, ...]]]:
    """What a property that is no order of inputs says: of what, and how much."""
    names, outputs = specification.feature_names, specification.output_names

    def side(of: Side | None) -> tuple[str, str]:
        if of is None:
            return "nothing", ""
        return ("input", names[of.feature]) if isinstance(of, InputValue) else ("output", outputs[of])

    match rule:
        case OutputRange():  # a - b >= least, and b - a >= -most
            if rule.minimum is not None:
                yield ("at least", side(rule.output), side(rule.minus)), (rule.minimum,)
            if rule.maximum is not None:
                yield ("at least", side(rule.minus), side(rule.output)), (-rule.maximum,)
        case OutputOrder():
            # of a number of any sign, another factor asks for something else
            scaled = () if rule.factor == 1 else (rule.factor,)
            yield ("at least", side(rule.upper), side(rule.lower), *scaled), (rule.margin,)
        case Robustness():
            for point in rule.points.tolist():
                yield ("robust", outputs[rule.output], tuple(zip(names, point, strict=True))), (
                    -rule.change, *rule.radius.tolist())
        case Share():
            yield ("share", rule.of.statement(names, outputs), _inputs_of(narrowed(specification, rule.when))), (
                rule.at_least, rule.confidence, rule.samples)


def _inputs_of(domain: Domain) -> tuple[object, ...]:
    """All that inputs are drawn from: a share of more inputs says nothing about a share of some of them."""
    return (*zip(domain.feature_names, domain.lower.tolist(), domain.upper.tolist(), strict=True),
            *sorted(domain.choices.items()), *domain.one_hot)


def _box_covers(new: Specification, domain: Domain, conditions: Conditions, leeway: float) -> bool:
    """Whether the new box holds what conditions leave of the champion's, which may all lie within the box's leeway."""
    for one in conditions:
        name = domain.feature_names[one.feature]
        if name not in new.feature_names:
            return False
        low, high = float(domain.lower[one.feature]), float(domain.upper[one.feature])
        short, place = leeway * (high - low), new.feature_names.index(name)
        if new.lower[place] > low + short or new.upper[place] < high - short:
            return False
    return True


def _holds_throughout(conditions: Conditions, of: Specification, domain: Domain) -> bool:
    """Whether conditions on the inputs of one specification hold for all inputs of another's domain.

    Whether the boxes cover each other is asked for the contracts.
    """
    for one in conditions:
        name = of.feature_names[one.feature]
        if name not in domain.feature_names:
            return False
        feature = domain.feature_names.index(name)
        values = np.array(domain.choices.get(feature, (domain.lower[feature], domain.upper[feature])))
        for group in domain.one_hot:
            if feature in group:
                values = domain.admitted(group)[:, group.index(feature)]
        if not ((one.lower <= values) & (values <= one.upper)).all():
            return False
    return True


def _tolerance(new: Specification, champion: Specification, leeway: float) -> Iterator[str]:
    """By how much an order may be violated over the champion's box, or the new one where that is smaller."""
    for output, name in enumerate(champion.output_names):
        worst: tuple[float, float] | None = None
        for feature in champion.ordered(output):
            known = champion.feature_names[feature]
            if name not in new.output_names or known not in new.feature_names:
                continue  # said already
            other, place = new.output_names.index(name), new.feature_names.index(known)
            old_width, width = (float(of.upper[i] - of.lower[i]) for of, i in ((champion, feature), (new, place)))
            if width == 0:
                continue  # no two values of it are compared
            limit = champion.slope(feature, output) * old_width
            allowed = new.slope(place, other) * min(width, old_width)
            if allowed > limit * (1 + leeway) * (1 + _ROUNDING):
                worst = max(worst or (allowed, limit), (allowed, limit), key=lambda pair: pair[0] - pair[1])
        if worst is not None:
            unit = champion.units.get(name, "")
            yield (f"{name} may violate the order by {_amount(worst[0], unit)} over the box of a feature, the "
                   f"champion's by {_amount(worst[1], unit)}")


def _rounding(new: Specification, champion: Specification, leeway: float) -> Iterator[str]:
    for output, limit in champion.rounding.items():
        name = champion.output_names[output]
        if name not in new.output_names:
            continue  # said already
        found = new.rounding.get(new.output_names.index(name))
        if found is None or found > limit * (1 + leeway) * (1 + _ROUNDING):
            unit = champion.units.get(name, "")
            most = "any amount" if found is None else _amount(found, unit)
            yield f"execution may add {most} to a violation in {name}, the champion's {_amount(limit, unit)}"


def _outputs(new: Promise, champion: Promise) -> Iterator[str]:
    found, known = ({item.name: item for item in promise.contract.outputs} for promise in (new, champion))
    for name, old in known.items():
        item = found.get(name)
        if item is None:
            yield f"output {name} is not given any more"
            continue
        yield from _quantity("output", item, old)
        if item.kind != old.kind:
            yield f"output {name} is a {item.kind}, the champion's a {old.kind}"
    if list(found)[: len(known)] != list(known) and found.keys() >= known.keys():
        yield f"outputs stand in another order: {', '.join(found)}, the champion's {', '.join(known)}"


def _embedding(new: Promise, champion: Promise) -> Iterator[str]:
    """How a few-shot model is fed: other columns are another interface; no less may be out of distribution."""
    after, before = new.contract.embedding, champion.contract.embedding
    sides = [None if one is None else (one.inputs, one.configuration, one.target) for one in (after, before)]
    if sides[0] != sides[1]:
        yield "what the encoder of runs takes and gives is another than the champion's"
    if after is None or before is None:
        return
    if after.runs < before.runs:
        yield f"encoder takes up to {after.runs} runs, the champion's up to {before.runs}"
    if after.threshold < before.threshold:
        yield (f"a workload is out of distribution where its similarity is below {after.threshold:.6g}, by the "
               f"champion's encoder below {before.threshold:.6g}: less is flagged")


def _safe_ranges(new: Promise, champion: Promise) -> Iterator[str]:
    """What a controller may never be carried beyond."""
    after, before = new.contract.fallback, champion.contract.fallback
    if before is None:
        return
    if after is None:
        yield "no fallback is named any more"
        return
    for name, old in before.safe_ranges.items():
        one = after.safe_ranges.get(name)
        if one is not None and (one.minimum < old.minimum or one.maximum > old.maximum
                                or one.most_down > old.most_down or one.most_up > old.most_up
                                or one.safe_side != old.safe_side):
            yield (f"safe range of {name} is {one.minimum:g} to {one.maximum:g}, by at most -{one.most_down:.0%} and "
                   f"+{one.most_up:.0%} a step, safe side {one.safe_side}; the champion's is {old.minimum:g} to "
                   f"{old.maximum:g}, -{old.most_down:.0%} and +{old.most_up:.0%}, {old.safe_side}")
        if one is not None and one.ceilings != old.ceilings and old.ceilings:
            yield f"ceilings of {name} are {_ceilings(one)}, the champion's are {_ceilings(old)}"


def _guarantee(new: Promise, champion: Promise, leeway: float) -> Iterator[str]:
    after, before = new.contract.guarantee, champion.contract.guarantee
    if before is None or (after is not None and after.statement == before.statement):
        return
    if after is None or not before.at_most or (after.about, after.at_most.keys()) != (
            before.about, before.at_most.keys()):
        instead = "none" if after is None else f"another: {after.statement}"
        yield f"guarantee of the closed loop is {instead}; the champion's: {before.statement}"
        return
    for name, limit in before.at_most.items():
        if after.at_most[name] > limit * (1 + leeway) * (1 + _ROUNDING):
            yield f"guarantee of the closed loop allows {after.at_most[name]:.6g} {name}, the champion's {limit:.6g}"


def _ceilings(of: SafeRange) -> str:
    return "; ".join(f"{one.at_most:g} from {name} {one.end:g} on, falling from {one.start:g}"
                     for name, one in of.ceilings.items()) or "none"


def _amount(value: float, unit: str) -> str:
    return " ".join(filter(None, (f"{value:.6g}", unit)))


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _range(low: float | None, high: float | None) -> str:
    return f"{'unbounded' if low is None else f'{low:.6g}'} to {'unbounded' if high is None else f'{high:.6g}'}"
