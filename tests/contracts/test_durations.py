"""What counts as slow, of measured tests; what is written is read again, and marks tests."""

from pathlib import Path

import pytest

from tests import durations

FAST = {"setup": 0.01, "call": 0.01, "teardown": 0.01}


def test_a_test_of_which_one_case_is_slow_and_a_file_that_sets_up_slowly() -> None:
    found = durations.slow_of({
        "tests/test_a.py::test_cases[1]": FAST, "tests/test_a.py::test_cases[2]": {"setup": 0.0, "call": 2.0},
        "tests/test_a.py::test_quick": FAST, "tests/test_b.py::TestB::test_first": FAST | {"setup": 3.0},
        "tests/test_b.py::TestB::test_second": FAST, "tests/test_c.py::test_quick": FAST,
        "tests/test_c.py::test_skipped": {"setup": 0.0}})
    assert found == pytest.approx({"tests/test_a.py::test_cases": 2.03, "tests/test_b.py": 3.05})


def test_what_is_written_down_is_marked_and_nothing_else(request: pytest.FixtureRequest) -> None:
    slow = durations.slow_tests()
    assert slow and all(seconds > 0 for seconds in slow.values())
    for item in request.session.items:
        listed = {item.nodeid.partition("::")[0], item.nodeid.partition("[")[0]} & slow.keys()
        assert bool(listed) == (item.get_closest_marker("slow") is not None), item.nodeid


@pytest.mark.parametrize(("ended", "written"), [(pytest.ExitCode.OK, True), (pytest.ExitCode.TESTS_FAILED, True),
                                                (pytest.ExitCode.INTERRUPTED, False)])
def test_a_run_that_was_stopped_leaves_the_list_as_it_was(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ended: int, written: bool
) -> None:
    monkeypatch.setattr(durations, "FILE", tmp_path / "slow.txt")
    monkeypatch.setattr(durations, "_phases", {"tests/test_a.py::test_slow": {"call": 2.0}})
    monkeypatch.delattr(request.config, "workerinput", raising=False)  # as where pytest-xdist collects
    durations.FILE.write_text("1.0 tests/test_b.py\n")
    durations.pytest_sessionfinish(request.session, ended)
    assert durations.slow_tests() == ({"tests/test_a.py::test_slow": 2.0} if written else {"tests/test_b.py": 1.0})
