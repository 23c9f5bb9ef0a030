"""Interference: what stress-ng is asked for."""

from pathlib import Path

import numpy as np

from recording.interference import Phase, draw_phases, interference_command


def test_phases_run_one_after_the_other(tmp_path: Path) -> None:
    phases = (Phase("none", 6, 1, 30), Phase("cpu", 7, 2, 60), Phase("mixed", 8, 1, 100), Phase("memory", 9, 2, 30))
    shell, script = interference_command(phases, tmp_path)
    assert shell == "/bin/sh"
    nothing, cpu, mixed, memory = Path(script).read_text().splitlines()
    assert nothing == "sleep 6"
    assert "--timeout 7s" in cpu and "--cpu 2 --cpu-load 60" in cpu and "--hdd" not in cpu
    assert "--cpu 1" in mixed and "--hdd 1" in mixed
    # More than the group may hold: pages are reclaimed and read back.
    assert "--mmap 2" in memory and "--mmap-bytes 320m" in memory


def test_phases_of_hours_can_be_started_too(tmp_path: Path) -> None:
    """Linux takes at most 131,072 bytes in one argument."""
    command = interference_command(4000 * (Phase("cpu", 7, 2, 60),), tmp_path)
    assert Path(command[-1]).stat().st_size > 131_072 > max(len(str(word)) for word in command)


def test_phases_cover_the_time_and_every_kind_occurs() -> None:
    phases = draw_phases(np.random.default_rng(0), "base", 1000)
    assert sum(phase.seconds for phase in phases) >= 1000 > sum(phase.seconds for phase in phases[:-1])
    assert {phase.kind for phase in phases} == {"none", "cpu", "disk", "memory", "mixed"}
    assert all(6 <= phase.seconds <= 14 for phase in phases)
