"""Which tests take long, measured: `make durations` runs all of them and writes slow.txt, a line each.

    12.4 tests/e2e/test_kill.py                       a file in which something is set up that takes long: all its tests
    0.8 tests/serving/test_ledger.py::test_a_reader   a test of which one case does, all cases together

`make check` leaves them out, and the files begin in the order of their seconds (conftest.py). A test that is not there
counts as quick until the next `make durations`.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("slow.txt")
LIMIT_S = 0.25

_phases: dict[str, dict[str, float]] = defaultdict(dict)  # test -> setup, call, teardown -> seconds


def slow_tests() -> dict[str, float]:
    """File, or file and test -> seconds."""
    return {name: float(seconds) for seconds, name in
            (line.split(maxsplit=1) for line in FILE.read_text(encoding="utf-8").splitlines())}


def names_of(case: str) -> set[str]:
    """By what a case may stand in the file: its file, or its test."""
    return {case.partition("::")[0], case.partition("[")[0]}


def slow_of(phases: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The same, of measured tests: node id -> setup, call, teardown -> seconds."""
    together, longest, long_setup = defaultdict[str, float](float), defaultdict[str, float](float), set[str]()
    for case, seconds in phases.items():
        test, taken = case.partition("[")[0], sum(seconds.values())
        longest[test] = max(longest[test], taken)
        for name in names_of(case):
            together[name] += taken
        if seconds.get("setup", 0.0) > LIMIT_S:
            long_setup.add(case.partition("::")[0])  # whichever test comes first sets up for the others
    tests = {test for test, taken in longest.items() if taken > LIMIT_S and test.partition("::")[0] not in long_setup}
    return {name: together[name] for name in long_setup | tests}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Of every worker."""
    _phases[report.nodeid][report.when] = report.duration


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Writes the file, once; not where the run was stopped, for what it did not come to would count as quick."""
    ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if ended and not hasattr(session.config, "workerinput"):
        FILE.write_text("".join(f"{seconds:.1f} {name}\n" for name, seconds in sorted(slow_of(_phases).items())),
                        encoding="utf-8")
