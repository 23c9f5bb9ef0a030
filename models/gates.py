"""What a gate of mlflow.yaml says: a metric, which way is better, and the limit that it has to keep.

Flow: models/configuration.py reads the lines of `gates:` with `parse_gates`; models/gate_report.py holds evidence
against them. A line says everything itself:

    specification:  {verdict: PROVED}
    test_accuracy:  {metric: test_accuracy, better: larger, at_least: 0.5, least_cases: 30}
    champion_mse:   {metric: test_mse, better: smaller, relative_to: champion, at_most_ratio: 1.05}
    beats_rules:    {metric: mean_reward, better: larger, relative_to: rule_reward, at_least_difference: 0.0}

    metric          name in evidence["metrics"]
    better          smaller | larger
    relative_to     champion (the same metric of the champion, on the same cases), or another metric of the evidence,
                    such as a baseline's; left out: the limit is absolute
    one limit       absolute           at_most             at_least                in the metric's unit, of either sign
                    ratio              at_most_ratio       at_least_ratio          metric / reference; both must be > 0
                    difference         at_most_difference  at_least_difference     metric - reference, of either sign
    least_cases     least number of cases (test rows, episodes) behind the metric, evidence["case_counts"][metric]
    unit            of a metric that models/metrics.py does not list, which the evidence must have too; of one that it
                    lists it may be left out
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from feature_store.errors import InputError, nearest
from models.metrics import METRICS, Better, finite_number, known_metric

Compared = Literal["value", "ratio", "difference"]
PROVED = "PROVED"
SPECIFICATION = "specification"  # the one gate about the verdict
CHAMPION = "champion"  # in relative_to
LIMITS: dict[str, tuple[Better, Compared]] = {
    "at_most": ("smaller", "value"), "at_least": ("larger", "value"),
    "at_most_ratio": ("smaller", "ratio"), "at_least_ratio": ("larger", "ratio"),
    "at_most_difference": ("smaller", "difference"), "at_least_difference": ("larger", "difference"),
}
KEYS = ("metric", "better", "relative_to", *LIMITS, "least_cases", "unit")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_EXAMPLE = "{metric: test_mse, better: smaller, at_most: 0.1}"


@dataclass(frozen=True)
class VerdictGate:
    """The verifier's verdict must be `verdict`, which is PROVED: no other may be promoted."""

    name: str = SPECIFICATION
    verdict: str = PROVED


@dataclass(frozen=True)
class MetricGate:
    """A metric must keep a limit.

    Attributes:
        name: of the gate, in mlflow.yaml and in every report.
        metric: name in evidence["metrics"].
        better: "smaller": the metric must be at most the threshold; "larger": at least.
        limit: number of mlflow.yaml: the threshold itself, or what makes one of the reference.
        compared: "value": the threshold is `limit`; "ratio": reference * limit; "difference": reference + limit.
        relative_to: where the reference is from: CHAMPION, or a metric of the evidence; None for "value".
        least_cases: least number of cases behind the metric; 0: not asked.
        unit: that the metric must have; "": not said.
    """

    name: str
    metric: str
    better: Better
    limit: float
    compared: Compared = "value"
    relative_to: str | None = None
    least_cases: int = 0
    unit: str = ""


Gate = VerdictGate | MetricGate


def parse_gates(mapping: Any, where: str) -> tuple[Gate, ...]:
    """The gates of one task, in the order of the file.

    Args:
        mapping: gate -> its line, as YAML holds it.
        where: file and section, for messages.

    Raises:
        InputError: there is no gate, or a line means nothing.
    """
    if not isinstance(mapping, Mapping):
        raise InputError(f"expected a mapping of gates, such as `latency: {_EXAMPLE}`, got {mapping!r} ({where})")
    if not mapping:
        raise InputError(f"expected at least one gate, got none ({where}); no gates would let everything through")
    return tuple(parse_gate(name, line, where) for name, line in mapping.items())


def parse_gate(name: Any, mapping: Any, where: str) -> Gate:
    """One gate.

    Args:
        name: of the gate.
        mapping: its line, as YAML holds it.
        where: file and section, for messages.

    Raises:
        InputError: a key is unknown or missing, a value is unusable, or the line contradicts itself.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"expected a gate's name of letters, digits, _ and -, got {name!r} ({where})")
    where = f"{where}.{name}"
    if not isinstance(mapping, Mapping):
        example = "{verdict: PROVED}" if name == SPECIFICATION else _EXAMPLE
        raise InputError(f"expected a mapping such as {example}, got {mapping!r} ({where})")
    if name == SPECIFICATION:
        return _verdict_gate(mapping, where)
    if "verdict" in mapping:
        raise InputError(f"verdict belongs to the gate {SPECIFICATION!r}, got it in {name!r} ({where})")
    _require_known_keys(mapping, KEYS, where)
    metric = _name_of_metric(mapping, "metric", where)
    better = _better(mapping, where)
    unit = _unit(mapping, metric, where)
    known = known_metric(metric).better
    if known not in (None, better):
        raise InputError(f"better: expected {known}, which is better of {metric}, got {better} ({where})")
    key, compared = _limit_key(mapping, better, where)
    relative_to = _reference(mapping, metric, unit or known_metric(metric).unit, key, compared, where)
    return MetricGate(name, metric, better, _limit(mapping[key], key, metric, compared, where), compared, relative_to,
                      _least_cases(mapping, where), unit)


def _verdict_gate(mapping: Mapping[Any, Any], where: str) -> VerdictGate:
    _require_known_keys(mapping, ("verdict",), where)
    _require_given(mapping, "verdict", where)
    if mapping["verdict"] != PROVED:
        raise InputError(f"verdict: expected {PROVED}, got {mapping['verdict']!r} ({where}); no other verdict may be "
                         "promoted, leave the gate out of an experiment instead")
    return VerdictGate()


def _require_known_keys(mapping: Mapping[Any, Any], known: tuple[str, ...], where: str) -> None:
    for key in mapping:
        if key not in known:
            raise InputError(f"unknown key {key!r} ({where}); {nearest(str(key), known)}")


def _require_given(mapping: Mapping[Any, Any], key: str, where: str) -> None:
    if key not in mapping:
        raise InputError(f"expected the key {key!r}, got {', '.join(map(str, mapping)) or 'none'} ({where})")


def _name_of_metric(mapping: Mapping[Any, Any], key: str, where: str) -> str:
    _require_given(mapping, key, where)
    value = mapping[key]
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InputError(f"{key}: expected the name of a metric, such as test_mse, got {value!r} ({where})")
    return value


def _better(mapping: Mapping[Any, Any], where: str) -> Better:
    _require_given(mapping, "better", where)
    match mapping["better"]:
        case "smaller":
            return "smaller"
        case "larger":
            return "larger"
        case other:
            raise InputError(f"better: expected smaller or larger, got {other!r} ({where}); "
                             f"{nearest(str(other), ('smaller', 'larger'))}")


def _limit_key(mapping: Mapping[Any, Any], better: Better, where: str) -> tuple[str, Compared]:
    """The one limit of the line. Raises InputError: there is none, more than one, or it contradicts `better`."""
    given = [key for key in LIMITS if key in mapping]
    fitting = [key for key, (direction, _) in LIMITS.items() if direction == better]
    if len(given) != 1:
        raise InputError(f"expected one limit ({', '.join(fitting)}), got {' and '.join(given) or 'none'} ({where}); "
                         "write one gate for each limit")
    key = given[0]
    direction, compared = LIMITS[key]
    if direction != better:
        other = next(name for name in fitting if LIMITS[name][1] == compared)
        raise InputError(f"{key} contradicts better: {better} ({where}); did you mean {other!r}, or better: "
                         f"{direction}?")
    return key, compared


def _reference(mapping: Mapping[Any, Any], metric: str, unit: str, key: str, compared: Compared,
               where: str) -> str | None:
    """Raises InputError: a relative limit without a reference, an absolute one with it, the metric itself, or another
    unit than the metric's.
    """
    if compared == "value":
        if "relative_to" in mapping:
            raise InputError(f"{key} is an absolute limit, got it with relative_to: {mapping['relative_to']} "
                             f"({where}); did you mean {key}_ratio or {key}_difference?")
        return None
    if "relative_to" not in mapping:
        absolute = key.removesuffix(f"_{compared}")
        raise InputError(f"{key} needs relative_to: {CHAMPION}, or a metric such as baseline_mse, got none ({where}); "
                         f"for an absolute limit write {absolute}")
    relative_to = _name_of_metric(mapping, "relative_to", where)
    if relative_to.lower() == CHAMPION != relative_to:
        raise InputError(f"relative_to: expected {CHAMPION} or a metric, got {relative_to!r} ({where}); did you mean "
                         f"{CHAMPION!r}?")
    if relative_to == metric:
        raise InputError(f"relative_to: expected {CHAMPION} or another metric, got the gate's own, {metric} ({where}); "
                         f"did you mean relative_to: {CHAMPION}?")
    if relative_to != CHAMPION:
        _require_listed(mapping, "relative_to", relative_to, where)
        other = known_metric(relative_to).unit
        if unit and other and unit != other:
            raise InputError(f"relative_to: expected a metric in {unit}, as {metric} is, got {relative_to} in {other} "
                             f"({where})")
    return relative_to


def _require_listed(mapping: Mapping[Any, Any], key: str, metric: str, where: str) -> None:
    """Raises InputError for the name of a metric that nobody knows, unless the gate says its unit."""
    if metric not in METRICS and "unit" not in mapping:
        raise InputError(f"{key}: expected a known metric, got {metric!r} ({where}); {nearest(metric, METRICS)}; of a "
                         "metric of your own say the unit, such as unit: ms")


def _unit(mapping: Mapping[Any, Any], metric: str, where: str) -> str:
    _require_listed(mapping, "metric", metric, where)
    unit, known = mapping.get("unit", ""), known_metric(metric).unit
    if not isinstance(unit, str) or ("unit" in mapping and not unit.strip()):
        raise InputError(f"unit: expected a text, such as ms or 1, got {unit!r} ({where})")
    if known and unit not in ("", known):
        raise InputError(f"unit: expected {known}, in which {metric} is, got {unit!r} ({where})")
    return unit


def _limit(value: Any, key: str, metric: str, compared: Compared, where: str) -> float:
    number = finite_number(value)
    if number is None:
        hint = "; YAML reads 1e-4 as text, write 0.0001" if isinstance(value, str) else ""
        raise InputError(f"{key}: expected a finite number, got {value!r} ({where}){hint}")
    if compared == "ratio" and number <= 0:
        hint = f"; of values that may be negative use {key.removesuffix('ratio')}difference"
        raise InputError(f"{key}: expected a number above 0, got {number:g} ({where}){hint}")
    known = known_metric(metric)
    if compared == "ratio" and metric in METRICS and known.lowest < 0:
        raise InputError(f"{key}: expected a metric above 0, got {metric}, which may be negative ({where}); use "
                         f"{key.removesuffix('ratio')}difference")
    if compared == "value" and not known.holds(number):
        raise InputError(f"{key}: expected {known.limits}, all that {metric} can be, got {number:g} ({where})")
    return number


def _least_cases(mapping: Mapping[Any, Any], where: str) -> int:
    value = mapping.get("least_cases", 0)
    if isinstance(value, bool) or not isinstance(value, int) or (value < 1 and "least_cases" in mapping):
        raise InputError(f"least_cases: expected a whole number from 1, got {value!r} ({where})")
    return value
