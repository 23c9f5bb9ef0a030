"""One step of a controller: observe, check, decide, shield, act, log. The rest of the world is behind its parts.

    reader    measurements with their age            (parts.py)
    models    the policy that may decide now         (parts.py)
    actuator  what is set, and setting it            (serving/actuators/actuator.py)
    shield    what may be set                        (shield.py)
    fallback  the rule that acts where a policy may not
    stops     why nobody may act now: kill switch

Who acts is who_acts.py's to say; what is remembered and logged, past.py's. Whatever fails in a step, the step ends, and
its record says what was seen, who acted, what the policy said, what the shield changed, what was done, what failed, and
how long each took. It never acts on what it did not check: what is in trouble counts as not measured, for policy,
fallback and observer alike; without present values, a lease or leave nobody acts, and both are asked for again right
before acting.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from feature_store.errors import AssayError, InputError
from serving.contract import Contract
from serving.control.checks import Checked, beyond_training, checked
from serving.control.control_step import ControlStep
from serving.control.parts import Model, Parts, Readings, Settings
from serving.control.past import Past
from serving.control.pending import MOST_BEHIND, steps_behind
from serving.control.shield import Change
from serving.control.who_acts import Situation, Watch, WhoActs

LEAST_S, MOST_S = 0.01, 86_400.0  # between two steps


@dataclass
class _Decided:
    """What became of one decision, while it is made."""

    actor: WhoActs
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
        less = [limit.control for limit in parts.shield.limits if limit.safe.safe_side == "less"]
        self._past = Past(contract, parts.observer, less, folder, settings.keep_bytes)
        assert contract.driving is not None
        self._contract, self._control, self._parts, self._settings = contract, contract.driving, parts, settings
        self._clock, self._started = clock, clock()
        self._watch = Watch(settings.hand_back_after)
        self._last: float | None = None
        self._stood = deque[Mapping[str, float]](maxlen=MOST_BEHIND + 1)  # what was set at the last looks, newest first
        self._held = {limit.current for limit in parts.shield.limits if limit.held}
        self._rule: Mapping[str, float] = {}  # what the fallback said in this step
        self._rule_knows = False  # what was deployed
        self._well = False  # whether the last step saw the objective met, with nothing in trouble
        self._unwritten = ""  # what of the last step could not be written down: no policy acts then
        parts.fallback.start(1)

    def step(self) -> ControlStep:
        """Observes, decides and acts once. Raises nothing that a part of it raises: the record says it."""
        at, self._well = datetime.now(UTC).isoformat(timespec="milliseconds"), False
        try:
            return self._step(at)
        except Exception as error:  # of a part that is expected to raise nothing: the next step begins anew
            self._watch, reason = self._watch.failed(), f"step: {_said(error)}"
            return ControlStep(self._past.step, at, "nobody", reason, "", {}, failure=reason)

    def _step(self, at: str) -> ControlStep:
        began = self._clock()
        seconds = 0.0 if self._last is None else max(0.0, began - self._last)
        seen, situation = self._observed(seconds)
        self._last = began  # not before: what failed to look has to look back over all of it
        self._unwritten = "; ".join(filter(None, (self._unwritten, self._past.seen(seen, seconds))))
        observed = self._clock()
        self._well = not seen.troubles and self._satisfied(seen)
        decided, version = self._decided(seen, situation, began - self._started)
        record = self._recorded(at, decided, seen, version)
        self._past.foresee(record)
        failures, self._unwritten = self._unwritten, self._past.write(record)
        if self._unwritten and record.actor == "policy":  # what cannot be written down is not left to a policy
            decided = self._shielded(self._by_fallback(decided, self._unwritten), seen)
            record = self._recorded(at, decided, seen, version)
            self._past.foresee(record)
        decided_at = self._clock()
        record, meant = self._acted(record), record.actor
        if record.actor != meant:  # a controller that is killed now must not leave word of what it did not do
            self._past.write(record)
        record = replace(record, failure="; ".join(filter(None, (failures, self._unwritten, record.failure))))
        self._past.ended(record)
        took = {"observe": observed - began, "decide": decided_at - observed, "act": self._clock() - decided_at}
        record = replace(record, took_s={name: round(value, 6) for name, value in took.items()})
        self._past.next(record)
        return record

    def expect(self, every_s: float) -> float:
        """Seconds until the next step is due: as the reader says, where it has a usable interval of its own, else as
        the operator does, who may have another mind than training had.

        Args:
            every_s: of the operator.
        """
        try:
            own = self._parts.reader.interval_s
        except Exception:  # of a part: no reason to end the controller
            own = None
        self._past.due_s = max(own, LEAST_S) if own is not None and 0 < own <= MOST_S else every_s
        return self._past.due_s

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
            give_back: also sets what was found before the first step, unless acting is stopped. What was found below
                what is set stays where the last step did not see the objective met: it may be needed.

        Returns:
            What could not be done, "" where all was.
        """
        failures = [self._past.close()]
        if give_back and (stopped := self._stopped()):  # the next controller may, for what was found is on disk
            give_back = False
            failures.append(f"{stopped}: nothing was given back")
        for act in (lambda actuator: actuator.restore(lowering=self._well) if give_back else None,
                    lambda actuator: actuator.release(self._parts.holder)):
            try:
                act(self._parts.actuator)
            except Exception as error:
                failures.append(f"actuator: {_said(error)}")
        return "; ".join(filter(None, failures))

    def _observed(self, seconds: float) -> tuple[Checked, Situation]:
        """What is seen, checked; and what of it is in the way of acting."""
        readings, source, observer = Readings({}), "", self._parts.observer
        try:
            readings = self._parts.reader.read()
        except Exception as error:
            source = f"no measurements: {_said(error)}"
        stopped, actuator, present = self._stopped(), "", {}
        try:
            # in this order: whoever takes the lease may first give back what a killed controller left, which is acting
            other = "" if stopped else self._parts.actuator.acquire(self._parts.holder)
            actuator = f"{other} has the lease" if other else ""
            present = dict(self._parts.actuator.present())
        except Exception as error:
            actuator = actuator or f"actuator: {_said(error)}"
        self._stood.appendleft(present)
        readings = readings.with_shares(self._settings.shares, self._stood, seconds)
        measured = checked(self._contract, readings.values, observer.measured, readings.ages_s,
                           {**self._settings.fresh_s, **readings.fresh_s})
        row = observer.observe(measured.row, present, seconds) | dict(self._control.settings)
        seen = checked(self._contract, row, self._contract.input_names)
        # what follows from a measurement that is missing is no trouble of its own
        told = {name: trouble for name, trouble in seen.troubles.items() if name in present or not measured.troubles}
        troubles = {"source": source} if source else {**told, **measured.troubles}
        # of what is held nobody waits for the fallback to bring it back
        beyond = {name: how for name, how in seen.beyond.items() if name not in self._held}
        return (replace(seen, age_s=measured.age_s, troubles=troubles, beyond=beyond),
                Situation(stopped, actuator, {name: seen.row[name] for name in self._control.current.values()}))

    def _stopped(self) -> str:
        """Why nobody may act, by the kill switch; one that fails is on."""
        try:
            return self._parts.stops()
        except Exception as error:
            return f"kill switch: {_said(error)}"

    def _decided(self, seen: Checked, situation: Situation, seconds: float) -> tuple[_Decided, str]:
        model = self._parts.models.current()
        strange = beyond_training(model.familiar, seen, self._settings.distribution)
        self._watch, actor, reason = self._watch.after(replace(
            situation, unwritten=self._unwritten, refused=model.refused, troubles=seen.unfit, strange=strange))
        decided, self._rule = _Decided(actor, reason), {}
        if all(math.isfinite(value) for value in situation.present.values()):
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
        deployed = self._past.deployed(row)
        if not self._rule_knows:  # "as deployed" is what was there at the very first, not at this start
            self._parts.fallback.act({name: np.array([deployed.get(name, math.nan)]) for name in row}, 0.0)
            self._rule_knows = True
        found = self._parts.fallback.act({name: np.array([value]) for name, value in row.items()}, seconds)
        return {name: float(values[0]) for name, values in found.items()}

    def _by_policy(self, model: Model, seen: Checked) -> _Decided:
        asked = self._clock()
        try:
            assert model.predictor is not None
            answer = model.predictor.predict(dict(seen.within))
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
            found = self._parts.shield.allowed(decided.targets, seen.row, self._past.moved_away_s,
                                               blind=bool(seen.troubles), missed=not self._well)
        except InputError as error:
            return _Decided("nobody", "; ".join(filter(None, (decided.reason, f"shield: {error}"))), decided.said)
        decided.targets, decided.changes = found.targets, found.changes
        return decided

    def _satisfied(self, seen: Checked) -> bool:
        """Whether the objective is known to have been met in the interval that was observed."""
        try:
            return self._parts.observer.outcome(seen.within)["violated"] == 0.0  # NaN: not known
        except Exception:  # whatever a row that is in trouble does to an observer
            return False

    def _recorded(self, at: str, decided: _Decided, seen: Checked, version: str) -> ControlStep:
        return ControlStep(self._past.step, at, decided.actor, decided.reason, version, dict(seen.row),
                           tuple(seen.unfit.values()), seen.outside, decided.said, decided.changes, decided.targets,
                           strange=decided.strange, shadow=self._settings.shadow)

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


def _said(error: Exception) -> str:
    """Of what a part raised: one line. What is none of ours is named by its type, and ends the step no less."""
    return _text(str(error) if isinstance(error, AssayError) else
                 " ".join(f"{type(error).__name__}: {error}".split()))


def _text(said: Any) -> str:
    """That can be written down: a path that is no text may be in it."""
    return str(said).encode("utf-8", "replace").decode()


def _plain(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}
