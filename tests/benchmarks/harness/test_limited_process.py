import os

import psutil
import pytest

from benchmarks.harness.limited_process import tree_resident_mib


def test_a_descendant_that_ends_during_the_look_takes_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended:
        def memory_info(self) -> None:
            raise psutil.NoSuchProcess(1)

    monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: [Ended()])
    assert tree_resident_mib(os.getpid()) > 1
