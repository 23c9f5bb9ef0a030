"""A PyTorch training loop, which stands for the paper's MindSpore training. Latency: mean step time."""

import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from recording.stamped_log import split_stamped
from recording.workloads.base import (
    Configuration,
    Interval,
    Place,
    RecordedWorkload,
    RunCommand,
    StartCommand,
)

_STEPS = re.compile(r"^steps count=(\d+) seconds=([\d.]+)$")


class Training(RecordedWorkload):
    """Supervised training of a small convolutional network on CIFAR-10-shaped batches."""

    name: ClassVar[str] = "training"
    tools: ClassVar[tuple[str, ...]] = ()

    def ranges(self, profile: str) -> Mapping[str, tuple[float, ...]]:
        """Quota and batch size."""
        if profile == "shifted":
            return {"cpu_quota_cores": (0.4, 0.6), "batch_size": (32.0, 48.0)}
        return {"cpu_quota_cores": (0.4, 0.7, 1.0), "batch_size": (16.0, 24.0, 32.0)}

    def prepare(self, place: Place, run: RunCommand, start: StartCommand) -> None:
        """Nothing: the batches are synthetic."""

    def memory_limit_mb(self, configuration: Configuration) -> float | None:
        """None: its memory is what the batch size makes it."""
        return None

    def server(self, configuration: Configuration, place: Place) -> list[str | Path]:
        """The training loop, which prints its own log."""
        loop = importlib.util.find_spec("recording.workloads.training_loop")
        if loop is None or loop.origin is None:
            raise ModuleNotFoundError("recording.workloads.training_loop")
        return [
            *(sys.executable, loop.origin, "--batch-size", str(int(configuration["batch_size"]))),
            *("--ready-file", place.run / "ready"),
        ]

    def is_ready(self, place: Place) -> bool:
        """Whether the first steps are done."""
        return (place.run / "ready").exists()

    def load(self, configuration: Configuration, place: Place) -> list[str | Path] | None:
        """None: training is its own load."""
        return None

    def parse(self, log: str) -> list[Interval]:
        """The lines of the training loop."""
        return parse_training(log)


def parse_training(log: str) -> list[Interval]:
    """One interval for each line of the training loop; count is the number of steps."""
    intervals = []
    for stamp, line in split_stamped(log):
        match = _STEPS.match(line)
        if match is not None and int(match[1]) > 0:
            count, seconds = int(match[1]), float(match[2])
            intervals.append(Interval(stamp - seconds, stamp, count, 1000.0 * seconds / count))
    return intervals
