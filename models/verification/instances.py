"""Many questions in one file, in the competition's format, decided one after the other: `assay verify --instances`.

A line of the CSV is an instance, as in VNN-COMP's `instances.csv`:

    onnx/network.onnx,vnnlib/property.vnnlib,116     # paths relative to the CSV; seconds, which may be left out

What is wrong with one instance is its own ERROR; the others are decided all the same.
"""

import csv
import io
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feature_store.errors import AssayError, InputError
from feature_store.terminal import print_trace
from models.verification.decide import OnPart, decide

# What VNN-COMP calls a verdict: it asks whether some input reaches the unsafe outputs.
COMPETITION = {"PROVED": "unsat", "REFUTED": "sat", "TIMEOUT": "timeout", "UNKNOWN": "unknown", "ERROR": "error"}
MOST_BYTES = 10_000_000


@dataclass(frozen=True)
class Instance:
    """model, specification: the files; seconds: the time limit; label: both as the CSV names them."""

    model: Path
    specification: Path
    seconds: float
    label: tuple[str, str]

    @property
    def files(self) -> tuple[Path, Path]:
        """What is read."""
        return self.model, self.specification


@dataclass(frozen=True)
class Outcome:
    """How an instance ended. verdict: PROVED, REFUTED, UNKNOWN, TIMEOUT or ERROR; seconds: with reading."""

    instance: Instance
    verdict: str
    reason: str
    seconds: float
    boxes: int
    witness: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values; `result` is VNN-COMP's word."""
        model, specification = self.instance.label
        return {"model": model, "property": specification, "timeout": self.instance.seconds, "verdict": self.verdict,
                "result": COMPETITION[self.verdict], "seconds": self.seconds, "boxes": self.boxes,
                "reason": self.reason, "witness": self.witness}


def read_instances(path: Path, seconds: float) -> tuple[Instance, ...]:
    """The instances of a CSV; seconds: the limit of those that give none.

    Raises InputError: the file cannot be read, or a line is not model, property, seconds (with the line).
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"instances must have at most {MOST_BYTES:,} bytes, got {path.stat().st_size:,} ({path})")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"instances must be a readable CSV file, got {error} ({path})") from error
    found = []
    for number, fields in _rows(text, path):
        row, where = [field.strip() for field in fields], f"({path}, line {number})"
        if not any(row):
            continue
        if len(row) not in (2, 3) or not (row[0] and row[1]):
            raise InputError(f"instance must be model, property and, optionally, seconds, got {','.join(fields)!r:.80} "
                             f"{where}")
        found.append(Instance(path.parent / row[0], path.parent / row[1],
                              _seconds(row[2], where) if len(row) == 3 and row[2] else seconds, (row[0], row[1])))
    if not found:
        raise InputError(f"instances must be at least one, got none ({path})")
    return tuple(found)


def decide_instances(instances: Sequence[Instance], seed: int = 0,
                     progress_of: Callable[[Instance], OnPart] = lambda instance: None) -> Iterator[Outcome]:
    """Decides the instances in turn. After an interrupt (Ctrl-C) the rest are UNKNOWN, not begun.

    progress_of: gives what is called after every round of an instance.
    """
    interrupted = False
    for instance in instances:
        if interrupted:
            yield Outcome(instance, "UNKNOWN", "not begun: interrupted", 0.0, 0)
            continue
        began = time.monotonic()
        try:
            found = decide(instance.model, instance.specification, instance.seconds, seed=seed,
                           on_progress=progress_of(instance)).to_json()
            interrupted = "interrupted" in found["reason"]
            outcome = Outcome(instance, found["verdict"], found["reason"], time.monotonic() - began, found["boxes"],
                              found["witness"])
        except KeyboardInterrupt:
            interrupted = True
            outcome = Outcome(instance, "UNKNOWN", "interrupted", time.monotonic() - began, 0)
        except AssayError as error:
            outcome = Outcome(instance, "ERROR", str(error), time.monotonic() - began, 0)
        except Exception as error:  # the program's own; the others are decided all the same
            print_trace()
            outcome = Outcome(instance, "ERROR", f"{type(error).__name__}: {error}", time.monotonic() - began, 0)
        yield outcome


def _rows(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Each row and the line that it ends on."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for fields in reader:
            yield reader.line_num, fields
    except csv.Error as error:
        raise InputError(f"instances must be a readable CSV file, got {error} ({path}, line {reader.line_num})"
                         ) from error


def _seconds(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(f"seconds must be a positive number, got {text!r:.40} {where}")
    return value
