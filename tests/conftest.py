"""One thread a process, Ctrl-C as usual, slow tests as they were measured, and files in the order of their length.

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
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.durations import names_of, slow_tests

if TYPE_CHECKING:
    from models.configuration import Configuration

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch and numpy are imported, which no plugin of pytest does
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def empty_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Configuration":
    """The project's configuration with a state folder that is not there yet; the commands that a test calls use it."""
    from models.configuration import load_configuration  # imports numpy, which must not come before the setting above

    home, settings = str(tmp_path / "home"), Path(__file__).parents[1] / "mlflow.yaml"
    monkeypatch.setenv("ASSAY_HOME", home)
    monkeypatch.setenv("ASSAY_CONFIG", str(settings))
    return load_configuration(settings, {"ASSAY_HOME": home})


@pytest.hookimpl(tryfirst=True)  # before `-m "not slow"` is asked
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what takes long, and begins with the longest file; keeps the order of the tests of a file."""
    seconds, of_files = slow_tests(), defaultdict[str, float](float)
    for name, taken in seconds.items():
        of_files[name.partition("::")[0]] += taken
    for item in items:
        if names_of(item.nodeid) & seconds.keys():
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: -of_files[item.nodeid.partition("::")[0]])
