"""What a controller did and what came of it, as an append-only log on disk: the thesis's trajectory database (5.3.1).

    <folder>/steps-000001.jsonl     one header line, then one JSON line a step; the last part grows, the others never
    <folder>/steps-000002.jsonl

A record is a `Step`. A number that is not known is null in the file and NaN in memory; a step's `mark` says why its
reward is none: it never becomes a number later, whatever arrives.

Reading is lenient: a record that cannot be read, or is there twice, is lost alone and is told. A writer that was killed
in the middle of a line leaves such a record; the next one begins a new line.

Without torch and pydantic: serving/ writes the log while it acts. Training reads it with trajectories.py.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

from feature_store.errors import InputError
from feature_store.whole_files import sync_folder

Mark = Literal["measured", "missing", "late", "irregular", "not_a_number"]
Actor = Literal["policy", "fallback"]

OUTCOMES = ("reward", "cost", "violation", "violated")  # fields of a step, and of the environment's `Outcome`
FORMAT = "assay trajectories"
PART_BYTES = 64 * 1024 * 1024  # a part of some 200,000 steps of 16 signals
_END_BYTES = 1024 * 1024  # in which the last step stands
_PART = re.compile(r"steps-(\d{6,})\.jsonl")


@dataclass(frozen=True)
class Step:
    """One decision and its outcome.

    Attributes:
        application: whom it concerns.
        episode: >= 0, grows.
        step: of the episode, from 0.
        actor: who set the targets.
        observation: (n) raw, in the header's order; NaN is a missing metric.
        targets: (m) raw, as they were set.
        reward, cost, violation, violated: of the environment's `Outcome`; NaN where not known.
        mark: measured, or why there is no reward: it did not come, came after the next decision, is of a step
            that was longer or shorter than it was to be, or was no number.
        detail: what else whoever acted has to say of it, as JSON keeps it; training does not read it.
    """

    application: str
    episode: int
    step: int
    actor: Actor
    observation: tuple[float, ...]
    targets: tuple[float, ...]
    reward: float
    cost: float = math.nan
    violation: float = math.nan
    violated: float = math.nan
    mark: Mark = "measured"
    detail: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.mark not in get_args(Mark) or self.actor not in get_args(Actor):
            raise ValueError(f"expected a known mark and actor, got {self.mark!r} and {self.actor!r}")
        if self.episode < 0 or self.step < 0:
            raise ValueError(f"expected episode and step >= 0, got {self.episode} and {self.step}")
        if math.isfinite(self.reward) != (self.mark == "measured"):
            raise ValueError(f"expected a finite reward where, and only where, it was measured, got {self.reward} "
                             f"({self.mark})")


@dataclass(frozen=True)
class Header:
    """The first line of each part.

    Attributes:
        task: whose signals and controls.
        signals: (n) name and unit.
        controls: (m) name and unit.
    """

    task: str
    signals: tuple[tuple[str, str], ...]
    controls: tuple[tuple[str, str], ...]

    @property
    def line(self) -> bytes:
        """With its end of line."""
        return orjson.dumps({"format": FORMAT, "task": self.task, "signals": self.signals,
                             "controls": self.controls}) + b"\n"


@dataclass(frozen=True)
class Lost:
    """A record that could not be read.

    Attributes:
        path: of the part.
        line: from 1.
        reason: in one phrase.
    """

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"record lost: {self.reason} ({self.path}, line {self.line})"


@dataclass(frozen=True)
class ReadLog:
    """A log as it was read: what holds, in order, and what was lost."""

    header: Header
    steps: tuple[Step, ...]
    lost: tuple[Lost, ...]


class TrajectoryLog:
    """Appends to a log. One writer a folder."""

    def __init__(self, folder: Path, header: Header, part_bytes: int = PART_BYTES,
                 keep_bytes: float = math.inf) -> None:
        """Goes on with the last part where there is one.

        Args:
            folder: is made where it is missing.
            header: must be that of the parts that are there.
            part_bytes: a part that has reached this size is followed by a new one.
            keep_bytes: when a new part begins, the oldest ones are removed until those that are left are at most so
                large together; the last one, which is whole, always stays.

        Raises:
            InputError: the folder holds a log of other signals or controls, or cannot be written.
        """
        self._folder, self._header, self._part_bytes, self._keep_bytes = folder, header, part_bytes, keep_bytes
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for part in _parts(folder):
                known = _header(part)
                if known is not None and known != header:
                    raise InputError(f"trajectory log must go on with the header {known}, got {header} ({part}); "
                                     "choose another folder")
        except OSError as error:
            raise InputError(f"trajectory log must be a writable folder, got {error.strerror} ({folder})") from error

    def append(self, steps: Sequence[Step]) -> None:
        """Writes steps, in one write; they are on the disk when it returns.

        Raises:
            InputError: a step has other lengths than the header, or the disk is full or cannot be written.
        """
        for step in steps:
            _require_lengths(step, self._header)
        data = b"".join(_line(step) for step in steps)
        try:
            path = self._part()
            is_new = not path.exists()
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                size = os.fstat(descriptor).st_size
                start = self._header.line if not size else b"" if os.pread(descriptor, 1, size - 1) == b"\n" else b"\n"
                content = memoryview(start + data)
                try:
                    while content:
                        content = content[os.write(descriptor, content):]
                    os.fsync(descriptor)
                except OSError:  # a part of a record, or of the header, would spoil what follows
                    with suppress(OSError):
                        os.ftruncate(descriptor, size)
                    raise
            finally:
                os.close(descriptor)
            if is_new:
                sync_folder(self._folder)
        except OSError as error:
            raise InputError(f"trajectory log must be writable, got {error.strerror} ({self._folder})") from error

    def _part(self) -> Path:
        parts = _parts(self._folder)
        if parts and parts[-1].stat().st_size < self._part_bytes:
            return parts[-1]
        kept = sum(part.stat().st_size for part in parts)
        for part in parts[:-1]:
            if kept <= self._keep_bytes:
                break
            kept -= part.stat().st_size
            part.unlink()
        number = int(_PART.fullmatch(parts[-1].name)[1]) + 1 if parts else 1  # type: ignore[index]
        return self._folder / f"steps-{number:06d}.jsonl"


def read_log(folder: Path) -> ReadLog:
    """Reads all parts of a log, leniently.

    Raises:
        InputError: there is no part, none has a readable header, or two have different ones.
    """
    parts = _parts(folder)
    headers = {part: header for part in parts if (header := _header(part)) is not None}
    if not headers:
        raise InputError(f"trajectory log must have a part with a header, got {len(parts)} parts without one "
                         f"({folder})")
    if len(set(headers.values())) > 1:
        raise InputError(f"trajectory log must have one header, got {len(set(headers.values()))} different ones "
                         f"({folder}); keep logs of different tasks in folders of their own")
    header = next(iter(headers.values()))
    steps: list[Step] = []
    lost: list[Lost] = []
    known: set[tuple[str, int, int]] = set()
    for part in parts:
        for number, line in enumerate(part.read_bytes().split(b"\n"), start=1):
            if not line or (number == 1 and part in headers):
                continue
            try:
                step = _step(line, header)
                key = (step.application, step.episode, step.step)
                if key in known:
                    raise ValueError(f"step {step.step} of episode {step.episode} of {step.application} is there "
                                     "already")
                known.add(key)
                steps.append(step)
            except (ValueError, KeyError, TypeError) as error:
                lost.append(Lost(part, number, _reason(error)))
    return ReadLog(header, tuple(steps), tuple(lost))


def last_step(folder: Path) -> Step | None:
    """The last step that can be read; of a log of years only its end is read. None: there is none.

    Raises:
        InputError: the folder cannot be read.
    """
    try:
        for part in reversed(_parts(folder)):
            header = _header(part)
            if header is None:
                continue
            with part.open("rb") as file:
                file.seek(max(0, part.stat().st_size - _END_BYTES))
                lines = file.read().split(b"\n")
            for line in reversed(lines):
                with suppress(ValueError, KeyError, TypeError):  # a part of a line, the header
                    return _step(line, header)
    except OSError as error:
        raise InputError(f"trajectory log must be readable, got {error.strerror} ({folder})") from error
    return None


def _parts(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("steps-*.jsonl") if _PART.fullmatch(path.name)),
                  key=lambda path: (len(path.name), path.name))


def _header(part: Path) -> Header | None:
    """None: its first line is none, or was cut."""
    with part.open("rb") as file:
        line = file.readline()
    try:
        data = orjson.loads(line)
        if data["format"] != FORMAT or not line.endswith(b"\n"):
            return None
        return Header(data["task"], *(tuple((str(name), str(unit)) for name, unit in data[key])
                                      for key in ("signals", "controls")))
    except (ValueError, KeyError, TypeError):
        return None


def _line(step: Step) -> bytes:
    fields = vars(step)
    if step.detail is None:
        fields = {name: value for name, value in fields.items() if name != "detail"}
    return orjson.dumps(fields) + b"\n"  # NaN becomes null


def _step(line: bytes, header: Header) -> Step:
    data: dict[str, Any] = orjson.loads(line)
    for key in ("episode", "step"):
        if type(data[key]) is not int:
            raise ValueError(f"{key}: expected a whole number, got {data[key]!r}")
    if not isinstance(data.get("detail"), dict | None):
        raise ValueError(f"detail: expected a mapping, got {data['detail']!r}")
    vectors = {key: tuple(_number(value) for value in data[key]) for key in ("observation", "targets")}
    step = Step(**{**data, **vectors, **{key: _number(data[key]) for key in OUTCOMES}})
    _require_lengths(step, header)
    return step


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a number, got {value!r}")
    return float(value)


def _require_lengths(step: Step, header: Header) -> None:
    found, expected = (len(step.observation), len(step.targets)), (len(header.signals), len(header.controls))
    if found != expected:
        raise InputError(f"step must have {expected[0]} signals and {expected[1]} controls, got {found[0]} and "
                         f"{found[1]} (application {step.application}, episode {step.episode}, step {step.step})")


def _reason(error: Exception) -> str:
    if isinstance(error, orjson.JSONDecodeError):
        return "no whole JSON object"
    return f"no field {error}" if isinstance(error, KeyError) else str(error)
