"""stress-ng beside the workloads: phases of CPU, disk and memory pressure drawn at random.

Phases change within a combination, so that one configuration is seen under several pressures.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np

# Duration limits of one phase, s.
_SHORTEST_S, _LONGEST_S = 6, 14

# How often each kind is drawn, by profile.
_KINDS: dict[str, dict[str, float]] = {
    "base": {"none": 0.40, "cpu": 0.22, "disk": 0.18, "memory": 0.10, "mixed": 0.10},
    "shifted": {"none": 0.10, "cpu": 0.30, "disk": 0.26, "memory": 0.14, "mixed": 0.20},
}
# Memory that the memory stressor's group may hold, MB; it maps more than that from a file, so that pages
# are reclaimed and read back, but nothing is ever killed for memory.
MEMORY_GROUP_MB = 96.0
_MAPPED_MB = 160


@dataclass(frozen=True)
class Phase:
    """One phase of interference.

    Attributes:
        kind: none, cpu, disk, memory or mixed (cpu and disk).
        seconds: duration, s.
        workers: stress-ng processes of each stressor.
        load_percent: CPU load of each CPU worker, percent of one CPU.
    """

    kind: str
    seconds: int
    workers: int
    load_percent: int


def draw_phases(random: np.random.Generator, profile: str, total_s: float) -> tuple[Phase, ...]:
    """Phases that together last at least `total_s` seconds."""
    kinds = _KINDS[profile]
    phases: list[Phase] = []
    while sum(phase.seconds for phase in phases) < total_s:
        phases.append(
            Phase(
                kind=str(random.choice(list(kinds), p=list(kinds.values()))),
                seconds=int(random.integers(_SHORTEST_S, _LONGEST_S + 1)),
                workers=int(random.integers(1, 3 if profile == "base" else 4)),
                load_percent=int(random.choice([30, 60, 100] if profile == "base" else [60, 100])),
            )
        )
    return tuple(phases)


def interference_command(phases: tuple[Phase, ...], folder: Path) -> list[str | Path]:
    """The command that runs the phases one after the other, writing under `folder`.

    They stand in a script there: those of some hours are more than one argument of a command may hold (128 KiB).
    """
    script = folder / "phases.sh"
    script.write_text("".join(f"{_phase_command(phase, folder)}\n" for phase in phases))
    return ["/bin/sh", script]


def _phase_command(phase: Phase, folder: Path) -> str:
    if phase.kind == "none":
        return f"sleep {phase.seconds}"
    command = ["stress-ng", "--quiet", "--timeout", f"{phase.seconds}s", "--temp-path", str(folder)]
    workers = str(phase.workers)
    if phase.kind in ("cpu", "mixed"):
        command += ["--cpu", workers, "--cpu-load", str(phase.load_percent), "--cpu-method", "matrixprod"]
    if phase.kind in ("disk", "mixed"):
        command += ["--hdd", workers, "--hdd-bytes", "64m", "--hdd-write-size", "64k"]
        command += ["--hdd-opts", "wr-rnd,fsync"]
    if phase.kind == "memory":
        command += ["--mmap", workers, "--mmap-file", "--mmap-bytes", f"{_MAPPED_MB * phase.workers}m"]
    return shlex.join(command)
