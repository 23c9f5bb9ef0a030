"""Control groups: what is written for each version, and what happens where nothing can be written."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from recording.control_groups import ControlGroups, Hierarchy, Throttling, find_hierarchy
from recording.processes import Guard


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    with Guard(tmp_path) as guard:
        yield guard


def test_version_1_writes_quota_and_limit_to_its_own_folders(guard: Guard, tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "memory").mkdir()
    groups = ControlGroups(guard, Hierarchy(1, tmp_path / "cpu", tmp_path / "memory"))
    memory, cpu = groups.make("redis", cpu=True, memory_mb=64)
    assert (cpu.parent.name, memory.parent.name) == ("cpu", "memory")
    assert (memory / "memory.limit_in_bytes").read_text() == str(64 * 2**20)
    assert list(cpu.iterdir()) == []  # no quota while the server starts
    assert groups.set_quota("redis", 0.4)
    assert (cpu / "cpu.cfs_quota_us").read_text() == "40000"
    assert (cpu / "cpu.cfs_period_us").read_text() == "100000"
    shutil.rmtree(cpu)  # real groups vanish with their files
    shutil.rmtree(memory)


def test_version_2_uses_one_folder(guard: Guard, tmp_path: Path) -> None:
    groups = ControlGroups(guard, Hierarchy(2, tmp_path, tmp_path))
    (folder,) = groups.make("redis", cpu=True, memory_mb=64)
    assert groups.set_quota("redis", 1.5)
    assert (folder / "memory.max").read_text() == str(64 * 2**20)
    assert (folder / "cpu.max").read_text() == "150000 100000"
    shutil.rmtree(folder)


@pytest.mark.parametrize(("version", "file", "weight", "stat"), [
    (1, "cpu.shares", "51200", "nr_periods 40\nnr_throttled 10\nthrottled_time 2500000000\n"),
    (2, "cpu.weight", "5000", "usage_usec 7\nnr_periods 40\nnr_throttled 10\nthrottled_usec 2500000\n"),
])
def test_weight_and_throttling_of_both_versions(
    version: int, file: str, weight: str, stat: str, guard: Guard, tmp_path: Path
) -> None:
    (tmp_path / "cpu").mkdir()
    groups = ControlGroups(guard, Hierarchy(version, tmp_path / "cpu", None))
    (folder,) = groups.make("redis", cpu=True, memory_mb=None)
    assert groups.set_weight("redis", 50) and (folder / file).read_text() == weight
    (folder / "cpu.stat").write_text(stat)
    assert groups.throttling("redis") == Throttling(periods=40, throttled=10)
    shutil.rmtree(folder)


def test_one_group_can_be_removed_before_the_others(guard: Guard, tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    groups = ControlGroups(guard, Hierarchy(1, tmp_path / "cpu", None))
    first, second = (groups.make(name, cpu=True, memory_mb=None) for name in ("a", "b"))
    groups.remove(first)
    assert not first[0].exists() and second[0].exists()
    groups.remove_all()
    assert not second[0].exists()


def test_a_group_that_could_not_be_removed_goes_when_the_guard_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu").mkdir()
    monkeypatch.setattr("recording.control_groups.remove_group", lambda folder: False)  # something is still in it
    with Guard(tmp_path) as guard:
        groups = ControlGroups(guard, Hierarchy(1, tmp_path / "cpu", None))
        (folder,) = groups.make("a", cpu=True, memory_mb=None)
        groups.remove_all()
        assert folder.exists()
    assert not folder.exists()


def test_without_writable_groups_there_are_no_limits(guard: Guard) -> None:
    groups = ControlGroups(guard, Hierarchy(1, None, None))
    assert not groups.set_weight("redis", 50) and groups.throttling("redis") == Throttling()
    assert groups.make("redis", cpu=True, memory_mb=64) == ()
    assert not groups.set_quota("redis", 1.0)
    assert not groups.has_cpu and not groups.has_memory


def test_a_root_without_controllers_has_nothing_writable(tmp_path: Path) -> None:
    assert find_hierarchy(tmp_path) == Hierarchy(1, None, None)
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    (tmp_path / "cgroup.subtree_control").write_text("")
    assert find_hierarchy(tmp_path) == Hierarchy(2, None, None)


def test_this_hosts_groups_are_made_and_removed(guard: Guard) -> None:
    hierarchy = find_hierarchy()
    if hierarchy.cpu is None:
        pytest.skip("control groups are not writable here")
    groups = ControlGroups(guard, hierarchy)
    folders = groups.make("test", cpu=True, memory_mb=64 if hierarchy.memory else None)
    assert groups.set_quota("test", 0.5)
    assert folders and all(folder.is_dir() for folder in folders)
    groups.remove_all()
    assert not any(folder.exists() for folder in folders)
