"""The control group actuator on plain files of both versions: what it reads, sets, refuses and gives back."""

import errno
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from feature_store.errors import InputError
from serving.actuators import cgroup
from serving.actuators.actuator import ActuatorError
from serving.actuators.cgroup import Cgroup
from serving.actuators.control_group.found_limits import FoundLimits, write_found
from serving.actuators.control_group.group import ControlGroup
from tests.serving.actuators.control_group.groups import MIB, PARENT, Tree, plain_files

CPU, MEMORY, REPLICAS = "target_cpu_limit_cores", "target_memory_limit_mib", "target_replicas"


def another(tree: Tree, tmp_path: Path, **arguments: Any) -> Cgroup:
    return Cgroup("nginx", tmp_path / "state", parent=PARENT, root=tree.root, **arguments)


def killed(actuator: Cgroup) -> None:
    """Frees the lease as the kernel does, and leaves everything else as it is."""
    actuator.release("controller")


def test_it_says_which_group_it_acts_on(acting: Cgroup) -> None:
    assert acting.name == f"cgroup /{PARENT}/nginx"


def test_an_unlimited_group_has_the_host(acting: Cgroup) -> None:
    host_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / MIB
    assert acting.present() == {"cpu_limit_cores": os.cpu_count(), "memory_limit_mib": host_mib, "replicas": 1.0,
                                "ready_replicas": 1.0}


def test_what_was_set_is_present(acting: Cgroup, tree: Tree) -> None:
    done = acting.apply({CPU: 0.29, MEMORY: 256.0, REPLICAS: 1.0})
    assert done.values == {CPU: 0.29, MEMORY: 256.0, REPLICAS: 1.0} and done.notes == ()
    assert acting.present() == {"cpu_limit_cores": 0.29, "memory_limit_mib": 256.0, "replicas": 1.0,
                                "ready_replicas": 1.0}
    assert set(tree.limits().values()) == {"29000 100000", str(256 * MIB)}
    assert acting.apply({CPU: 0.29, MEMORY: 256.0}) == acting.apply({CPU: 0.29, MEMORY: 256.0})


def test_one_control_alone_leaves_the_other(acting: Cgroup, tree: Tree) -> None:
    acting.apply({CPU: 1.5})
    assert tree.limits()["memory"] == "max" and tree.limits()["cpu"] == "150000 100000"
    assert acting.apply({}).values == {}


def test_a_group_of_three_replicas_gets_three_times_the_limit(tree: Tree, tmp_path: Path) -> None:
    actuator = another(tree, tmp_path, replicas=3)
    actuator.acquire("controller")
    assert actuator.apply({CPU: 0.5, MEMORY: 100.0, REPLICAS: 3.0}).values == {CPU: 0.5, MEMORY: 100.0, REPLICAS: 3.0}
    assert tree.limits()["cpu"] == "150000 100000" and tree.limits()["memory"] == str(300 * MIB)
    present = actuator.present()
    assert (present["cpu_limit_cores"], present["memory_limit_mib"], present["ready_replicas"]) == (0.5, 100.0, 3.0)


def test_no_process_means_no_ready_replica(acting: Cgroup, tree: Tree) -> None:
    (tree.folders["memory"] / "cgroup.procs").write_text("")
    assert acting.present()["ready_replicas"] == 0.0
    (tree.folders["memory"] / "removed").mkdir()  # whose files went first
    below = tree.folders["memory"] / "worker"
    below.mkdir()
    (below / "cgroup.procs").write_text("18\n")
    assert acting.present()["ready_replicas"] == 1.0


@pytest.mark.parametrize(("targets", "message"), [
    ({CPU: 2.0, REPLICAS: 4.0}, "target_replicas must be 1, which is fixed, got 4"),
    ({CPU: 2.0, MEMORY: 0.0}, "target_memory_limit_mib must be above 0 .*, got 0.0"),
    ({CPU: 2.0, MEMORY: -1.0}, "target_memory_limit_mib must be above 0 .*, got -1.0"),
    ({MEMORY: 99.0, CPU: float("nan")}, "target_cpu_limit_cores must be above 0 .*, got nan"),
    ({MEMORY: 99.0, CPU: float("inf")}, "target_cpu_limit_cores must be above 0 .*, got inf"),
    ({CPU: 2.0, MEMORY: 2.0**44}, r"target_memory_limit_mib must be above 0 and at most 1.09951e\+12"),
    ({REPLICAS: float("inf")}, "target_replicas must be above 0 .*, got inf"),
    ({CPU: 2.0, "target_cpu_limit": 1.0}, "did you mean 'target_cpu_limit_cores'"),
])
def test_a_decision_that_cannot_be_carried_out_sets_nothing(
    targets: dict[str, float], message: str, acting: Cgroup, tree: Tree, tmp_path: Path
) -> None:
    before = tree.limits()
    with pytest.raises(ActuatorError, match=message) as raised:
        acting.apply(targets)
    assert raised.value.kind == "refused" and raised.value.partly == {} and tree.limits() == before
    assert not list((tmp_path / "state").glob("*.json"))


def test_a_policys_rounding_is_not_another_number_of_replicas(acting: Cgroup) -> None:
    assert acting.apply({REPLICAS: 0.99999994}).values == {REPLICAS: 1.0}


def test_the_period_that_was_found_stays(acting: Cgroup, tree: Tree) -> None:
    tree.set(cpu="20000 50000")
    assert acting.apply({CPU: 0.5}).values == {CPU: 0.5}
    assert tree.limits()["cpu"] == "25000 50000"


def test_the_kernels_least_quota_is_said(acting: Cgroup, tree: Tree) -> None:
    tree.set(cpu="5000 5000")
    done = acting.apply({CPU: 0.125})
    assert done.values == {CPU: 0.2} and "least that the kernel allows" in done.notes[0]


def test_memory_is_lowered_only_to_what_is_used_and_a_margin(acting: Cgroup, tree: Tree) -> None:
    tree.use(105)
    tree.set(**{limit: str(400 * MIB) for limit in tree.folders if limit != "cpu"})
    done = acting.apply({CPU: 2.0, MEMORY: 64.0})
    assert done.values[CPU] == 2.0 and done.values[MEMORY] == pytest.approx(105 * 1.1, abs=0.01)
    assert "64 MiB leaves too little above the 105 MiB in use" in done.notes[0]


def test_memory_stays_where_the_present_limit_is_already_near_its_use(acting: Cgroup, tree: Tree) -> None:
    tree.set(memory=str(52 * MIB))
    done = acting.apply({MEMORY: 40.0})
    assert done.values == {MEMORY: 52.0} and "not lowered" in done.notes[0]
    assert acting.apply({MEMORY: 53.0}).values == {MEMORY: 53.0}, "raising is always safe"


def test_file_pages_that_can_be_dropped_do_not_hold_memory(tmp_path: Path) -> None:
    tree = plain_files(tmp_path / "groups", 1)
    tree.use(500, inactive_file_mib=420)
    actuator = another(tree, tmp_path)
    actuator.acquire("controller")
    assert actuator.apply({MEMORY: 100.0}).values == {MEMORY: 100.0}


def test_version_2_is_not_limited_below_its_use_where_pages_were_not_taken_back(tmp_path: Path) -> None:
    """Plain files take nothing back: what memory.high should have brought about did not come."""
    tree = plain_files(tmp_path / "groups", 2)
    tree.use(500, inactive_file_mib=420)
    actuator = another(tree, tmp_path)
    actuator.acquire("controller")
    with pytest.raises(ActuatorError, match="100 MiB for 500 MiB") as raised:
        actuator.apply({CPU: 0.5, MEMORY: 100.0})
    assert raised.value.kind == "refused" and raised.value.partly == {CPU: 0.5}
    assert tree.limits() == {"cpu": "50000 100000", "memory": "max", "memory_high": "max"}
    actuator.restore()
    assert set(tree.limits().values()) == {"max", "max 100000"}


@pytest.mark.parametrize(("targets", "expected"), [
    ({CPU: 2.0, MEMORY: 300.0}, ["memory", "memory_high", "cpu"]),
    ({CPU: 0.5, MEMORY: 100.0}, ["cpu", "memory_high", "memory"]),
    ({CPU: 2.0, MEMORY: 100.0}, ["cpu", "memory_high", "memory"]),
    ({CPU: 0.5, MEMORY: 300.0}, ["memory", "memory_high", "cpu"]),
])
def test_what_is_raised_comes_before_what_is_lowered(
    targets: dict[str, float], expected: list[str], acting: Cgroup, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.set(**{limit: "100000 100000" if limit == "cpu" else str(200 * MIB) for limit in tree.folders})
    written = []
    real = ControlGroup.write

    def write(self: ControlGroup, limit: str, text: str) -> None:
        written.append(limit)
        real(self, limit, text)

    monkeypatch.setattr(ControlGroup, "write", write)
    acting.apply(targets)
    assert written == [limit for limit in expected if limit in tree.folders]


@pytest.mark.parametrize(("high", "most", "target", "after"), [
    (50, 1024, 64, (64, 1024)), (50, 60, 64, (64, 64)), (None, 200, 300, (None, 300)), (50, None, 64, (64, None)),
    (50, 1024, 45, (45, 45))])
def test_raising_memory_cuts_no_limit_that_lies_above(
    high: int | None, most: int | None, target: int, after: tuple[int | None, int | None], tmp_path: Path
) -> None:
    """Version 2 has two of them, which systemd calls MemoryHigh and MemoryMax."""
    def text(mib: int | None) -> str:
        return "max" if mib is None else str(mib * MIB)

    tree = plain_files(tmp_path / "groups", 2)
    tree.use(20)
    tree.set(memory=text(most), memory_high=text(high))
    actuator = another(tree, tmp_path)
    actuator.acquire("controller")
    assert actuator.present()["memory_limit_mib"] == min(high or math.inf, most or math.inf)
    assert actuator.apply({MEMORY: float(target)}).values == {MEMORY: float(target)}
    assert (tree.limit("memory_high"), tree.limit("memory")) == tuple(map(text, after))
    actuator.restore()
    assert (tree.limit("memory_high"), tree.limit("memory")) == (text(high), text(most))


@pytest.mark.parametrize(("number", "kind"), [
    (errno.EBUSY, "refused"), (errno.EINVAL, "refused"), (errno.ENOMEM, "refused"), (errno.EACCES, "forbidden"),
    (errno.EPERM, "forbidden"), (errno.ENODEV, "gone"), (errno.EIO, "unreachable"),
])
def test_a_second_write_that_fails_tells_what_was_set(
    number: int, kind: str, acting: Cgroup, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.set(cpu="100000 100000")
    acting.present()
    real = os.write

    def write(descriptor: int, text: bytes) -> int:
        if "memory" in os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/")[2]:
            raise OSError(number, os.strerror(number))
        return real(descriptor, text)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        with pytest.raises(ActuatorError) as raised:
            acting.apply({CPU: 2.0, MEMORY: 100.0})
    assert raised.value.kind == kind and raised.value.partly == {CPU: 2.0}
    assert tree.limit("cpu") == "200000 100000"


def test_a_change_by_somebody_else_since_it_was_read_is_a_conflict(acting: Cgroup, tree: Tree) -> None:
    acting.present()
    tree.set(cpu="70000 100000")
    for _ in range(2):
        with pytest.raises(ActuatorError, match=r"by somebody else: expected .*, found cpu 70000 100000") as raised:
            acting.apply({CPU: 2.0})
        assert raised.value.kind == "conflict"
    assert tree.limits()["cpu"] == "70000 100000"
    acting.present()
    assert acting.apply({CPU: 2.0}).values == {CPU: 2.0}


def test_nobody_acts_without_the_lease(tree: Tree, tmp_path: Path) -> None:
    actuator = another(tree, tmp_path)
    with pytest.raises(ActuatorError, match="must hold the lease"):
        actuator.apply({CPU: 2.0})


def test_what_was_found_comes_back(acting: Cgroup, tree: Tree, tmp_path: Path) -> None:
    tree.set(cpu="130000 100000", memory=str(300 * MIB))
    before = tree.limits()
    acting.apply({CPU: 0.5})
    acting.apply({CPU: 0.75, MEMORY: 128.0})
    acting.apply({MEMORY: 512.0})
    acting.restore()
    assert tree.limits() == before and not list((tmp_path / "state").glob("*.json"))
    acting.restore()
    assert tree.limits() == before
    acting.apply({CPU: 1.0})
    assert tree.limits() != before, "it can act again"
    acting.restore()
    assert tree.limits() == before


def test_a_successor_gives_back_what_a_killed_controller_took_away(acting: Cgroup, tree: Tree, tmp_path: Path) -> None:
    before = tree.limits()
    acting.apply({CPU: 0.5, MEMORY: 128.0})
    killed(acting)
    successor = another(tree, tmp_path)
    assert successor.acquire("successor") == "" and tree.limits() == before
    assert successor.apply({CPU: 1.0}).notes == ()


@pytest.mark.parametrize("acts", [False, True])
def test_a_successor_takes_nothing_away_that_a_killed_controller_gave(
    acts: bool, acting: Cgroup, tree: Tree, tmp_path: Path
) -> None:
    tree.set(cpu="50000 100000", memory=str(300 * MIB))
    before = tree.limits()
    acting.apply({CPU: 4.0, MEMORY: 128.0})
    for number in range(2):  # also where the successor is killed as well
        killed(acting)
        acting = another(tree, tmp_path)
        assert acting.acquire(f"successor {number}") == ""
        assert tree.limits() == {**before, "cpu": "400000 100000"}, "memory is given back, cores are not taken away"
        if acts:
            acting.present()
            assert acting.apply({CPU: 3.0, MEMORY: 299.0}).notes == ()
            acting.apply({CPU: 4.0, MEMORY: 300.0})
    acting.restore()
    assert tree.limits() == before and not list((tmp_path / "state").glob("*.json"))


def test_what_was_given_can_be_left_for_a_later_time(acting: Cgroup, tree: Tree, tmp_path: Path) -> None:
    tree.set(cpu="50000 100000", memory=str(300 * MIB))
    before = tree.limits()
    acting.apply({CPU: 4.0, MEMORY: 128.0})
    for actuator in (acting, another(tree, tmp_path)):
        with pytest.raises(ActuatorError, match=(
                r"cpu of .*nginx stays at 400000 100000, more than the 50000 100000 that was found; `assay release` "
                "gives it back")) as raised:
            actuator.restore(lowering=False)
        assert raised.value.kind == "refused" and tree.limits() == {**before, "cpu": "400000 100000"}
        actuator.release("controller")
    another(tree, tmp_path).restore()
    assert tree.limits() == before and not list((tmp_path / "state").glob("*.json"))
    another(tree, tmp_path).restore(lowering=False)


def test_a_decision_from_before_the_giving_back_is_a_conflict(acting: Cgroup, tree: Tree, tmp_path: Path) -> None:
    acting.apply({CPU: 0.5})
    killed(acting)
    successor = another(tree, tmp_path)
    assert successor.present()["cpu_limit_cores"] == 0.5
    assert successor.acquire("successor") == ""
    with pytest.raises(ActuatorError) as raised:
        successor.apply({CPU: 0.45})
    assert raised.value.kind == "conflict"
    assert successor.present()["cpu_limit_cores"] == os.cpu_count()
    assert successor.apply({CPU: 1.5}).values == {CPU: 1.5}


def test_a_restart_can_give_back_without_acting(acting: Cgroup, tree: Tree, tmp_path: Path) -> None:
    before = tree.limits()
    acting.apply({CPU: 0.5, MEMORY: 128.0})
    killed(acting)
    another(tree, tmp_path).restore()
    assert tree.limits() == before and another(tree, tmp_path).acquire("next") == ""


def test_what_somebody_else_set_stays_and_is_said(acting: Cgroup, tree: Tree, tmp_path: Path) -> None:
    acting.apply({CPU: 0.5, MEMORY: 128.0})
    tree.set(cpu="70000 100000")
    with pytest.raises(ActuatorError, match=r"cpu of .* was set to 70000 100000 by somebody else and stays") as raised:
        acting.restore()
    assert raised.value.kind == "conflict"
    assert tree.limits()["cpu"] == "70000 100000" and tree.limits()["memory"] == "max"
    acting.restore()

    acting.apply({CPU: 0.5})
    killed(acting)
    tree.set(cpu="80000 100000")
    successor = another(tree, tmp_path)
    successor.acquire("successor")
    assert tree.limits()["cpu"] == "80000 100000"
    assert "80000 100000 by somebody else" in successor.apply({CPU: 1.0}).notes[0]
    successor.restore()
    assert tree.limits()["cpu"] == "80000 100000", "which is now what was found"


def test_somebody_elses_limit_that_was_decided_from_is_what_comes_back(acting: Cgroup, tree: Tree) -> None:
    acting.apply({CPU: 0.5})
    tree.set(cpu="70000 100000")
    acting.present()
    assert "that is what will be given back" in acting.apply({CPU: 0.6}).notes[0]
    acting.restore()
    assert tree.limits()["cpu"] == "70000 100000"


def test_another_period_since_is_somebody_elses_limit(acting: Cgroup, tree: Tree) -> None:
    acting.apply({CPU: 0.5})
    tree.set(cpu="50000 50000")
    with pytest.raises(ActuatorError, match="50000 50000 by somebody else"):
        acting.restore()
    assert tree.limits()["cpu"] == "50000 50000"


@pytest.mark.parametrize("text", [
    "", '{"target": "a", "lim', "[]", '{"target": "a", "limits": {"cpu": {"found": "max"}}}',
    '{"target": "a", "limits": {"cpu": {"found": "x", "ours": []}}}', "\xff"])
def test_a_damaged_state_file_is_set_aside_and_said(
    text: str, acting: Cgroup, tree: Tree, tmp_path: Path
) -> None:
    acting.apply({CPU: 0.5})
    (path,) = (tmp_path / "state").glob("*.json")
    killed(acting)
    path.write_text(text, encoding="latin-1")
    successor = another(tree, tmp_path)
    assert successor.acquire("successor") == ""
    assert tree.limits()["cpu"] == "50000 100000" and path.with_suffix(".damaged").exists()
    assert "cannot be read" in successor.apply({CPU: 1.0}).notes[0]


@pytest.mark.timeout(30)
def test_a_state_file_that_is_a_pipe_is_said_and_waited_for_by_nobody(
    acting: Cgroup, tree: Tree, tmp_path: Path
) -> None:
    acting.apply({CPU: 0.5})
    killed(acting)
    (path,) = (tmp_path / "state").glob("*.json")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ActuatorError, match=r"the state file of .* must be usable, got .*no regular file"):
        another(tree, tmp_path).acquire("successor")


def test_a_damaged_state_file_does_not_matter_while_its_writer_lives(
    acting: Cgroup, tree: Tree, tmp_path: Path
) -> None:
    before = tree.limits()
    acting.apply({CPU: 0.5})
    (path,) = (tmp_path / "state").glob("*.json")
    path.write_text("")
    acting.restore()
    assert tree.limits() == before and not path.exists()


def test_a_group_that_was_made_anew_gets_nothing_back(acting: Cgroup, tree: Tree, tmp_path: Path) -> None:
    acting.apply({CPU: 0.5})
    killed(acting)
    for folder in dict.fromkeys(tree.folders.values()):
        folder.rename(folder.with_name("old"))
    successor = another(tree, tmp_path)
    assert successor.acquire("successor") == "" and not list((tmp_path / "state").glob("*.json"))
    with pytest.raises(ActuatorError, match="must exist") as raised:
        successor.present()
    assert raised.value.kind == "gone"
    successor.release("successor")

    tree = plain_files(tree.root, tree.version)
    acting = another(tree, tmp_path)
    acting.acquire("controller")
    acting.apply({CPU: 0.5})
    for folder in dict.fromkeys(tree.folders.values()):
        folder.rename(folder.with_name("older"))
    plain_files(tree.root, tree.version)
    tree.set(cpu="50000 100000")  # by chance what the controller had set
    with pytest.raises(ActuatorError, match="made anew"):
        acting.restore()
    assert tree.limits()["cpu"] == "50000 100000"


def test_nothing_is_changed_that_could_not_be_given_back(
    acting: Cgroup, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = tree.limits()
    with monkeypatch.context() as patched:
        patched.setattr("serving.actuators.cgroup.write_found", full)
        with pytest.raises(ActuatorError, match=r"on disk before it is changed, got .*No space left.*nothing was set"):
            acting.apply({CPU: 0.5})
        assert tree.limits() == before
    acting.apply({CPU: 0.5})
    with monkeypatch.context() as patched:
        patched.setattr("serving.actuators.cgroup.write_found", full)
        for cores in (2.0, 1.5, 1.0):  # what was found is on disk: a full disk does not stop a controller
            done = acting.apply({CPU: cores})
            assert done.values == {CPU: cores} and "No space left" in done.notes[0]
    acting.apply({CPU: 0.75})
    killed(acting)
    acting.acquire("controller")
    assert tree.limits() == before


def test_a_limit_below_what_is_used_now_is_given_back_later(tmp_path: Path) -> None:
    tree = plain_files(tmp_path / "groups", 2)
    tree.set(cpu="20000 100000", memory=str(100 * MIB))
    actuator = another(tree, tmp_path)
    actuator.acquire("controller")
    actuator.apply({CPU: 1.0, MEMORY: 400.0})
    tree.use(300)
    with pytest.raises(ActuatorError, match="100 MiB for 300 MiB"):
        actuator.restore()
    assert tree.limits()["cpu"] == "20000 100000" and tree.limits()["memory"] == str(400 * MIB)
    killed(actuator)
    successor = another(tree, tmp_path)
    assert successor.acquire("successor") == ""
    assert tree.limits()["memory"] == str(400 * MIB), "nothing is taken away at a start"
    tree.use(60)
    successor.restore()
    assert tree.limits() == {"cpu": "20000 100000", "memory": str(100 * MIB), "memory_high": "max"}


def test_whoever_has_no_lease_does_not_restore_under_another(acting: Cgroup, tree: Tree, tmp_path: Path) -> None:
    acting.apply({CPU: 0.5})
    second = another(tree, tmp_path)
    assert second.acquire("second") == f"controller (process {os.getpid()})"
    second.restore()
    assert tree.limits()["cpu"] == "50000 100000"


def test_a_lease_that_was_lost_to_another_is_said_at_the_end(acting: Cgroup, tree: Tree, tmp_path: Path) -> None:
    acting.apply({CPU: 0.5})
    acting.release("controller")
    second = another(tree, tmp_path)
    assert second.acquire("second") == ""
    with pytest.raises(ActuatorError, match=r"second .* has the lease") as raised:
        acting.restore()
    assert raised.value.kind == "conflict"


def test_two_groups_of_one_name_have_leases_of_their_own(acting: Cgroup, tree: Tree, tmp_path: Path) -> None:
    assert Cgroup("nginx", tmp_path / "state", parent="other", root=tree.root).acquire("other") == ""


def test_fewer_replicas_than_one_are_no_target(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="replicas must be at least 1, got 0"):
        Cgroup("nginx", tmp_path, replicas=0)


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_was_found_is_known_where_the_state_folder_is_removed(
    goes_on: bool, acting: Cgroup, tree: Tree, tmp_path: Path
) -> None:
    before = tree.limits()
    acting.apply({CPU: 0.5, MEMORY: 128.0})
    shutil.rmtree(tmp_path / "state")
    if goes_on:
        assert acting.acquire("controller") == ""
        acting.present()
        acting.apply({CPU: 0.4, MEMORY: 120.0})
    acting.restore()
    assert tree.limits() == before


@pytest.mark.parametrize("held", [True, False])
def test_what_an_operator_set_after_another_gave_back_stays(
    held: bool, acting: Cgroup, tree: Tree, tmp_path: Path
) -> None:
    """Another controller came while this one's lease was lost, gave everything back and ended; then somebody set just
    what this one had set."""
    acting.apply({CPU: 0.5})
    (lock,) = (tmp_path / "state").glob("*.lock")
    lock.unlink()
    second = another(tree, tmp_path)
    assert second.acquire("second") == ""
    second.restore()
    second.release("second")
    tree.set(cpu="50000 100000")
    if held:
        assert acting.acquire("controller") == ""
    acting.restore()
    assert tree.limits()["cpu"] == "50000 100000"


def test_a_successor_knows_what_was_found_before_the_state_folder_was_removed(
    acting: Cgroup, tree: Tree, tmp_path: Path
) -> None:
    tree.set(cpu="50000 100000")
    acting.present()
    acting.apply({CPU: 2.0})
    shutil.rmtree(tmp_path / "state")
    assert acting.acquire("controller") == ""
    killed(acting)
    another(tree, tmp_path).restore()
    assert tree.limits()["cpu"] == "50000 100000"


def test_what_was_found_is_known_where_the_state_folder_is_removed_twice_within_a_step(
    acting: Cgroup, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree.limits()
    acting.apply({CPU: 0.5, MEMORY: 128.0})
    shutil.rmtree(tmp_path / "state")

    def written_and_removed(path: Path, found: FoundLimits) -> None:
        write_found(path, found)
        path.unlink()

    monkeypatch.setattr(cgroup, "write_found", written_and_removed)
    assert acting.acquire("controller") == ""
    monkeypatch.setattr(cgroup, "write_found", write_found)
    assert tree.limits() == before, "whoever takes a lease anew gives back what was taken"
    acting.present()
    acting.apply({CPU: 0.4, MEMORY: 120.0})
    killed(acting)
    another(tree, tmp_path).restore()
    assert tree.limits() == before


def test_a_file_of_what_was_found_that_vanishes_is_there_again_a_step_later(
    acting: Cgroup, tree: Tree, tmp_path: Path
) -> None:
    before = tree.limits()
    acting.apply({CPU: 0.5, MEMORY: 128.0})
    (path,) = (tmp_path / "state").glob("*.json")
    path.unlink()
    assert acting.acquire("controller") == "" and path.exists()
    killed(acting)
    another(tree, tmp_path).restore()
    assert tree.limits() == before


def test_it_says_whether_anything_is_known_of_what_was_found(acting: Cgroup, tree: Tree, tmp_path: Path) -> None:
    acting.apply({CPU: 0.5})
    assert another(tree, tmp_path).restore() is None, "another controller has the lease"
    killed(acting)
    assert Cgroup("nginx", tmp_path / "elsewhere", parent=PARENT, root=tree.root).restore() is False
    assert tree.limits()["cpu"] == "50000 100000"
    successor = another(tree, tmp_path)
    assert successor.acquire("successor") == "" and tree.limits()["cpu"] == "max 100000"
    assert successor.restore() is True, "what was taken away was given back when the lease was taken"
    assert successor.restore() is False
