"""One thread a process, and files in the order of their length.

torch and OpenBLAS would start a thread for each core in every worker and every process that a test starts. More threads
than cores wait for each other at work: an update of small networks then takes 10 to 50 times as long.

The longest file begins first, so that with two workers none of them is at work alone at the end. `make test` gives a
worker one file after the other in the order of collection (pytest-xdist, `--dist loadfile --no-loadscope-reorder`);
without the second option it would begin with the files that have the most tests.
"""

import os
from collections.abc import Sequence

import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch and numpy are imported, which no plugin of pytest does

# Files of more than 15 s of processor time, the longest first (measured 2026-11; the two of e2e: 200 s and 80 s).
LONGEST = ("tests/e2e/test_run.py", "tests/e2e/test_kill.py", "tests/models/verification/checker/test_certificate.py",
           "tests/serving/test_registry.py", "tests/benchmarks/verification/test_mutants.py",
           "tests/serving/control/test_faults.py", "tests/models/verification/closed_loop/test_guarantee.py",
           "tests/benchmarks/verification/test_campaign.py", "tests/models/verification/checker/test_bounds.py",
           "tests/models/verification/test_verify.py", "tests/models/verification/bounds/test_relaxation.py",
           "tests/benchmarks/verification/test_campaign_process.py",
           "tests/models/control/training/offline/test_offline_methods.py",
           "tests/models/adaptation/pool/test_selection.py", "tests/components/test_bad_workloads.py",
           "tests/components/test_steps.py", "tests/systems/autoscaling/benchmarks/test_speed.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the order of the tests of a file, and of all other files."""
    items.sort(key=lambda item: _place(item.nodeid.split("::")[0], LONGEST))


def _place(file: str, longest: Sequence[str]) -> int:
    return longest.index(file) if file in longest else len(longest)
