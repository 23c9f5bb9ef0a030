"""The control group actuator behind the control loop: steps, a second controller, a restart after a kill."""

from pathlib import Path

import pytest

from serving.actuators.cgroup import Cgroup
from serving.control.loop import ControlLoop
from serving.control.parts import Parts
from tests.serving.actuators.control_group.groups import MIB, PARENT, Tree
from tests.serving.control.world import Said, World, keep, loop_of


def more(row: dict[str, float]) -> dict[str, float]:
    """Half as much CPU again, replicas as they are."""
    return {**keep(row), "target_cpu_limit_cores": row["cpu_limit_cores"] * 1.5, "target_memory_limit_mib": 100.0}


@pytest.fixture
def limited(tree: Tree) -> Tree:
    tree.set(cpu="50000 100000", memory=str(90 * MIB))
    return tree


def controller(tree: Tree, folder: Path, holder: str, says: object = more) -> tuple[ControlLoop, Cgroup]:
    actuator = Cgroup("nginx", folder / "state", parent=PARENT, root=tree.root)
    world = World()
    loop = loop_of(world, folder / holder, Said(says), holder=holder)
    parts = loop._parts
    loop._parts = Parts(parts.reader, parts.models, actuator, parts.shield, parts.fallback, parts.observer, parts.stops,
                        parts.holder)
    return loop, actuator


def test_steps_act_on_the_group(limited: Tree, tmp_path: Path) -> None:
    found = limited.limits()
    loop, actuator = controller(limited, tmp_path, "first")
    records = [loop.step() for _ in range(3)]
    assert [record.failure for record in records] == ["", "", ""]
    acted = [record for record in records if record.actor == "policy"]
    assert acted and acted[-1].done is not None and acted[-1].done["target_memory_limit_mib"] == 100.0
    assert limited.limit("cpu") != found["cpu"] and limited.limit("memory") == str(100 * MIB)
    loop.close()
    actuator.restore()
    assert limited.limits() == found


def test_a_second_controller_does_nothing_and_says_who_acts(limited: Tree, tmp_path: Path) -> None:
    first, _ = controller(limited, tmp_path, "first")
    first.step()
    before = limited.limits()
    second, actuator = controller(limited, tmp_path, "second")
    record = second.step()
    assert record.actor == "nobody" and "first (process" in record.reason and "has the lease" in record.reason
    second.close()
    actuator.restore()
    assert limited.limits() == before


def test_after_a_kill_the_next_goes_on_from_what_was_given_and_gives_back_at_the_end(
    limited: Tree, tmp_path: Path
) -> None:
    found = limited.limits()
    first, actuator = controller(limited, tmp_path, "first")
    for _ in range(3):
        first.step()
    given = actuator.present()["cpu_limit_cores"]
    assert given > 0.5
    actuator.release("first")  # as the kernel does it
    second, actuator = controller(limited, tmp_path, "second")
    record = second.step()
    assert record.failure == "" and record.seen["cpu_limit_cores"] == given
    assert record.done is not None and record.done["target_cpu_limit_cores"] >= given
    second.close()
    actuator.restore()
    assert limited.limits() == found


def test_more_replicas_are_refused_and_nothing_is_set(limited: Tree, tmp_path: Path) -> None:
    loop, _ = controller(limited, tmp_path, "first", lambda row: {**more(row), "target_replicas": 2.0})
    refused = 0
    for _ in range(4):
        before = limited.limits()
        record = loop.step()
        if record.targets["target_replicas"] != 1.0:
            assert "target_replicas must be 1, which is fixed, got 2" in record.failure
            assert record.done is None and limited.limits() == before
            refused += 1
    assert refused > 1
