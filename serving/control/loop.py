"""One step of a controller: observe, check, decide, shield, act, log. The rest of the world is behind its parts.

    reader    measurements with their age            (`Reader`)
    models    the policy that may decide now         (`Models`)
    actuator  what is set, and setting it            (serving/actuators/actuator.py)
    shield    what may be set                        (shield.py)
    fallback  the rule that acts where a policy may not
    stops     why nobody may act now: kill switch

Whatever fails in a step, the step ends, and its record says what was seen, who acted, what the policy said, what the
shield changed, what was done, what failed, and how long each took. It never acts on what it did not check: what is in
trouble counts as not measured, for policy, fallback and observer alike; without present values, a lease or leave nobody
acts, and both are asked for again right before acting.

A step's reward is known when its interval was measured (pending.py); then its record goes into the log.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from feature_store.errors import AssayError, InputError
from models.controllers.controller import Controller
from models.environments.observer import Observer
from models.training.reinforcement.trajectory_log import Header, TrajectoryLog, last_step
from serving.actuators.actuator import Actuator
from serving.contract import Contract
from serving.control.checks import Checked, Distribution, beyond_training, checked, first_of
from serving.control.lowered import ROUNDED, lowered
from serving.control.memory import Memory, read_memory
from serving.control.pending import KEPT, MOST_BEHIND, Pending, Settled, lasted, left, logged, settled, steps_behind
from serving.control.shield import Change, Shield
from serving.control.watch import Actor, Watch
from serving.seen_spec import Familiar
from serving.session import Predictor


@dataclass(frozen=True)
class Readings:
    """Measurements: input -> value, NaN where the source has none; ages_s: where known."""

    values: Mapping[str, float]
    ages_s: Mapping[str, float] = field(default_factory=dict)


class Reader(Protocol):
    """Where measurements come from."""

    def read(self) -> Readings:
        """The last interval's. Raises SourceError: nothing came in time."""


@dataclass(frozen=True)
class Model:
    """The policy that may decide now.

    Attributes:
        predictor: None: there is none.
        refused: why it must not decide, "" where it may.
        version: as the record names it.
        age_s: seconds since it was last known to be the champion.
    """

    predictor: Predictor | None
    refused: str
    version: str
    age_s: float = 0.0

    @property
    def familiar(self) -> Familiar | None:
        """What its training saw; None: nothing is known."""
        return None if self.predictor is None else self.predictor.familiar


class Models(Protocol):
    """Where policies come from; asked between two steps."""

    def current(self) -> Model:
        """Never raises: what is wrong with a model is its `refused`."""


@dataclass(frozen=True)
class Parts:
    """All that a loop is made of; see the module docstring. holder: this controller, for the lease."""

    reader: Reader
    models: Models
    actuator: Actuator
    shield: Shield
    fallback: Controller
    observer: Observer
    stops: Callable[[], str]
    holder: str


@dataclass(frozen=True)
class Settings:
    """deadline_s: a policy's answer that took longer is not used. fresh_s: input -> most age of a measurement.
    distribution: what an operator says of being out of it. keep_bytes: most of the log that is kept.
    """

    deadline_s: float = 5.0
    hand_back_after: int = 4
    fresh_s: Mapping[str, float] = field(default_factory=dict)
    distribution: Distribution = field(default_factory=Distribution)
    keep_bytes: float = math.inf


@dataclass(frozen=True)
class ControlStep:
    """One step, frozen: what was seen, said, changed and done.

    Attributes:
        number: of this run, from 0.
        at: UTC time at its begin, ISO 8601.
        actor: who decided.
        reason: why not the policy; "" where it was.
        version: of the model.
        seen: input -> value; NaN: missing.
        troubles: what was wrong with what was seen.
        outside: inputs beyond the proved box.
        said: control -> what the policy said; None: it was not asked, or had no answer.
        changes: what the shield changed.
        targets: control -> what was to be set; empty where nobody acted.
        done: control -> what the actuator says is set; None: it was not asked, or failed.
        notes: of the actuator.
        failure: of the actuator or the log, "" where there was none.
        took_s: observe, decide, act -> seconds.
        strange: ranges of what training saw (seen_spec.py) that it was beyond.
    """

    number: int
    at: str
    actor: Actor
    reason: str
    version: str
    seen: Mapping[str, float]
    troubles: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    said: Mapping[str, float] | None = None
    changes: tuple[Change, ...] = ()
    targets: Mapping[str, float] = field(default_factory=dict)
    done: Mapping[str, float] | None = None
    notes: tuple[str, ...] = ()
    failure: str = ""
    took_s: Mapping[str, float] = field(default_factory=dict)
    strange: tuple[str, ...] = ()


@dataclass
class _Decided:
    """What became of one decision, while it is made."""

    actor: Actor
    reason: str
    said: Mapping[str, float] | None = None
    targets: Mapping[str, float] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    strange: tuple[str, ...] = ()


class ControlLoop:
    """A controller of one workload. One thread."""

    def __init__(self, contract: Contract, parts: Parts, settings: Settings, folder: Path,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """Goes on from what it remembers.

        Args:
            contract: what a policy takes and gives; every model of `parts.models` has these inputs and outputs.
            folder: of this controller alone: its memory and its log.
            clock: seconds, never going back.

        Raises:
            InputError: the contract says nothing of control, or folder, memory or log are unusable.
        """
        if contract.driving is None:
            raise InputError(f"contract must say how the policy is driven, got no `driving` ({contract.task}, "
                             f"{contract.workload}); make the bundle again")
        self._contract, self._control, self._parts, self._settings = contract, contract.driving, parts, settings
        self._memory_path, self._clock = folder / "memory.json", clock
        header = Header(contract.task, tuple((item.name, item.unit) for item in contract.inputs),
                        tuple((item.name, item.unit) for item in contract.outputs))
        self._log = TrajectoryLog(folder / "steps", header, keep_bytes=settings.keep_bytes)
        self._due_s, self._behind = contract.driving.step_s, 0
        self._watch = Watch(settings.hand_back_after)
        self._last: float | None = None
        self._standing: dict[str, float] = {}  # control -> what was left behind by the last step that knew it
        self._started = clock()
        self._rule: Mapping[str, float] = {}  # what the fallback said in this step
        self._rule_knows = False  # what was deployed
        self._unwritten = ""  # what of the last step could not be written down: no policy acts then
        known = read_memory(self._memory_path)
        last = last_step(folder / "steps")
        episode = max(-1 if last is None else last.episode, -1 if known is None else known.episode) + 1
        # who knows what happened meanwhile: after a start everything counts as lowered just now
        lowered = dict.fromkeys(self._control.current, 0.0) if known is not None or last is not None else {}
        self._memory = replace(known or Memory(), episode=episode, step=0, lowered_s=lowered)
        if known is not None:
            parts.observer.restore(known.observer)
            # the steps in which the controller before was killed, once
            if steps := [logged(one, {}, self._due_s) for one in left(known.pending, last)]:
                self._log.append(steps)
            self._memory = replace(self._memory, pending=())
        parts.fallback.start(1)

    def step(self) -> ControlStep:
        """Observes, decides and acts once. Raises nothing that a part of it raises: the record says it."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            return self._step(at)
        except Exception as error:  # of a part that is expected to raise nothing: the next step begins anew
            self._watch, reason = self._watch.failed(), f"step: {_said(error)}"
            return ControlStep(self._memory.step, at, "nobody", reason, "", {}, failure=reason)

    def _step(self, at: str) -> ControlStep:
        began = self._clock()
        seconds = 0.0 if self._last is None else max(0.0, began - self._last)
        seen, stopped = self._observed(seconds)
        self._last = began  # not before: what failed to look has to look back over all of it
        self._memory = replace(self._memory, lowered_s={
            name: ago + seconds for name, ago in self._memory.lowered_s.items()})
        # by someone else, since this controller's last step
        self._memory = replace(self._memory, lowered_s=lowered(
            self._memory.lowered_s, self._standing, self._present(seen.row), ROUNDED))
        self._unwritten = "; ".join(filter(None, (self._unwritten, self._log_outcome(seen, seconds))))
        observed = self._clock()
        decided, version = self._decided(seen, stopped, began - self._started)
        record = self._recorded(at, decided, seen, version)
        memory = self._remembered(record)
        failures, self._unwritten = self._unwritten, self._written(memory, record)
        if self._unwritten and record.actor == "policy":  # what cannot be written down is not left to a policy
            decided = self._shielded(self._by_fallback(decided, self._unwritten), seen)
            record = self._recorded(at, decided, seen, version)
            memory = self._remembered(record)
        decided_at = self._clock()
        record, meant = self._acted(record), record.actor
        if record.actor != meant:  # a controller that is killed now must not leave word of what it did not do
            self._written(memory, record)
        failures = "; ".join(filter(None, (failures, self._unwritten, record.failure)))
        record = replace(record, failure=failures)
        memory = replace(memory, lowered_s=lowered(self._memory.lowered_s, self._present(record.seen),
                                                   record.done or {}))
        self._stands(record)
        took = {"observe": observed - began, "decide": decided_at - observed, "act": self._clock() - decided_at}
        record = replace(record, took_s={name: round(value, 6) for name, value in took.items()})
        self._memory = replace(memory, step=memory.step + 1, pending=self._with(memory, record))
        return record

    def expect(self, every_s: float) -> None:
        """Says how far apart two steps are to be, where that is not as the policy was trained."""
        self._due_s = every_s

    def without_rewards(self, every_s: float) -> str:
        """Why no step will have a reward, "" where they will: by the age of what can be measured now, where it can."""
        try:
            age_s = max(self._parts.reader.read().ages_s.values(), default=math.nan)
        except Exception:  # a source that is away says nothing of it
            return ""
        if steps_behind(age_s, every_s) <= MOST_BEHIND:
            return ""
        return (f"no step will have a reward in the log: what is measured is {age_s:.3g} s old, more than "
                f"{MOST_BEHIND} steps of {every_s:g} s; take longer steps")

    def close(self, give_back: bool = False) -> str:
        """Writes the last steps, without a reward, and gives the lease back.

        Args:
            give_back: also sets what was found before the first step, unless acting is stopped.

        Returns:
            What could not be done, "" where all was.
        """
        failures = []
        try:
            if self._memory.pending:
                self._log.append([logged(one, {}, self._due_s) for one in self._memory.pending])
                self._memory = replace(self._memory, pending=())
                self._memory.write(self._memory_path)
        except (AssayError, OSError) as error:
            failures.append(f"log: {error}")
        if give_back and (stopped := self._stopped()):  # the next controller may, for what was found is on disk
            give_back = False
            failures.append(f"{stopped}: nothing was given back")
        for act in ([self._parts.actuator.restore] if give_back else []) + [self._released]:
            try:
                act()
            except Exception as error:
                failures.append(f"actuator: {_said(error)}")
        return "; ".join(failures)

    def _released(self) -> None:
        self._parts.actuator.release(self._parts.holder)

    def _observed(self, seconds: float) -> tuple[Checked, str]:
        """What is seen, checked; and why nobody may act."""
        readings, source, observer = Readings({}), "", self._parts.observer
        try:
            readings = self._parts.reader.read()
        except Exception as error:
            source = f"no measurements: {_said(error)}"
        stopped, present = self._stopped(), {}
        try:
            # in this order: whoever takes the lease may first give back what a killed controller left, which is acting
            other = "" if stopped else self._parts.actuator.acquire(self._parts.holder)
            present = dict(self._parts.actuator.present())
            stopped = stopped or (other and f"{other} has the lease")
        except Exception as error:
            stopped = stopped or f"actuator: {_said(error)}"
        measured = checked(self._contract, readings.values, observer.measured, readings.ages_s, self._settings.fresh_s)
        row = observer.observe(measured.row, present, seconds) | dict(self._control.settings)
        seen = checked(self._contract, row, self._contract.input_names)
        # what follows from a measurement that is missing is no trouble of its own
        told = {name: trouble for name, trouble in seen.troubles.items() if name in present or not measured.troubles}
        troubles = {"source": source} if source else {**told, **measured.troubles}
        current = self._control.current.values()
        if not stopped and (unknown := [name for name in current if not math.isfinite(seen.row[name])]):
            stopped = f"actuator: {', '.join(unknown)} is not known"
        if not stopped and (nothing := [name for name in current if seen.row[name] <= 0]):
            stopped = f"{', '.join(nothing)} was set to 0 by someone"
        return replace(seen, age_s=measured.age_s, troubles=troubles), stopped

    def _stopped(self) -> str:
        """Why nobody may act, by the kill switch; one that fails is on."""
        try:
            return self._parts.stops()
        except Exception as error:
            return f"kill switch: {_said(error)}"

    def _decided(self, seen: Checked, stopped: str, seconds: float) -> tuple[_Decided, str]:
        model = self._parts.models.current()
        strange = beyond_training(model.familiar, seen, self._settings.distribution)
        trouble = self._unwritten or model.refused or first_of(tuple((seen.troubles or strange).values()))
        self._watch, actor, reason = self._watch.after(trouble, stopped)
        decided, self._rule = _Decided(actor, reason), {}
        if all(math.isfinite(seen.row[name]) for name in self._control.current.values()):
            try:  # asked in every step, so that its histories are there when it has to act
                self._rule = self._by_rule(seen.row, seconds)
            except Exception as error:
                decided.reason = "; ".join(filter(None, (reason, f"fallback: {_said(error)}")))
        if actor == "policy":
            decided = self._by_policy(model, seen)
        elif actor == "fallback":
            decided.targets = self._rule
        return replace(self._shielded(decided, seen), strange=tuple(strange)), model.version

    def _by_rule(self, row: Mapping[str, float], seconds: float) -> Mapping[str, float]:
        if not self._memory.deployed:
            self._memory = replace(self._memory, deployed={name: row[name] for name in self._control.current.values()})
        if not self._rule_knows:  # "as deployed" is what was there at the very first, not at this start
            self._parts.fallback.act({name: np.array([self._memory.deployed.get(name, math.nan)]) for name in row}, 0.0)
            self._rule_knows = True
        found = self._parts.fallback.act({name: np.array([value]) for name, value in row.items()}, seconds)
        return {name: float(values[0]) for name, values in found.items()}

    def _by_policy(self, model: Model, seen: Checked) -> _Decided:
        asked = self._clock()
        try:
            assert model.predictor is not None
            answer = model.predictor.predict(dict(seen.row))
        except Exception as error:
            return self._by_fallback(_Decided("policy", ""), f"policy: {_said(error)}")
        said = {name: values[0] for name, values in answer.columns.items()}
        took = self._clock() - asked
        if took > self._settings.deadline_s:
            return self._by_fallback(_Decided("policy", "", said),
                                     f"policy took {took:.2g} s, more than {self._settings.deadline_s:g} s")
        if answer.out_of_distribution:
            return self._by_fallback(_Decided("policy", "", said), "workload is out of distribution")
        return _Decided("policy", "", said, said)

    def _by_fallback(self, decided: _Decided, reason: str) -> _Decided:
        self._watch = self._watch.failed()
        return _Decided("fallback", reason, decided.said, self._rule)

    def _shielded(self, decided: _Decided, seen: Checked) -> _Decided:
        if decided.actor == "nobody":
            return decided
        try:
            found = self._parts.shield.allowed(decided.targets, seen.row, self._memory.lowered_s,
                                               blind=bool(seen.troubles), missed=not self._satisfied(seen))
        except InputError as error:
            return _Decided("nobody", "; ".join(filter(None, (decided.reason, f"shield: {error}"))), decided.said)
        decided.targets, decided.changes = found.targets, found.changes
        return decided

    def _satisfied(self, seen: Checked) -> bool:
        """Whether the objective is known to have been met in the interval that was observed."""
        try:
            return self._parts.observer.outcome(seen.row)["violated"] == 0.0  # NaN: not known
        except Exception:  # whatever a row that is in trouble does to an observer
            return False

    def _recorded(self, at: str, decided: _Decided, seen: Checked, version: str) -> ControlStep:
        return ControlStep(self._memory.step, at, decided.actor, decided.reason, version, dict(seen.row),
                           tuple(seen.troubles.values()), seen.outside, decided.said, decided.changes, decided.targets,
                           strange=decided.strange)

    def _remembered(self, record: ControlStep) -> Memory:
        """With what is about to be done."""
        return replace(self._memory, observer=self._parts.observer.state(),
                       lowered_s=lowered(
            self._memory.lowered_s, self._present(record.seen), record.targets))

    def _present(self, row: Mapping[str, float]) -> dict[str, float]:
        """Control -> what is set."""
        return {name: row.get(signal, math.nan) for name, signal in self._control.current.items()}

    def _stands(self, record: ControlStep) -> None:
        """Remembers what was left behind, and tells the observer what may have been set for it."""
        self._standing |= {name: value for name, value in {**self._present(record.seen), **(record.done or {})}.items()
                           if math.isfinite(value)}
        if record.actor != "nobody":
            may = {**record.targets, **(record.done or {})}
            self._parts.observer.acted({self._control.current[name]: value for name, value in may.items()})

    def _acted(self, record: ControlStep) -> ControlStep:
        if record.actor == "nobody":
            return record
        try:  # once more, for deciding and writing it down may have taken long
            other = ""
            if not (stopped := self._stopped()):
                other = self._parts.actuator.acquire(self._parts.holder)
            if stopped := stopped or self._stopped() or (other and f"{other} has the lease"):
                self._watch = self._watch.failed()
                return replace(record, actor="nobody", reason=stopped, targets={})
            applied = self._parts.actuator.apply(record.targets)
        except Exception as error:
            return replace(record, done=_plain(getattr(error, "partly", None) or {}) or None,
                           failure=f"actuator: {_said(error)}")
        return replace(record, done=_plain(applied.values), notes=tuple(map(_text, applied.notes)))

    def _written(self, memory: Memory, record: ControlStep) -> str:
        """Writes what is about to be done; what stood in the way."""
        try:
            replace(memory, pending=self._with(memory, record)).write(self._memory_path)
        except OSError as error:
            return f"memory: {error.strerror} ({self._memory_path})"
        return ""

    def _with(self, memory: Memory, record: ControlStep) -> tuple[Pending, ...]:
        """The steps that wait for their outcome, this one too."""
        return (*memory.pending, self._pending(record))

    def _pending(self, record: ControlStep) -> Pending:
        done = record.done or ({} if record.failure or record.actor == "nobody" else record.targets)
        detail = {key: value for key, value in vars(record).items() if key not in ("seen", "number")}
        return {"application": self._contract.workload, "episode": self._memory.episode, "step": record.number,
                "actor": "policy" if record.actor == "policy" else "fallback",
                "observation": [record.seen[item.name] for item in self._contract.inputs],
                "targets": [{**self._present(record.seen), **done}[item.name] for item in self._contract.outputs],
                "detail": detail}

    def _log_outcome(self, seen: Checked, seconds: float) -> str:
        """Writes the step whose outcome was measured now, and those before it; what failed."""
        waiting = lasted(self._memory.pending, seconds)
        if not seen.troubles:
            self._behind = steps_behind(seen.age_s, seconds)
        found = settled(waiting, self._behind)
        steps = [logged(one, {}, self._due_s) for one in found.without]
        if found.of is not None:
            steps.append(logged(found.of, self._outcome(seen, found), self._due_s))
        self._memory = replace(self._memory, pending=waiting[-KEPT:])
        if not steps:
            return ""
        try:
            self._log.append(steps)
        except InputError as error:
            return str(error)
        self._memory = replace(self._memory, pending=found.waiting)
        return ""

    def _outcome(self, seen: Checked, found: Settled) -> Mapping[str, float]:
        """Of what was measured, under what that step had set."""
        assert found.of is not None
        if seen.troubles or found.of["detail"].get("actor") == "nobody":
            return {}
        row = dict(seen.row)
        if found.after is not None:
            then = dict(zip(self._contract.input_names, found.after["observation"], strict=True))
            row |= {name: then[name] for name in self._control.current.values()}
        return self._parts.observer.outcome(row)


def _said(error: Exception) -> str:
    """Of what a part raised: one line. What is none of ours is named by its type, and ends the step no less."""
    return _text(str(error) if isinstance(error, AssayError) else
                 " ".join(f"{type(error).__name__}: {error}".split()))


def _text(said: Any) -> str:
    """That can be written down: a path that is no text may be in it."""
    return str(said).encode("utf-8", "replace").decode()


def _plain(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}
