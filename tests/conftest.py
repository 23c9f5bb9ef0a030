"""One thread a process, Ctrl-C as usual, and files in the order of their length.

torch and OpenBLAS would start a thread for each core in every worker and every process that a test starts. More threads
than cores wait for each other at work: an update of small networks then takes 10 to 50 times as long.

A shell starts what goes on in the background with SIGINT ignored, and every process that a test starts and interrupts
would inherit that.

The longest file begins first, so that with two workers none of them is at work alone at the end. `make test` gives a
worker one file after the other in the order of collection (pytest-xdist, `--dist loadfile --no-loadscope-reorder`);
without the second option it would begin with the files that have the most tests.
"""

import os
import signal
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from models.configuration import Configuration

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch and numpy are imported, which no plugin of pytest does
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Files of more than some 15 s on a quiet core, those that wait for real servers among them, the longest first (2026-11,
# measured one file at a time; the first four: 100 to 70 s); * stands for any system.
LONGEST = ("tests/e2e/test_tutorial.py", "tests/e2e/test_kill.py", "tests/environments/test_backlog.py",
           "tests/e2e/test_run.py", "tests/recording/test_campaign.py",
           "tests/models/verification/checker/test_certificate.py",
           "tests/recording/scaling/test_scaling_campaign.py", "tests/systems/*/test_whole.py",
           "tests/e2e/test_cluster_services.py", "tests/e2e/test_killed_services.py",
           "tests/systems/*/application/test_campaign.py",
           "tests/serving/test_ledger_table.py", "tests/deploy/test_whole_wheel.py",
           "tests/deploy/test_light_install.py", "tests/deploy/test_images.py", "tests/deploy/test_mlflow_server.py",
           "tests/components/test_repeated_steps.py", "tests/e2e/test_monitor.py",
           "tests/kinds/test_table_controller.py",
           "tests/pipelines/demo/test_demo.py",
           "tests/models/reporting/test_report.py", "tests/serving/test_registry.py",
           "tests/recording/live/test_service.py", "tests/models/tasks/control/shadow/test_shadow_report.py",
           "tests/models/verification/bounds/test_derivative_margins.py",
           "tests/recording/live/test_replicated_service.py", "tests/benchmarks/learning/test_job.py",
           "tests/serving/test_lifecycle.py", "tests/systems/autoscaling/test_queueing_against_requests.py",
           "tests/serving/control/test_faults.py", "tests/models/verification/bounds/test_relaxation.py",
           "tests/e2e/test_bad_input.py", "tests/e2e/test_cleaning.py",
           "tests/serving/predictions/test_node_queries.py",
           "tests/models/control/training/offline/test_offline_methods.py")


@pytest.fixture
def empty_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Configuration":
    """The project's configuration with a state folder that is not there yet; the commands that a test calls use it."""
    from models.configuration import load_configuration  # imports numpy, which must not come before the setting above

    home, settings = str(tmp_path / "home"), Path(__file__).parents[1] / "mlflow.yaml"
    monkeypatch.setenv("ASSAY_HOME", home)
    monkeypatch.setenv("ASSAY_CONFIG", str(settings))
    return load_configuration(settings, {"ASSAY_HOME": home})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the order of the tests of a file, and of all other files."""
    items.sort(key=lambda item: _place(item.nodeid.split("::")[0], LONGEST))


@cache
def _place(file: str, longest: tuple[str, ...]) -> int:
    return next((number for number, pattern in enumerate(longest) if fnmatchcase(file, pattern)), len(longest))
