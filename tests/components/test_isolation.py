"""A killed process costs the one workload that kills it, and no other of its shard."""

import signal
from pathlib import Path

import pytest

from components.isolation import StepFailedError, run_isolated
from components.workload_status import failure


class Machine:
    """Processes that work through their shard in order; a deadly workload kills the process that comes to it."""

    def __init__(self, output: Path, deadly: set[str]) -> None:
        self.output, self.deadly, self.shards = output, deadly, list[list[str]]()

    def __call__(self, shard: list[str]) -> int:
        self.shards.append(shard)
        for name in shard:
            if name in self.deadly:
                return -int(signal.SIGKILL)
            (self.output / name).mkdir()
        return 0


@pytest.mark.parametrize("deadly", [set(), {"w0"}, {"w7"}, {"w3", "w4"}, {f"w{k}" for k in range(8)}])
def test_all_but_the_deadly_workloads_are_done(tmp_path: Path, deadly: set[str]) -> None:
    machine = Machine(tmp_path, deadly)
    names = [f"w{k}" for k in range(8)]
    run_isolated("verify", names, tmp_path, {}, machine)
    for name in names:
        said = failure(tmp_path / name)
        assert (said is not None) == (name in deadly)
        assert said is None or said == {
            "step": "verify", "message": "its process was killed by SIGKILL (signal 9): most often memory ran out"}
    assert machine.shards[0] == names and len(machine.shards) <= 1 + 8 * len(deadly)


@pytest.mark.parametrize("code", [0, 3])
def test_a_workload_that_calls_exit_takes_nobody_along(tmp_path: Path, code: int) -> None:
    """A library's exit(0) looks like a step that went well, but those behind it in the shard are not done."""
    def run(shard: list[str]) -> int:
        for name in shard:
            if name == "w1":
                return code
            (tmp_path / name).mkdir()
        return 0

    run_isolated("verify", ["w0", "w1", "w2", "w3"], tmp_path, {}, run)
    assert failure(tmp_path / "w1") == {"step": "verify", "message": f"its process ended with exit code {code} before "
                                        "the workload was done: something in it called exit"}
    assert all((tmp_path / name).is_dir() and failure(tmp_path / name) is None for name in ("w0", "w2", "w3"))


def test_what_the_step_raises_is_not_tried_again(tmp_path: Path) -> None:
    calls: list[list[str]] = []

    def run(shard: list[str]) -> int:
        calls.append(shard)
        return 1

    with pytest.raises(StepFailedError, match="verify ended with exit code 1"):
        run_isolated("verify", ["a", "b"], tmp_path, {}, run)
    assert calls == [["a", "b"]]


def test_a_real_process_runs_the_step(tmp_path: Path) -> None:
    """Of a task that cannot be read: the error is the step's own, from another process."""
    with pytest.raises(StepFailedError):
        run_isolated("verify", ["a"], tmp_path / "out", {"task_yaml": "name: [", "seed": 0, "features": tmp_path,
                                                         "learner": tmp_path})
