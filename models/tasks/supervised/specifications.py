"""A workload's specification in raw units and in scaled ones, and the orders in it that are trained for. No torch."""

from dataclasses import replace

from feature_store.errors import InputError
from feature_store.scaling import FeatureScaling
from models.tasks.supervised.task import SupervisedTask
from models.verification.language.properties import Direction, Monotonicity, OutputRange
from models.verification.language.specification import Specification
from models.verification.language.specification_language import parse_specification

# Walls of the scaled box stand this far outside of 0..1, so that the stored float32 scaling cannot push a raw value
# of the box past them.
WALL = 1e-6


def raw_specification(task: SupervisedTask, name: str, scaling: FeatureScaling) -> Specification:
    """The task's specification over its box in raw units, by default the range of the training side; and that answers
    lie within what the target can be."""
    ranges = {feature: (low, high) for feature, low, high in
              zip(scaling.features.names, scaling.features.minimum, scaling.features.maximum, strict=True)}
    found = parse_specification(task.workload(name).specification, scaling.features.names, ranges,
                                f"task {task.name}: workload {name}", (task.target.name,))
    low, high = task.physical_range(name)
    if low is None and high is None:
        return found
    physical = OutputRange(0, low, high)
    return found if physical in found.properties else replace(found, properties=(*found.properties, physical))


def trained_orders(raw: Specification) -> tuple[Monotonicity, ...]:
    """The orders that are trained for, a feature each.

    An order under conditions is trained for in the whole box, but where another one contradicts it. Raises InputError
    where there is no order.
    """
    ways: dict[int, set[Direction]] = {}
    for rule in [rule for rule in raw.properties if isinstance(rule, Monotonicity)]:
        for feature in rule.features:
            ways.setdefault(feature, set()).add(rule.direction)
    orders = tuple(Monotonicity((feature,), way) for feature, found in sorted(ways.items()) if len(found) == 1
                   for way in found)
    if not orders:
        raise InputError("specification must have a monotone property that can be trained for, got none; demand of a "
                         "feature one direction that no other property contradicts")
    return orders


def scaled_specification(raw: Specification, scaling: FeatureScaling) -> Specification:
    """What is trained for: the orders, with the box in scaled coordinates, the walls a little outside.

    Other properties, and finite values, are the proof's alone. Raises InputError where there is no order.
    """
    lower, upper = (scaling.features.scale(wall[None])[0] for wall in (raw.lower, raw.upper))
    return Specification(raw.feature_names, lower - WALL, upper + WALL, trained_orders(raw), raw.tolerance,
                         raw.output_names)
