"""A policy as one fully connected chain of ReLUs from raw observations to raw targets: what is exported and proved.

    knots    relu(k - x) of every signal and knot x; gates
    hidden   the MLP's layers; beside them what later layers need is carried along (`_Carried`)
    exp      knots of the exponential
    most     relu(most - wished)
    change   up, down
    least    relu(c - least), c = current + up - down + forced
    low      relu(max(c, least) - low)
    high     relu(ceiling - low - that);  target = ceiling - that, or high where low = high
    ceiling  relu(target - low), only where a ceiling falls;  target = low + that

A logarithm is concave, log(x) = log(high) - sum of c_k relu(k - x) with all c_k > 0, an exponential convex with
positive coefficients, and every limit is a ReLU of its own layer: derivatives by intervals then keep their sign on the
way, and a policy whose MLP is monotone is proved so on one box. What is carried along is positive, and its ReLU changes
nothing.
Observations outside of `box` count as its ends (at the lower end as a number that is a trifle lower, so that this ReLU
is off for certain in the box).

Symbols: n inputs; m controls; weights (out, in), biases (out,) in float64.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.control.contract.signals import Control, Feature, Signal, feature_matrix
from models.control.policy.policy import SURE, Policy

Array = NDArray[np.float64]
# Share of a signal's range by which the ReLU that clips at its low end lies below that: far above what rounding adds.
_BELOW = 1e-10


@dataclass
class _Row:
    """A number that is an affine function of one layer's neurons: sum of terms + constant."""

    terms: dict[int, float] = field(default_factory=dict)
    constant: float = 0.0

    def __add__(self, other: "_Row | float") -> "_Row":
        if not isinstance(other, _Row):
            return _Row(dict(self.terms), self.constant + other)
        terms = dict(self.terms)
        for neuron, factor in other.terms.items():
            terms[neuron] = terms.get(neuron, 0.0) + factor
        return _Row({neuron: factor for neuron, factor in terms.items() if factor}, self.constant + other.constant)

    def __mul__(self, factor: float) -> "_Row":
        return _Row({neuron: factor * own for neuron, own in self.terms.items()}, factor * self.constant)

    def __sub__(self, other: "_Row | float") -> "_Row":
        return self + other * -1.0

    __rmul__ = __mul__


class _Layers:
    """Builds a chain layer by layer: `relu` adds a neuron to the layer that is open, `close` ends it."""

    def __init__(self, inputs: int) -> None:
        self.weights: list[Array] = []
        self.biases: list[Array] = []
        self.width = inputs
        self._rows: list[_Row] = []

    def relu(self, row: _Row) -> _Row:
        """relu(row) as a row of the next layer. A neuron that is there already is taken again."""
        if not row.terms:
            return _Row({}, max(row.constant, 0.0))
        if row not in self._rows:
            self._rows.append(row)
        return _Row({self._rows.index(row): 1.0})

    def close(self) -> None:
        """What was added becomes a layer."""
        self._append(self._rows)
        self.width, self._rows = len(self._rows), []

    def end(self, outputs: Sequence[_Row]) -> None:
        """The outputs, without a ReLU."""
        self._append(outputs)

    def _append(self, rows: Sequence[_Row]) -> None:
        weight = np.zeros((len(rows), self.width))
        for position, row in enumerate(rows):
            for neuron, factor in row.terms.items():
                weight[position, neuron] = factor
        self.weights.append(weight)
        self.biases.append(np.array([row.constant for row in rows]))


@dataclass(frozen=True)
class Box:
    """lower, upper (n,): what is observed there alone is exact."""

    lower: Array
    upper: Array

    @classmethod
    def of(cls, signals: Sequence[Signal]) -> "Box":
        """The whole ranges."""
        return cls(np.array([signal.low for signal in signals]), np.array([signal.high for signal in signals]))


def chain(policy: Policy, box: Box | None = None) -> tuple[list[Array], list[Array]]:
    """Weights and biases of the chain; ReLUs stand behind every layer but the last.

    Args:
        policy: a single one.
        box: of observations, within the signals' ranges; knots outside of it are left out. None: the whole ranges.

    Raises:
        ValueError: many policies at once.
    """
    if policy.members:
        raise ValueError(f"expected one policy, got {policy.members}: take one by `member`")
    return _Builder(policy, box or Box.of(policy.shape.signals)).build()


class _Carried(NamedTuple):
    """What a control's limits need of the first layer, none of it negative (the gates from the second layer on).

    Attributes:
        below_top: the anchor's largest value in the box, less the anchor.
        current: present value.
        up_one: by how much most_up of it is less than one, of a whole number.
        down_one: by how much most_down of it is less than one, of a whole number.
        holds_down: what holds changes down back, as shares of the control's `high` that add up where they are positive.
        holds_up: what holds changes up back, likewise.
        beyond: of each ceiling, what it would take off the control's `high` if there was no `at_most`.
    """

    below_top: _Row
    current: _Row
    up_one: _Row
    down_one: _Row
    holds_down: tuple[_Row, ...]
    holds_up: tuple[_Row, ...]
    beyond: tuple[_Row, ...]


class _Builder:
    def __init__(self, policy: Policy, box: Box) -> None:
        self.policy, self.shape, self.box = policy, policy.shape, box
        self.layers = _Layers(len(self.shape.signals))
        self.weights = [weight.detach().numpy().astype(np.float64) for weight in policy.weights]
        self.biases = [bias.detach().numpy().astype(np.float64) for bias in policy.biases]
        # A target whose limits are equal is a number: with ReLUs at both limits no interval would show that it stays.
        moves = [number for number, control in enumerate(self.shape.controls) if control.low < control.high]
        self.columns = [(self.shape.controls[number], policy.current[number]) for number in moves]
        self.weights[-1], self.biases[-1] = self.weights[-1][moves], self.biases[-1][moves]
        self.anchors = feature_matrix([Feature("", self.shape.anchor(control).terms) for control, _ in self.columns],
                                      self.shape.signals)
        ends = [[_log(signal, value) if signal.scale == "log" else value
                 for signal, value in zip(self.shape.signals, side.tolist(), strict=True)]
                for side in (box.lower, box.upper)]
        self.tops = (self.anchors * np.where(self.anchors > 0, ends[1], ends[0])).sum(axis=1)

    def build(self) -> tuple[list[Array], list[Array]]:
        """See `chain`."""
        scaled = [self._scaled(column) for column in range(len(self.shape.signals))]
        anchors = _combined(self.anchors, np.zeros(len(self.anchors)), scaled)
        carried = [
            _Carried(anchor * -1.0 + float(top), self._clipped(column),
                     self._beyond(column, control, control.most_up), self._beyond(column, control, control.most_down),
                     *self._gates(control), self._beyond_start(control))
            for (control, column), anchor, top in zip(self.columns, anchors, self.tops, strict=True)]
        self.layers.close()
        return self._limits(*self._hidden(scaled, carried))

    # --- the first layer, in raw observations -----------------------------------------------------------------------

    def _neuron(self, column: int, factor: float, constant: float) -> _Row:
        return self.layers.relu(_Row({column: factor}, constant))

    def _under(self, column: int) -> _Row:
        """relu(low - x), off within the box."""
        low, high = float(self.box.lower[column]), float(self.box.upper[column])
        return self._neuron(column, -1.0, low - _BELOW * (high - low))

    def _clipped(self, column: int) -> _Row:
        """The observation, within the box."""
        low, high = float(self.box.lower[column]), float(self.box.upper[column])
        return self._neuron(column, -1.0, high) * -1.0 + self._under(column) + high if low < high else _Row({}, low)

    def _scaled(self, column: int) -> _Row:
        """The signal as a network sees it."""
        signal = self.shape.signals[column]
        low, high = float(self.box.lower[column]), float(self.box.upper[column])
        if signal.scale == "linear":
            return self._clipped(column)
        if not low < high:
            return _Row({}, _log(signal, low))
        knots = [low, *(float(knot) for knot in signal.knots if low < knot < high), high]
        slopes = [(_log(signal, b) - _log(signal, a)) / (b - a) for a, b in pairwise(knots)]
        found = _Row({}, _log(signal, high)) - self._neuron(column, -1.0, high) * slopes[-1]
        for knot, (left, right) in zip(knots[1:-1], pairwise(slopes), strict=True):
            found -= self._neuron(column, -1.0, knot) * (left - right)
        return found + self._under(column) * slopes[0]

    def _beyond(self, column: int, control: Control, share: float) -> _Row:
        """relu(1 - share * x) of a whole number; nothing where it is 0 in the whole box."""
        here = control.whole and share * self.box.lower[column] < 1.0
        return self._neuron(column, -share, 1.0) if here else _Row()

    def _gates(self, control: Control) -> tuple[tuple[_Row, ...], tuple[_Row, ...]]:
        """`holds_down` and `holds_up`."""
        missed, idle = (self._missed(control),), (self._idle(control), self._enough(control))
        return (missed, idle) if control.safe_side == "more" else (idle, missed)

    def _beyond_start(self, control: Control) -> tuple[_Row, ...]:
        """Of each ceiling; a later layer stops it at `at_most`, so that intervals of it are exact."""
        found = []
        for name, one in self.shape.gates.ceilings.get(control.name, {}).items():
            slope = one.taken_off(control.high) / (one.end - one.start)
            found.append(self._neuron(self.shape.column(name), slope, -slope * one.start))
        return tuple(found)

    def _missed(self, control: Control) -> _Row:
        """What holds changes away from the safe side back."""
        gates, found = self.shape.gates, _Row()
        if gates.metric:
            metric, objective = self.shape.column(gates.metric), self.shape.column(gates.objective)
            found = self.layers.relu(_Row({metric: 1.0, objective: -gates.near})) * self.shape.gains.missed
        for name, until in gates.hold.get(control.name, {}).items():
            end, slope = gates.held_until(until)
            found += self._neuron(self.shape.column(name), -1.0, end) * slope
        return found

    def _idle(self, control: Control) -> _Row:
        """What holds changes to the safe side back, less what opens the gate."""
        gates = self.shape.gates
        floors = gates.idle.get(control.name)
        if not floors:
            return _Row()
        found = _Row({}, 1.0)
        if gates.metric:
            metric, objective = self.shape.column(gates.metric), self.shape.column(gates.objective)
            found -= self.layers.relu(_Row({metric: 1.0, objective: -gates.calm})) * self.shape.gains.opened
        for name, floor in floors.items():
            found -= self._neuron(self.shape.column(name), 1.0, -floor) * gates.gain_over(floor)
        return found * SURE

    def _enough(self, control: Control) -> _Row:
        """What else holds changes to the safe side back."""
        gates, found = self.shape.gates, _Row()
        for name, start in gates.enough.get(control.name, {}).items():
            begins, slope = gates.held_from(start)
            found += self._neuron(self.shape.column(name), slope, -slope * begins)
        return found

    # --- the hidden layers ------------------------------------------------------------------------------------------

    def _hidden(self, scaled: Sequence[_Row], carried: list[_Carried]) -> tuple[list[_Row], list[_Carried]]:
        """Changes of the logarithms, and what was carried along, behind the MLP's hidden layers."""
        mean, spread = (part.numpy().astype(np.float64) for part in (self.policy.mean, self.policy.spread))
        first = self.weights[0] / spread
        rows = _combined(first @ feature_matrix(self.shape.features, self.shape.signals),
                         self.biases[0] - first @ mean, scaled)
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            hidden = [self.layers.relu(row) for row in rows]
            carried = self._close(carried)
            rows = _combined(weight, bias, hidden)
        return rows, carried

    def _close(self, carried: Sequence[_Carried]) -> list[_Carried]:
        """Ends a layer, over which these are carried."""
        relu = self.layers.relu
        found = [_Carried(relu(one.below_top), relu(one.current), relu(one.up_one), relu(one.down_one),
                          (_sum(map(relu, one.holds_down)),), (_sum(map(relu, one.holds_up)),),
                          tuple(map(relu, one.beyond))) for one in carried]
        self.layers.close()
        return found

    # --- limits -----------------------------------------------------------------------------------------------------

    def _limits(self, changes: Sequence[_Row], carried: list[_Carried]) -> tuple[list[Array], list[Array]]:
        relu, controls = self.layers.relu, [control for control, _ in self.columns]
        wished = [self._exponential(position, change - one.below_top)
                  for position, (change, one) in enumerate(zip(changes, carried, strict=True))]
        carried = self._close(carried)
        over = [relu(self._most(control, one) - wish)
                for control, one, wish in zip(controls, carried, wished, strict=True)]
        unforced = [self._unforced(control, one) for control, one in zip(controls, carried, strict=True)]
        carried = self._close(carried)
        ups, downs, forced = [], [], []
        for control, one, excess, left in zip(controls, carried, over, unforced, strict=True):
            rise = self._most(control, one) - excess - one.current
            ups.append(relu(rise - _sum(one.holds_up) * control.high))
            downs.append(relu(rise * -1.0 - _sum(one.holds_down) * control.high))
            forced.append(self._forced(control, one, left))
        carried = self._close(carried)
        found = [relu(one.current + up - down + more - less - _least(control, one))
                 for control, one, up, down, (more, less) in zip(controls, carried, ups, downs, forced, strict=True)]
        carried = self._close(carried)
        found = [relu(_least(control, one) + above - control.low)
                 for control, one, above in zip(controls, carried, found, strict=True)]
        ceilings = [self._ceiling(control, one) for control, one in zip(controls, carried, strict=True)]
        self.layers.close()
        found = [relu(ceiling - control.low - above)
                 for control, ceiling, above in zip(controls, ceilings, found, strict=True)]
        ceilings = [relu(ceiling) for ceiling in ceilings]
        self.layers.close()
        found = [ceiling - below for ceiling, below in zip(ceilings, found, strict=True)]
        if self.shape.gates.ceilings:  # else no interval of this difference would show that it is `low` at least
            found = [relu(row - control.low) + control.low for control, row in zip(controls, found, strict=True)]
            self.layers.close()
        moving = {control.name: row for control, row in zip(controls, found, strict=True)}
        self.layers.end([moving.get(control.name, _Row({}, control.high)) for control in self.shape.controls])
        return self.layers.weights, self.layers.biases

    def _most(self, control: Control, one: _Carried) -> _Row:
        """What the policy may wish for: what it must be raised by comes on top."""
        return one.current * (1.0 + control.most_up - self.shape.gates.forced(control)[0]) + one.up_one

    def _unforced(self, control: Control, one: _Carried) -> tuple[_Row, _Row]:
        """What is left of the changes up and down that may be demanded where they are not."""
        up, down = self.shape.gates.forced(control)
        return (self._above(one.current * up, one.holds_down, control),
                self._above(one.current * down, one.holds_up, control))

    def _forced(self, control: Control, one: _Carried, unforced: tuple[_Row, _Row]) -> tuple[_Row, _Row]:
        """The changes up and down that are demanded."""
        up, down = self.shape.gates.forced(control)
        return (self._above(one.current * up - unforced[0], one.holds_up, control),
                self._above(one.current * down - unforced[1], one.holds_down, control))

    def _above(self, row: _Row, holds: tuple[_Row, ...], control: Control) -> _Row:
        """relu(row - what holds it back); nothing of nothing."""
        return self.layers.relu(row - _sum(holds) * control.high) if any(row.terms.values()) else _Row()

    def _ceiling(self, control: Control, one: _Carried) -> _Row:
        """What the target may be at most."""
        found = _Row({}, control.high)
        for of, beyond in zip(self.shape.gates.ceilings.get(control.name, {}).values(), one.beyond, strict=True):
            found += self.layers.relu(beyond * -1.0 + of.taken_off(control.high)) - of.taken_off(control.high)
        return found

    def _exponential(self, position: int, log: _Row) -> _Row:
        """The wished value, of its logarithm less `top`; right up to the most that the control may become."""
        control, column = self.columns[position]
        signal = self.shape.signals[column]
        octave = math.log(2.0)
        ratio = log + (float(self.tops[position]) + self.shape.anchor(control).offset - math.log(signal.low))
        reach = max((1.0 + control.most_up) * self.box.upper[column], self.box.upper[column] + 1.0) / signal.low
        found = self.layers.relu(ratio) * (1.0 / octave) + 1.0
        for knot in range(1, math.ceil(math.log2(reach))):
            found += self.layers.relu(ratio - knot * octave) * (2.0 ** (knot - 1) / octave)
        return found * signal.low


def _sum(rows: Iterable[_Row]) -> _Row:
    return sum(rows, _Row())


def _least(control: Control, one: _Carried) -> _Row:
    return one.current * (1.0 - control.most_down) - one.down_one


def _combined(weight: Array, bias: Array, rows: Sequence[_Row]) -> list[_Row]:
    """weight @ rows + bias."""
    neurons = sorted({neuron for row in rows for neuron in row.terms})
    place = {neuron: position for position, neuron in enumerate(neurons)}
    matrix, constant = np.zeros((len(rows), len(neurons))), np.array([row.constant for row in rows])
    for position, row in enumerate(rows):
        for neuron, factor in row.terms.items():
            matrix[position, place[neuron]] = factor
    product, constants = weight @ matrix, weight @ constant + bias
    return [_Row({neuron: float(value) for neuron, value in zip(neurons, values, strict=True) if value},
                 float(constant)) for values, constant in zip(product, constants, strict=True)]


def _log(signal: Signal, value: float) -> float:
    """The interpolated logarithm of one value within the signal's range."""
    octave = math.floor(math.log2(value / signal.low))
    return math.log(signal.low) + math.log(2.0) * (octave + value / signal.low / 2.0**octave - 1.0)
