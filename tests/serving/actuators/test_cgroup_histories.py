"""Any history of acting, giving back, kills and changes by somebody else: nobody's limit is lost."""

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.control_group_limits import amount
from serving.actuators.actuator import ActuatorError
from serving.actuators.cgroup import Cgroup
from tests.serving.actuators.control_group.groups import MIB, PARENT, plain_files

CPU, MEMORY = "target_cpu_limit_cores", "target_memory_limit_mib"
APPLY = st.fixed_dictionaries({}, optional={CPU: st.floats(0.1, 3.0), MEMORY: st.floats(60.0, 300.0)})
EVENTS = st.lists(st.one_of(APPLY, st.sampled_from(["present", "kill", "restore"]),
                            st.tuples(st.just("somebody"), st.sampled_from(["cpu", "memory"]))), max_size=25)


@settings(max_examples=60, deadline=None)
@given(version=st.sampled_from([1, 2]), events=EVENTS)
def test_what_comes_back_is_what_was_found_or_what_somebody_else_set_last(version: int, events: list[object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = plain_files(Path(folder) / "groups", version)

        def started() -> Cgroup:
            actuator = Cgroup("nginx", Path(folder) / "state", parent=PARENT, root=tree.root)
            assert actuator.acquire("controller") == ""
            return actuator

        tree.set(cpu="100000 100000", memory=str(150 * MIB))
        actuator, expected = started(), tree.limits()
        for number, event in enumerate([*events, "kill", "restore"]):
            match event:
                case "present":
                    actuator.present()
                case "kill":
                    actuator.release("controller")  # as the kernel frees it
                    stood = tree.limits()
                    actuator = started()
                    assert tree.limits() == {limit: max(stood[limit], found, key=amount)
                                             for limit, found in expected.items()}, "nothing is taken away"
                case "restore":
                    with suppress(ActuatorError):  # which says what was left to somebody else
                        actuator.restore()
                    assert tree.limits() == expected
                case ("somebody", limit):
                    theirs = {"cpu": f"{400_000 + number} 100000", "memory": str((400 + number) * MIB)}[str(limit)]
                    tree.set(**{str(limit): theirs})
                    expected[str(limit)] = theirs
                case dict(targets):
                    with suppress(ActuatorError):  # where the change by somebody else was not read
                        actuator.apply(targets)
