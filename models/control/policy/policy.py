"""A policy for any environment: raw observations in, raw targets out, piecewise linear from end to end.

    scaled = interpolated logarithms of the signals; features = matrix @ scaled, normalised by fixed mean and spread
    change = MLP(features); wished = interpolated exponential of (anchor + change)
    t = min(wished, most); up = relu(t - current - holds_up); down = relu(current - t - holds_down)
    target = min(max(current + up - down + forced, least, low), high)

An anchor is a sum of scaled signals, the logarithm of the present value or of what is used (`Anchor`). `least` and
`most` are the control's limits a step. Of a control whose safe side is more, `holds_down` is 0 where the objective is
met by some distance, and so large that `down` is 0 wherever it is missed, or while a signal says that the control was
raised a short time ago; `holds_up` is so large that `up` is 0 wherever the objective is met and all utilisations are
below their floors (`Gates`; both are 0 without them). Of one whose safe side is less the two change places. `forced` is
what is given or taken away at least where one of the two is held back entirely (0 where nothing is demanded). So the
rules that an operator demands under conditions are part of the network, which policy_chain.py writes as one chain of
ReLUs, and of what is trained.

Many policies of one shape are one module: every parameter has the leading axes S, () for a single policy, (K,) for K.

Symbols: n signals (those of an embedding or other extra inputs included, at the end), f features, m controls; B batch.
"""

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from feature_store.errors import InputError
from feature_store.whole_files import write_file
from models.control.contract.signals import Anchor, Ceiling, Control, Feature, Signal, feature_matrix
from models.control.simulation.scaling import Scaling, interpolated_exp

# Wished changes of an untrained policy, against what He's initialisation gives: it nearly stands still.
_FIRST_CHANGE = 0.02
# A gate that holds changes down back ends at so many times a control's `high`: bounds of what it holds back are loose.
SURE = 4.0
# A feature that hardly varied where it was normalised may vary later: its unit is not made smaller than this.
_LEAST_SPREAD = 0.1


@dataclass(frozen=True)
class Gates:
    """Rules under conditions that hold by construction.

    Those that hold changes back are written for a control whose safe side is more; where it is less
    (`Control.safe_side`), up stands for down, and down for up.

    Attributes:
        metric: signal that must not exceed `objective`; "" where there is none.
        objective: signal of the same unit.
        near: share of the objective from which on downward changes are held back, in (0, 1); from 1 on there are none.
        idle: control -> {utilisation signal: floor}; below all floors, the objective being met, it is never raised.
        hold: control -> {signal: until}; never lowered while the signal is at most that, such as the seconds since it
            was raised: what Kubernetes calls a stabilization window.
        ceilings: control -> {signal: ceiling}; of several, what each takes off the control's `high` adds up.
        enough: control -> {signal: start}; never raised while the signal is at least that.
        retreat: control -> share of the present value by which it is raised at least where lowering it is held back
            entirely (the objective is missed, or `hold`), raising it not at all.
        advance: control -> share of the present value by which it is lowered at least where raising it is held back
            entirely (it is idle, or `enough`), lowering it not at all.
        calm: share of the objective from which on a control no longer counts as idle.
        open_at: share by which a floor or the objective must be exceeded for changes up to be free again.
        freed_at: share by which `until` must be exceeded for changes down to be free again, and by which `start` lies
            above where changes up begin to be held back.
    """

    metric: str = ""
    objective: str = ""
    near: float = 0.95
    idle: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    hold: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    ceilings: Mapping[str, Mapping[str, Ceiling]] = field(default_factory=dict)
    enough: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    retreat: Mapping[str, float] = field(default_factory=dict)
    advance: Mapping[str, float] = field(default_factory=dict)
    calm: float = 1.0
    open_at: float = 0.05
    freed_at: float = 0.25

    def __post_init__(self) -> None:
        """Out of JSON a ceiling is a mapping."""
        object.__setattr__(self, "ceilings", {control: {name: one if isinstance(one, Ceiling) else Ceiling(**one)
                                                        for name, one in of.items()}
                                              for control, of in self.ceilings.items()})

    @property
    def there_are(self) -> bool:
        """Whether any change is held back at all."""
        return bool(self.metric or self.idle or self.hold or self.enough)

    def forced(self, control: Control) -> tuple[float, float]:
        """By which share of its present value it is raised, and lowered, at least, where that is demanded."""
        retreat, advance = self.retreat.get(control.name, 0.0), self.advance.get(control.name, 0.0)
        return (retreat, advance) if control.safe_side == "more" else (advance, retreat)

    def gain_over(self, floor: float) -> float:
        """Slope at which exceeding a floor opens the gate of changes up."""
        return 1.0 / (self.open_at * floor)

    def held_until(self, until: float) -> tuple[float, float]:
        """Where a signal stops to hold changes down back, and the slope at which it does so below."""
        return (1.0 + self.freed_at) * until, SURE / (self.freed_at * until)

    def held_from(self, start: float) -> tuple[float, float]:
        """Where a signal begins to hold changes up back, and the slope at which it does so above."""
        begins = start / (1.0 + self.freed_at)
        return begins, SURE / (start - begins)


@dataclass(frozen=True)
class Gains:
    """Slopes of the gates, in shares of a control's `high` per unit of the objective: even the lowest reaches 1."""

    missed: float
    opened: float


@dataclass(frozen=True)
class PolicyShape:
    """All of a policy but its numbers.

    Attributes:
        hidden: sizes of the hidden layers, () for a linear policy.
        anchors: by control; a control without one is anchored at its present value.
    """

    signals: tuple[Signal, ...]
    controls: tuple[Control, ...]
    features: tuple[Feature, ...]
    hidden: tuple[int, ...] = (64, 64)
    gates: Gates = Gates()
    anchors: Mapping[str, Anchor] = field(default_factory=dict)

    def anchor(self, control: Control) -> Anchor:
        """Of a control."""
        return self.anchors.get(control.name, Anchor({control.current: 1.0}))

    def with_inputs(self, names: Sequence[str], reach: float = 4.0) -> "PolicyShape":
        """With further inputs at the end (an embedding, an oracle's parameters) between -reach and reach."""
        signals = tuple(Signal(name, "1", -reach, reach) for name in names)
        features = tuple(Feature(name, {name: 1.0}) for name in names)
        return replace(self, signals=self.signals + signals, features=self.features + features)

    def column(self, name: str) -> int:
        """Position of a signal. Raises InputError."""
        for position, signal in enumerate(self.signals):
            if signal.name == name:
                return position
        raise InputError(f"signal: expected one of {', '.join(one.name for one in self.signals)}, got {name!r}")

    @property
    def gains(self) -> "Gains":
        """Slopes of the gates; only where there is an objective."""
        low = self.signals[self.column(self.gates.objective)].low
        return Gains(SURE / ((1.0 - self.gates.near) * low), 1.0 / (self.gates.open_at * low))

    def document(self) -> dict[str, Any]:
        """As JSON keeps it."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "PolicyShape":
        """Reads what `document` gave."""
        return cls(tuple(Signal(**one) for one in document["signals"]),
                   tuple(Control(**one) for one in document["controls"]),
                   tuple(Feature(**one) for one in document["features"]), tuple(document["hidden"]),
                   Gates(**document["gates"]), {name: Anchor(**one) for name, one in document["anchors"].items()})


class _Clip(torch.autograd.Function):
    """min(max(x, low), high); beyond a limit the gradient still passes where it leads back inside.

    Otherwise a policy that wishes for less than the least, in a state in which it should have more, would never learn.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """See the class."""
        below, above = x < low, x > high
        ctx.save_for_backward(below, above)
        return x.maximum(low).minimum(high)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """See the class."""
        below, above = ctx.saved_tensors
        outwards = (below & (gradient > 0)) | (above & (gradient < 0))
        limits = [gradient * side if needed else None
                  for side, needed in zip((below, above), ctx.needs_input_grad[1:], strict=True)]
        return gradient.masked_fill(outwards, 0.0), limits[0], limits[1]


class Policy(nn.Module):
    """Features of an observation, an MLP, and limits and gates on what it wishes: raw targets.

    Args:
        shape: what it takes and gives.
        generator: draws the first weights; None: all zero.
        members: S.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, shape: PolicyShape, generator: torch.Generator | None = None,
                 members: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.shape, self.members = shape, members
        self.scaling = Scaling(shape.signals)
        sizes = (len(shape.features), *shape.hidden, len(shape.controls))
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(*members, out, width))
                                         for width, out in pairwise(sizes)])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(*members, out)) for out in sizes[1:]])
        self.register_buffer("mean", torch.zeros(sizes[0]))
        self.register_buffer("spread", torch.ones(sizes[0]))
        self.current = [shape.column(control.current) for control in shape.controls]
        first = [shape.signals[column].low for column in self.current]
        anchors = [shape.anchor(control) for control in shape.controls]
        named = [Feature(control.name, anchor.terms) for control, anchor in zip(shape.controls, anchors, strict=True)]
        matrices = [torch.tensor(feature_matrix(of, shape.signals).T) for of in (shape.features, named)]
        offsets = [math.log(low) - anchor.offset for low, anchor in zip(first, anchors, strict=True)]
        limits = torch.tensor([
            [control.low for control in shape.controls], [control.high for control in shape.controls], first, offsets,
            [control.most_down for control in shape.controls], [control.most_up for control in shape.controls],
            [float(control.whole) for control in shape.controls],
            *zip(*map(shape.gates.forced, shape.controls), strict=True)], dtype=torch.float64)
        # (n, f) and (n, m): features and anchors of scaled signals; (9, m): low, high, lowest value observed, its
        # logarithm less the anchor's offset, most_down, most_up, 1 where it is whole, `Gates.forced`
        self._constants = {dtype: [part.to(dtype) for part in (*matrices, limits)]
                           for dtype in (torch.float32, torch.float64)}
        if generator is not None:
            with torch.no_grad():
                for weight in self.weights:
                    weight.normal_(0.0, (2.0 / weight.shape[-1]) ** 0.5, generator=generator)
                self.weights[-1].mul_(_FIRST_CHANGE)

    def raw_features(self, observation: Tensor) -> Tensor:
        """(B, n) raw -> (B, f), before they are normalised."""
        return self.scaling(observation) @ self._constants[observation.dtype][0]

    @torch.no_grad()
    def normalise(self, observations: Tensor) -> None:
        """Sets mean and spread from observations (..., n) of rollouts."""
        features = self.raw_features(observations).reshape(-1, len(self.mean))
        self.mean.copy_(features.mean(dim=0))
        self.spread.copy_(features.std(dim=0).clamp(min=_LEAST_SPREAD))

    def changes(self, features: Tensor) -> Tensor:
        """(*S, B, m) changes of the controls' logarithms from normalised features (*S, B, f) or (B, f)."""
        value = features
        for position, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            value = value @ weight.mT + bias[..., None, :] if value.dim() > 1 else weight @ value + bias
            if position < len(self.weights) - 1:
                value = value.relu()
        return value

    def forward(self, observation: Tensor, extra: Tensor | None = None, open_loop: bool = False) -> Tensor:
        """(*S, B, n) or (B, n) raw -> (*S, B, m) targets, raw.

        Args:
            extra: (*S, B, e) or (B, e), the last e signals, where the observation lacks them.
            open_loop: gradients flow through the present values of the targets, but not through what the MLP saw.
        """
        if extra is not None:
            observation = torch.cat([observation, extra.expand(*observation.shape[:-1], extra.shape[-1])], dim=-1)
        scaled = self.scaling(observation)
        seen = scaled.detach() if open_loop else scaled
        features = seen @ self._constants[observation.dtype][0]
        change = self.changes((features - self.mean) / self.spread)
        return self.targets(observation, scaled, change)

    def targets(self, observation: Tensor, scaled: Tensor, change: Tensor) -> Tensor:
        """(..., m) raw targets of changes (..., m) of logarithms, within limits and gates."""
        _, anchors, limits = self._constants[observation.dtype]
        low, high, first, offset, down, up, whole, raised, _ = limits
        clipped = self.scaling.clip(observation)
        current = clipped[..., self.current]
        log = scaled @ anchors - offset + change
        least = current - (down * current).maximum(whole)
        most = current + (up * current).maximum(whole) - raised * current
        rise = _Clip.apply(first * interpolated_exp(log.clamp(min=0.0)), 0.0 * most, most) - current
        if self.shape.gates.there_are:
            holds_down, holds_up = self._gates(clipped)
            rise = (rise - high * holds_up).relu() - (-rise - high * holds_down).relu()
            if self.shape.gates.retreat or self.shape.gates.advance:
                rise = rise + self._forced(current, high, holds_down, holds_up)
        if self.shape.gates.ceilings:
            high = high - self._taken_off(clipped)
        return _Clip.apply(current + rise, least.maximum(low), high)

    def _taken_off(self, clipped: Tensor) -> Tensor:
        """(..., m) of each `high` by its ceilings."""
        found = []
        for control in self.shape.controls:
            off = torch.zeros_like(clipped[..., :1])
            for name, one in self.shape.gates.ceilings.get(control.name, {}).items():
                share = (clipped[..., self.shape.column(name), None] - one.start) / (one.end - one.start)
                off = off + one.taken_off(control.high) * share.clamp(0.0, 1.0)
            found.append(off)
        return torch.cat(found, dim=-1)

    def _forced(self, current: Tensor, high: Tensor, holds_down: Tensor, holds_up: Tensor) -> Tensor:
        """(..., m) what `retreat` and `advance` change."""
        up, down = (share * current for share in self._constants[current.dtype][2][7:])
        raised = (up - (up - high * holds_down).relu() - high * holds_up).relu()
        return raised - (down - (down - high * holds_up).relu() - high * holds_down).relu()

    def _gates(self, clipped: Tensor) -> tuple[Tensor, Tensor]:
        """`holds_down` and `holds_up` (..., m) of clipped observations, as shares of `high`."""
        shape, gates = self.shape, self.shape.gates
        missed = opened = torch.zeros_like(clipped[..., :1])
        if gates.metric:
            metric, objective = (clipped[..., shape.column(name), None] for name in (gates.metric, gates.objective))
            missed = shape.gains.missed * (metric - gates.near * objective).relu()
            opened = shape.gains.opened * (metric - gates.calm * objective).relu()
        holds_down, holds_up = [], []
        for control in shape.controls:
            hold = missed
            for name, until in gates.hold.get(control.name, {}).items():
                end, slope = gates.held_until(until)
                hold = hold + slope * (end - clipped[..., shape.column(name), None]).relu()
            floors = gates.idle.get(control.name)
            open_by = opened if floors else torch.ones_like(opened)
            for name, floor in (floors or {}).items():
                open_by = open_by + gates.gain_over(floor) * (clipped[..., shape.column(name), None] - floor).relu()
            idle = SURE * (1.0 - open_by).relu()
            for name, start in gates.enough.get(control.name, {}).items():
                begins, slope = gates.held_from(start)
                idle = idle + slope * (clipped[..., shape.column(name), None] - begins).relu()
            of_safe_side = (hold, idle) if control.safe_side == "more" else (idle, hold)
            holds_down.append(of_safe_side[0])
            holds_up.append(of_safe_side[1])
        return torch.cat(holds_down, dim=-1), torch.cat(holds_up, dim=-1)

    def member(self, *index: int) -> "Policy":
        """One of many, as a policy of its own. Raises ValueError: not one index for each of `members`."""
        return self._at(index)

    def taken(self, index: Sequence[int]) -> "Policy":
        """Some of (K,) policies in this order, one as often as it is named. Raises ValueError: there are not (K,)."""
        return self._at((list(index),))

    @torch.no_grad()
    def _at(self, index: tuple[int | list[int], ...]) -> "Policy":
        if len(index) != len(self.members):
            raise ValueError(f"expected {len(self.members)} indices, one for each of members {self.members}, got "
                             f"{len(index)}")
        found = Policy(self.shape, members=tuple(self.weights[0][index].shape[:-2]))
        found.mean.copy_(self.mean)
        found.spread.copy_(self.spread)
        for own, many in zip(found.parameters(), self.parameters(), strict=True):
            own.copy_(many[index])
        return found

    def save(self, path: Path) -> None:
        """Writes shape and numbers as an npz file, which appears whole."""
        document = json.dumps({"shape": self.shape.document(), "members": self.members})
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, document=np.frombuffer(document.encode(), dtype=np.uint8),
                 **{name: value.detach().numpy() for name, value in self.state_dict().items()})
        write_file(path, content.getvalue())

    @classmethod
    def load(cls, path: Path) -> "Policy":
        """Reads what `save` wrote. Raises InputError."""
        try:
            with np.load(path, allow_pickle=False) as file:
                stored = {name: file[name] for name in file.files}
            document = json.loads(stored.pop("document").tobytes())
            policy = cls(PolicyShape.of(document["shape"]), members=tuple(document["members"]))
            policy.load_state_dict({name: torch.from_numpy(value) for name, value in stored.items()})
        except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"policy: expected a file that a policy was saved in, got {error} ({path})") from error
        return policy
