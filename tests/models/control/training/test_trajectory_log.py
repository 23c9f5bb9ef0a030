"""What a controller wrote is read again; what was cut is lost alone, and nothing unknown becomes a number."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.control.training.trajectory_log import (
    Header,
    Mark,
    Step,
    TrajectoryLog,
    last_step,
    read_log,
)

HEADER = Header("autoscaling", (("p99_ms", "ms"), ("rate_rps", "1/s")), (("target_replicas", "count"),))


def step(number: int, episode: int = 0, application: str = "shop", mark: Mark = "measured") -> Step:
    reward = 1.0 if mark == "measured" else math.nan
    return Step(application, episode, number, "fallback", (12.5, math.nan), (3.0,), reward, 2.0, 0.0, 0.0, mark)


def same(one: Step, other: Step) -> bool:
    return repr(one) == repr(other)  # NaN is not equal to itself


def test_steps_are_read_as_they_were_written(tmp_path: Path) -> None:
    steps = [step(0), replace(step(1), detail={"at": "now"}), step(2, mark="missing"), step(3, mark="not_a_number")]
    log = TrajectoryLog(tmp_path / "log", HEADER)
    log.append(steps[:2])
    TrajectoryLog(tmp_path / "log", HEADER).append(steps[2:])
    read = read_log(tmp_path / "log")
    assert read.header == HEADER and not read.lost
    assert all(map(same, read.steps, steps)) and len(read.steps) == len(steps)


def test_the_oldest_parts_are_removed_and_never_the_newest(tmp_path: Path) -> None:
    """A part is of two steps of some 200 bytes behind its header."""
    log = TrajectoryLog(tmp_path, HEADER, part_bytes=500, keep_bytes=1500)
    for number in range(20):
        log.append([step(number)])
    parts = sorted(path.name for path in tmp_path.iterdir())
    assert 1 < len(parts) < 6
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1500 + 2 * 500
    numbers = [one.step for one in read_log(tmp_path).steps]
    assert numbers == list(range(numbers[0], 20))
    assert numbers[0] > 0
    tiny = TrajectoryLog(tmp_path, HEADER, part_bytes=1, keep_bytes=1)
    tiny.append([step(20)])
    tiny.append([step(21)])
    assert [one.step for one in read_log(tmp_path).steps] == [20, 21]


def test_a_reward_that_is_not_known_stays_marked(tmp_path: Path) -> None:
    marks: tuple[Mark, ...] = ("missing", "late", "irregular", "not_a_number")
    TrajectoryLog(tmp_path, HEADER).append([step(number, mark=mark) for number, mark in enumerate(marks)])
    read = read_log(tmp_path).steps
    assert tuple(one.mark for one in read) == marks
    assert all(math.isnan(one.reward) for one in read)


@pytest.mark.parametrize(("reward", "mark"), [(math.nan, "measured"), (math.inf, "measured"), (1.0, "late"),
                                              (1.0, "missing")])
def test_a_number_that_was_not_measured_in_time_is_no_step(reward: float, mark: str) -> None:
    with pytest.raises(ValueError, match="expected a finite reward where"):
        replace(step(0), reward=reward, mark=mark)


@settings(deadline=None, max_examples=40)
@given(cut=st.integers(min_value=0, max_value=10_000), extra=st.integers(min_value=0, max_value=3))
def test_a_log_cut_anywhere_loses_the_cut_record_alone(tmp_path_factory: pytest.TempPathFactory, cut: int,
                                                       extra: int) -> None:
    folder = tmp_path_factory.mktemp("log")
    TrajectoryLog(folder, HEADER).append([step(number) for number in range(20)])
    part = next(folder.iterdir())
    lines = part.read_bytes().splitlines(keepends=True)
    start = len(lines[0])
    content = part.read_bytes()[:start + cut % (sum(map(len, lines)) - start + 1)]
    part.write_bytes(content)
    TrajectoryLog(folder, HEADER).append([step(100 + number) for number in range(extra)])
    read = read_log(folder)
    whole = content.count(b"\n") - 1
    rest = content.rsplit(b"\n", 1)[1]
    is_whole_but_for_its_end = rest + b"\n" in lines
    assert [one.step for one in read.steps] == [*range(whole + is_whole_but_for_its_end),
                                                *range(100, 100 + extra)]
    assert len(read.lost) == (rest != b"" and not is_whole_but_for_its_end)
    if read.lost:
        assert str(read.lost[0]) == f"record lost: no whole JSON object ({part}, line {whole + 2})"


def test_parts_are_rotated_and_a_damaged_header_costs_nothing_else(tmp_path: Path) -> None:
    log = TrajectoryLog(tmp_path, HEADER, part_bytes=1000)
    for number in range(30):
        log.append([step(number)])
    parts = sorted(tmp_path.iterdir())
    assert len(parts) > 3 and parts[1].name == "steps-000002.jsonl"
    parts[1].write_bytes(b"{" + parts[1].read_bytes())
    read = read_log(tmp_path)
    assert [one.step for one in read.steps] == list(range(30))
    assert [(lost.path, lost.line) for lost in read.lost] == [(parts[1], 1)]


@pytest.mark.parametrize(("text", "reason"), [
    ('{"application": "shop"}', "no field 'episode'"),
    ('{"application":"shop","what":"start","reason":""}', "no field 'episode'"),
    ('[1, 2]', "list indices must be"),
])
def test_a_record_that_makes_no_sense_is_lost_and_told(tmp_path: Path, text: str, reason: str) -> None:
    TrajectoryLog(tmp_path, HEADER).append([step(0)])
    part = next(tmp_path.iterdir())
    part.write_bytes(part.read_bytes() + text.encode() + b"\n")
    read = read_log(tmp_path)
    assert len(read.steps) == 1 and reason in str(read.lost[0])


def test_a_step_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    TrajectoryLog(tmp_path, HEADER).append([step(0), replace(step(0), reward=5.0), step(0, application="other")])
    read = read_log(tmp_path)
    assert [one.reward for one in read.steps] == [1.0, 1.0]
    assert "step 0 of episode 0 of shop is there already" in str(read.lost[0])


def test_a_log_goes_on_with_its_own_header_alone(tmp_path: Path) -> None:
    TrajectoryLog(tmp_path, HEADER).append([step(0)])
    with pytest.raises(InputError, match="must go on with the header"):
        TrajectoryLog(tmp_path, replace(HEADER, controls=()))
    with pytest.raises(InputError, match="must have 2 signals and 1 controls, got 2 and 0"):
        TrajectoryLog(tmp_path, HEADER).append([replace(step(1), targets=())])


def test_the_last_step_is_found_behind_what_is_no_step_and_broken_lines(tmp_path: Path) -> None:
    assert last_step(tmp_path) is None
    log = TrajectoryLog(tmp_path, HEADER, part_bytes=600)
    steps = [step(number) for number in range(9)]
    for one in steps:
        log.append([one])
    with sorted(tmp_path.glob("steps-*.jsonl"))[-1].open("ab") as file:
        file.write(b'{"application":"shop","what":"start","reason":""}\n\n[1, 2]\n{"application": "sh')
    assert len(list(tmp_path.glob("steps-*.jsonl"))) > 1
    found = last_step(tmp_path)
    assert found is not None
    assert (found.episode, found.step) == (steps[-1].episode, steps[-1].step)


def test_an_empty_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must have a part with a header, got 0 parts"):
        read_log(tmp_path)


def test_a_write_that_the_disk_cuts_leaves_no_part_of_a_record_or_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                         ) -> None:
    import os

    write = os.write

    def cut(descriptor: int, data: bytes) -> int:
        if len(data) < 60:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:50])

    log = TrajectoryLog(tmp_path, HEADER)
    for number in range(2):
        with monkeypatch.context() as patched, pytest.raises(InputError, match="No space left"):
            patched.setattr("models.control.training.trajectory_log.os.write", cut)
            log.append([step(number)])
        log.append([step(10 + number)])
    read = read_log(tmp_path)
    assert [one.step for one in read.steps] == [10, 11]
    assert read.lost == ()
