"""What a controller remembers and logs: its memory, steps that wait for their outcome, the log of those that have it.

The memory is written whole before every action (memory.py), so that a controller that is killed at any point goes on
with each step in the log once. A step's reward is known when its interval was measured (pending.py); then its record
goes into the log.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from feature_store.errors import AssayError, InputError
from models.control.contract.observer import Observer
from models.control.training.trajectory_log import Header, TrajectoryLog, last_step
from serving.contract import Contract
from serving.control.checks import Checked
from serving.control.control_step import ControlStep
from serving.control.memory import Memory, read_memory
from serving.control.moved_away import ROUNDED, moved_away
from serving.control.pending import KEPT, Pending, Settled, lasted, left, logged, settled, steps_behind


class Past:
    """Of one controller, in its own folder."""

    def __init__(self, contract: Contract, observer: Observer, less: Collection[str], folder: Path,
                 keep_bytes: float) -> None:
        """Goes on from what is there; the observer gets back what it knew.

        Args:
            less: controls whose safe side is less.

        Raises:
            InputError: the contract says nothing of control, or memory or log are unusable.
        """
        if contract.driving is None:
            raise InputError(f"contract must say how the policy is driven, got no `driving` ({contract.task}, "
                             f"{contract.workload}); make the bundle again")
        self._contract, self._control, self._observer = contract, contract.driving, observer
        self._less = less
        self._path = folder / "memory.json"
        header = Header(contract.task, tuple((item.name, item.unit) for item in contract.inputs),
                        tuple((item.name, item.unit) for item in contract.outputs))
        self._log = TrajectoryLog(folder / "steps", header, keep_bytes=keep_bytes)
        self.due_s, self._behind = contract.driving.step_s, 0
        self._standing: dict[str, float] = {}  # control -> what was left behind by the last step that knew it
        known, last = read_memory(self._path), last_step(folder / "steps")
        episode = max(-1 if last is None else last.episode, -1 if known is None else known.episode) + 1
        # who knows what happened meanwhile: after a start everything counts as moved just now
        just_now = dict.fromkeys(self._control.current, 0.0) if known is not None or last is not None else {}
        self._memory = replace(known or Memory(), episode=episode, step=0, moved_away_s=just_now)
        self._coming = self._memory  # as it will be after the step under way
        if known is not None:
            observer.restore(known.observer)
            # the steps in which the controller before was killed, once
            if steps := [logged(one, {}, self.due_s) for one in left(known.pending, last)]:
                self._log.append(steps)
            self._memory = replace(self._memory, pending=())

    @property
    def step(self) -> int:
        """Number of the step under way, from 0 at each start."""
        return self._memory.step

    @property
    def moved_away_s(self) -> Mapping[str, float]:
        """Control -> seconds since it moved away from its safe side, by whoever."""
        return self._memory.moved_away_s

    def deployed(self, row: Mapping[str, float]) -> Mapping[str, float]:
        """Signal -> what was set when the first step of all was taken: now, where this is it."""
        if not self._memory.deployed:
            self._memory = replace(self._memory, deployed={name: row[name] for name in self._control.current.values()})
        return self._memory.deployed

    def seen(self, seen: Checked, seconds: float) -> str:
        """Takes in what is observed, so many seconds after the last time; what could not be logged."""
        ago_s = {name: ago + seconds for name, ago in self._memory.moved_away_s.items()}
        # by someone else, since this controller's last step
        self._memory = replace(self._memory, moved_away_s=moved_away(ago_s, self._standing, self._present(seen.row),
                                                                     self._less, ROUNDED))
        return self._log_outcome(seen, seconds)

    def foresee(self, record: ControlStep) -> None:
        """Takes in what is about to be done."""
        self._coming = replace(self._memory, observer=self._observer.state(), moved_away_s=moved_away(
            self._memory.moved_away_s, self._present(record.seen), {} if record.shadow else record.targets, self._less))

    def write(self, record: ControlStep) -> str:
        """Writes what was foreseen, with this record of it; what stood in the way."""
        try:
            replace(self._coming, pending=self._with(record)).write(self._path)
        except OSError as error:
            return f"memory: {error.strerror} ({self._path})"
        return ""

    def ended(self, record: ControlStep) -> None:
        """Takes in what was done, and tells the observer what may have been set for it."""
        present = self._present(record.seen)
        self._coming = replace(self._coming, moved_away_s=moved_away(self._memory.moved_away_s, present,
                                                                     record.done or {}, self._less))
        self._standing |= {name: value for name, value in {**present, **(record.done or {})}.items()
                           if math.isfinite(value)}
        if record.actor != "nobody" and not record.shadow:
            may = {**record.targets, **(record.done or {})}
            self._observer.acted({self._control.current[name]: value for name, value in may.items()})

    def next(self, record: ControlStep) -> None:
        """The step is over; its record waits for its outcome."""
        self._memory = replace(self._coming, step=self._coming.step + 1, pending=self._with(record))

    def close(self) -> str:
        """Logs the steps that wait, without a reward; what could not be done."""
        if not self._memory.pending:
            return ""
        try:
            self._log.append([logged(one, {}, self.due_s) for one in self._memory.pending])
            self._memory = replace(self._memory, pending=())
            self._memory.write(self._path)
        except (AssayError, OSError) as error:
            return f"log: {error}"
        return ""

    def _present(self, row: Mapping[str, float]) -> dict[str, float]:
        """Control -> what is set."""
        return {name: row.get(signal, math.nan) for name, signal in self._control.current.items()}

    def _with(self, record: ControlStep) -> tuple[Pending, ...]:
        """The steps that wait for their outcome, this one too."""
        done = record.done or ({} if record.failure or record.actor == "nobody" or record.shadow else record.targets)
        detail = {key: value for key, value in vars(record).items() if key not in ("seen", "number")}
        targets = {**self._present(record.seen), **done}
        return (*self._coming.pending, {
            "application": self._contract.workload, "episode": self._memory.episode, "step": record.number,
            "actor": "policy" if record.actor == "policy" and not record.shadow else "fallback",
            "observation": [record.seen[item.name] for item in self._contract.inputs],
            "targets": [targets[item.name] for item in self._contract.outputs], "detail": detail})

    def _log_outcome(self, seen: Checked, seconds: float) -> str:
        """Writes the step whose outcome was measured now, and those before it; what failed."""
        waiting = lasted(self._memory.pending, seconds)
        if not seen.troubles:
            self._behind = steps_behind(seen.age_s, seconds)
        found = settled(waiting, self._behind)
        steps = [logged(one, {}, self.due_s) for one in found.without]
        if found.of is not None:
            steps.append(logged(found.of, self._outcome(seen, found), self.due_s))
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
        if seen.unfit or found.of["detail"].get("actor") == "nobody":
            return {}
        row = dict(seen.row)
        if found.after is not None:
            then = dict(zip(self._contract.input_names, found.after["observation"], strict=True))
            row |= {name: then[name] for name in self._control.current.values()}
        return self._observer.outcome(row)
