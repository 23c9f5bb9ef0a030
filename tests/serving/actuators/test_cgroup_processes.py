"""The control group actuator on real processes of this host, where it lets us."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving.actuators.actuator import ActuatorError
from serving.actuators.cgroup import Cgroup
from tests.serving.actuators.control_group.groups import MIB, PARENT, Tree

CPU, MEMORY = "target_cpu_limit_cores", "target_memory_limit_mib"
Start = Callable[[str], subprocess.Popen[bytes]]
USES_100_MIB = "x = b'1' * (100 << 20); print('ready', flush=True); import time; time.sleep(60)"
SPINS = "print('ready', flush=True)\nwhile True: pass"


@pytest.fixture
def acting(real: Tree, tmp_path: Path) -> Cgroup:
    actuator = Cgroup("nginx", tmp_path / "state", parent=PARENT)
    assert actuator.acquire("controller") == ""
    return actuator


@pytest.fixture
def start(real: Tree) -> Iterator[Start]:
    """Starts a program inside the group; it is running when the call returns."""
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str) -> subprocess.Popen[bytes]:
        join = 'for group in "$@"; do echo $$ >"$group/cgroup.procs"; done; exec "$0" -c "$PROGRAM"'
        folders = [str(folder) for folder in dict.fromkeys(real.folders.values())]
        process = subprocess.Popen(["/bin/sh", "-c", join, sys.executable, *folders], stdout=subprocess.PIPE,
                                   env={"PROGRAM": program})
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(timeout=60)
        assert process.stdout is not None
        process.stdout.close()


def test_limits_are_set_and_given_back(acting: Cgroup, real: Tree) -> None:
    found = real.limits()
    assert acting.present()["ready_replicas"] == 0.0
    for cores, mib in ((0.5, 64.0), (1.75, 200.5), (0.125, 32.0)):
        done = acting.apply({CPU: cores, MEMORY: mib})
        assert done.values == {CPU: cores, MEMORY: mib} and done.notes == ()
        present = acting.present()
        assert (present["cpu_limit_cores"], present["memory_limit_mib"]) == (cores, mib)
    acting.restore()
    assert real.limits() == found


def test_a_process_runs_against_its_quota(acting: Cgroup, real: Tree, start: Start) -> None:
    process = start(SPINS)
    assert acting.present()["ready_replicas"] == 1.0
    acting.apply({CPU: 0.1})
    stat = real.folders["cpu"] / "cpu.stat"
    deadline = time.monotonic() + 30
    while "nr_throttled 0\n" in stat.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "nr_throttled 0\n" not in stat.read_text() and process.poll() is None


def test_memory_in_use_is_neither_killed_for_nor_undercut(acting: Cgroup, real: Tree, start: Start) -> None:
    process = start(USES_100_MIB)
    acting.apply({MEMORY: 300.0})
    done = acting.apply({CPU: 0.5, MEMORY: 50.0})
    assert done.values[CPU] == 0.5 and 105.0 < done.values[MEMORY] < 150.0 and "leaves too little" in done.notes[0]
    time.sleep(0.2)
    assert process.poll() is None
    assert acting.apply({MEMORY: 50.0}).values == {MEMORY: done.values[MEMORY]}, "and no lower the second time"
    assert acting.apply({MEMORY: 200.0}).values == {MEMORY: 200.0}


def test_a_found_limit_below_what_is_used_now_stays_on_disk(
    acting: Cgroup, real: Tree, start: Start, tmp_path: Path
) -> None:
    real.set(cpu="50000 100000", memory=str(60 * MIB))
    found = real.limits()
    acting.apply({CPU: 1.0, MEMORY: 300.0})
    process = start(USES_100_MIB)
    with pytest.raises(ActuatorError) as raised:
        acting.restore()
    assert raised.value.kind == "refused" and process.poll() is None
    assert real.limit("cpu") == found["cpu"] and real.limit("memory") == str(300 * MIB)
    process.kill()
    process.wait(timeout=60)
    acting.restore()
    assert real.limits() == found


def test_the_kernels_no_is_told(acting: Cgroup, real: Tree) -> None:
    if real.version == 2:
        pytest.skip("version 2 takes a quota below that of a group inside")
    below = real.folders["cpu"] / "worker"
    below.mkdir()
    try:
        (below / "cpu.cfs_quota_us").write_text("50000")
        with pytest.raises(ActuatorError, match=r"cpu to 20000 100000\): Invalid argument; the groups above") as raised:
            acting.apply({CPU: 0.2, MEMORY: 300.0})
        assert raised.value.kind == "refused" and raised.value.partly == {}
        real.set(memory=str(200 * MIB))
        acting.present()
        with pytest.raises(ActuatorError) as raised:
            acting.apply({CPU: 0.2, MEMORY: 300.0})
        assert raised.value.partly == {MEMORY: 300.0}, "it was raised before"
    finally:
        below.rmdir()


def test_a_group_that_went_is_gone(acting: Cgroup, real: Tree) -> None:
    acting.apply({CPU: 0.5})
    real.remove()
    for use in (acting.present, lambda: acting.apply({CPU: 1.0}), acting.restore):
        with pytest.raises(ActuatorError) as raised:
            use()
        assert raised.value.kind == "gone"
    acting.restore()


def test_memory_is_not_raised_beyond_memory_and_swap_together_and_nothing_is_cut(acting: Cgroup, real: Tree) -> None:
    together = real.folders["memory"] / "memory.memsw.limit_in_bytes"
    if not together.exists():
        pytest.skip("version 1 that counts swap alone")
    real.set(memory=str(50 * MIB))
    together.write_text(str(100 * MIB))
    acting.present()
    with pytest.raises(ActuatorError, match=r"memory to 209715200\): Invalid argument; .*memory\.memsw\.limit_in_by"):
        acting.apply({MEMORY: 200.0})
    assert (real.limit("memory"), together.read_text().strip()) == (str(50 * MIB), str(100 * MIB))
    acting.present()
    assert acting.apply({MEMORY: 100.0}).values == {MEMORY: 100.0}
    assert together.read_text().strip() == str(100 * MIB)
