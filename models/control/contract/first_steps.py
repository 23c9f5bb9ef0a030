"""The first steps of an environment, with all that it has, before any work: what fails is named by file and method.

A mistake in an environment would else come out an hour later, in training, in a gate or beside a live system, as a
shape that does not fit somewhere in torch.
"""

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from feature_store.errors import InputError
from models.control.contract.acting import load_acting
from models.control.contract.environment import ControlledSystem, agents_of
from models.control.simulation.rollout import acting_of

APPLICATIONS = 5
LEAST, MOST = 8, 2  # steps with the least that may be set, in which whatever is measured moves, and with the most
_CONTRACT = "models/control/contract/environment.py says what it returns"


def check_first_steps(environment: ControlledSystem) -> None:
    """Draws episodes and takes some of them; lets every rule act, steps, also with the least and the most that may be
    set, differentiates, and looks again each time.

    Raises:
        InputError: a method fails, or returns what the contract does not say; or a setting has the name of a signal
            that is not constant, so that its value would stand in the place of what is measured.
    """
    steps, length = _Steps(environment), len(environment.rules) + LEAST + MOST
    episodes = steps.of("draw", "train", APPLICATIONS, length, 0)
    steps.of("draw", "held_out", APPLICATIONS, length, 0)
    taken = steps.on(episodes, "take", torch.tensor([0, 2, 2]))
    steps.observed(steps.of("reset", taken), 3)
    state = steps.of("reset", episodes)
    shown = [steps.observed(state)]
    steps.tensor("hidden_parameters", (APPLICATIONS, len(environment.hidden)), state)
    future = steps.of("coming_load", state)
    if not isinstance(future, Tensor) or future.dim() != 2 or len(future) != APPLICATIONS:
        raise steps.wrong("coming_load", f"return a tensor ({APPLICATIONS}, n)", _kind(future))
    asked = [steps.ruled(name, shown[0]) for name in environment.rules]
    rows = APPLICATIONS * agents_of(environment)
    least, most = (torch.tensor([[getattr(control, end) for control in environment.controls]] * rows)
                   for end in ("low", "high"))
    for targets in (*asked, *[least] * LEAST, *[most] * MOST):
        state, outcome = steps.pair("step", state, targets)
        steps.outcome("step", outcome)
        shown.append(steps.observed(state))
    _check_differentiable(environment.differentiable, least)
    _check_settings(environment, shown, steps)


def check_settings_shown(environment: Any, settings: Mapping[str, float | str], where: str) -> None:
    """A signal with a setting's name shows the setting, in a workload's own environment: what a policy is told live.

    Raises:
        InputError: it shows something else, such as a measurement.
    """
    shown = environment.observe(environment.reset(environment.draw("train", 1, 2, 0)))[0].tolist()
    for signal, value in zip(environment.signals, shown, strict=True):
        told = settings.get(signal.name)
        if isinstance(told, float | int) and abs(value - told) > 1e-5 * max(1.0, abs(told)):
            raise InputError(f"setting {signal.name}: expected a name that no measured signal has, or a signal that "
                             f"shows the setting, {told:g}; the environment shows {value:g} ({where})")


class _Steps:
    """Calls methods of an environment and holds what they return against the contract."""

    def __init__(self, environment: ControlledSystem) -> None:
        self._environment = environment
        try:
            self._file = Path(inspect.getfile(type(environment))).name
        except TypeError:
            self._file = type(environment).__module__

    def wrong(self, method: str, expected: str, got: str) -> InputError:
        return InputError(f"environment: {self._file}, {method}: must {expected}, got {got}; {_CONTRACT}")

    def _called(self, method: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:  # of code that is not ours
            frames = [frame for frame in traceback.extract_tb(error.__traceback__)
                      if Path(frame.filename).name == self._file]
            line = f" (line {frames[-1].lineno})" if frames else ""
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise self.wrong(method, "not fail", said + line) from error

    def of(self, method: str, *arguments: Any) -> Any:
        return self.on(self._environment, method, *arguments)

    def on(self, subject: Any, method: str, *arguments: Any) -> Any:
        if not callable(getattr(subject, method, None)):
            raise self.wrong("draw", f"return episodes that have `{method}`", _kind(subject))
        return self._called(method, getattr(subject, method), *arguments)

    def pair(self, method: str, *arguments: Any) -> tuple[Any, Any]:
        found = self.of(method, *arguments)
        if not isinstance(found, tuple) or len(found) != 2:
            raise self.wrong(method, "return the next state and an Outcome", _kind(found))
        return found

    def tensor(self, method: str, shape: tuple[int, ...], *arguments: Any) -> Tensor:
        found = self.of(method, *arguments)
        if not isinstance(found, Tensor) or tuple(found.shape) != shape or found.dtype != torch.float32:
            raise self.wrong(method, f"return a tensor {shape} of float32", _kind(found))
        if not bool(torch.isfinite(found).all()):
            raise self.wrong(method, "return finite numbers", "NaN or infinity")
        return found

    def observed(self, state: Any, count: int = APPLICATIONS) -> Tensor:
        signals = self._environment.signals
        found = self.tensor("observe", (count * agents_of(self._environment), len(signals)), state)
        for signal, values in zip(signals, found.T, strict=True):
            low, high = float(values.min()), float(values.max())
            slack = 1e-5 * max(abs(signal.low), abs(signal.high))  # of float32
            if low < signal.low - slack or high > signal.high + slack:
                raise self.wrong("observe", f"return {signal.name} from {signal.low:g} to {signal.high:g} "
                                 f"{signal.unit}", f"{low if low < signal.low else high:g}")
        return found

    def ruled(self, name: str, observation: Tensor) -> Tensor:
        """(N, m): what a rule says, by its default settings."""
        family, environment = self._environment.rules[name], self._environment
        method = f"rule {name}"
        made = self._called(f"{method}, make", family.make, {one.name: one.default for one in family.declared})
        if not hasattr(made, "act"):
            raise self.wrong(f"{method}, make", "return a controller with `start` and `act`", _kind(made))
        self._called(f"{method}, start", made.start, len(observation))
        targets: Tensor = self._called(f"{method}, act", acting_of(environment, made), observation, 0.0)
        shape = (len(observation), len(environment.controls))
        if tuple(targets.shape) != shape or not bool(torch.isfinite(targets).all()):
            raise self.wrong(f"{method}, act", f"return a finite target for each of {shape[0]} applications",
                             _kind(targets))
        return targets

    def checked_observer(self) -> Sequence[str]:
        """Signals that the observer needs measured."""
        module = self._environment.acting
        acting = self._called(f"acting {module}", load_acting, module)
        if set(acting.rules) != set(self._environment.rules):
            raise self.wrong(f"acting {module}", f"hold the rules {', '.join(self._environment.rules)}",
                             ", ".join(acting.rules))
        measured = tuple(self._called(f"{module}, OBSERVER", lambda: acting.observer().measured))
        if unknown := set(measured) - {signal.name for signal in self._environment.signals}:
            raise self.wrong(f"{module}, OBSERVER, measured", "be names of signals", ", ".join(sorted(unknown)))
        return measured

    def outcome(self, method: str, outcome: Any) -> None:
        for name in ("reward", "cost", "violation", "violated"):
            self._figure(method, name, getattr(outcome, name, None))
        allowed = (outcome.violated >= 0) & (outcome.violated <= 1)
        if agents_of(self._environment) == 1:  # else their share
            allowed &= outcome.violated.frac() == 0
        if not bool(allowed.all()):
            raise self.wrong(method, "return 0 or 1 as `violated`", f"{outcome.violated.tolist()}")
        named, given = set(self._environment.measures), set(getattr(outcome, "measures", ()))
        if named != given:
            raise self.wrong(method, f"return the measures {', '.join(sorted(named)) or '(none)'}",
                             ", ".join(sorted(given)) or "none")
        for name, values in outcome.measures.items():
            self._figure(method, f"measures[{name}]", values)

    def _figure(self, method: str, name: str, values: Any) -> None:
        if not isinstance(values, Tensor) or tuple(values.shape) != (APPLICATIONS,):
            raise self.wrong(method, f"return `{name}` as a tensor ({APPLICATIONS},)", _kind(values))
        if not bool(torch.isfinite(values).all()):
            raise self.wrong(method, f"return a finite `{name}`", "NaN or infinity")


def _check_differentiable(environment: Any, asked: Tensor) -> None:
    """A gradient reaches targets from the cost or the violation of a step."""
    steps = _Steps(environment)
    state = steps.of("reset", steps.of("draw", "train", APPLICATIONS, 2, 0))
    targets = asked.detach().clone().requires_grad_()
    _, outcome = steps.pair("step", state, targets)
    if not (outcome.cost.requires_grad or outcome.violation.requires_grad):
        raise steps.wrong("step", "be differentiable in its targets: cost or violation follows from them by tensor "
                          "operations", "figures without a gradient")


def _check_settings(environment: ControlledSystem, shown: Sequence[Tensor], steps: _Steps) -> None:
    names = [signal.name for signal in environment.signals]
    observer = steps.checked_observer()
    present = {control.current for control in environment.controls} | set(observer)
    for setting in environment.settings:
        if setting.name not in names:
            continue
        values = torch.stack([one[:, names.index(setting.name)] for one in shown])
        if setting.name in present or bool((values != values[0]).any()):
            raise steps.wrong("settings", f"not have {setting.name!r}: a signal of this name is measured, or says what "
                              "is set, and the setting would stand in its place", f"a setting {setting.name!r}")


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return type(value).__name__
