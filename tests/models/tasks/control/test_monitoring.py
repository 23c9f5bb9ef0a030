"""A look at a policy by its controller's log: reward, shares, the champion before; logs that shrink or begin anew."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from feature_store.errors import InputError
from models.control.training.trajectory_log import Header, Step, TrajectoryLog
from models.monitoring.findings import decide
from models.tasks.control.monitoring import watch_log
from models.tasks.monitored_kind import Looked, Watched
from models.verification.language.properties import Monotonicity
from models.verification.language.specification import Specification
from tests.models.export.test_row_errors import doubles_the_first_and_adds_the_second

START = datetime(2026, 1, 5, tzinfo=UTC)
HEADER = Header("t", (("load", ""), ("limit", "")), (("target", ""),))
TASK: Any = SimpleNamespace(name="t")
PROFILE = {"t_online": 0.9, "t_serving": 1.0, "t_var": 0.1, "episodes": 2, "bootstrap": True, "largest_reward": 2.0}
OWN, OTHER = "a" * 64, "b" * 64


def bundle(sha256: str = OWN, direction: str = "increasing", profile: Any = PROFILE) -> Any:
    specification = Specification(("load", "limit"), np.zeros(2), np.ones(2), (Monotonicity((0,), direction),))  # type: ignore[arg-type]
    return SimpleNamespace(sha256=sha256, model=doubles_the_first_and_adds_the_second(),
                           promise=SimpleNamespace(specification=specification),
                           evidence={"lifecycle": {"profile": profile}, "steps": 10} if profile else {})


def steps(count: int, reward: float = 1.2, first: int = 0, episode: int = 0, begin: datetime = START,
          version: str = OWN, **detail: Any) -> list[Step]:
    """A step each 15 s; `detail` by step where it is a function."""
    random = np.random.default_rng([episode, first])
    return [Step("w", episode, first + k, "policy", tuple(random.random(2).tolist()), (1.0,),
                 reward + 0.01 * float(random.normal()), detail={
                     "at": (begin + timedelta(seconds=15 * k)).isoformat(timespec="milliseconds"), "actor": "policy",
                     "version": version[:12], **{key: value(k) for key, value in detail.items()}})
            for k in range(count)]


def look(folder: Path, number: int = 1, memory: Any = None, **changed: Any) -> Looked:
    keep = folder / f"look-{number}"
    keep.mkdir()
    return watch_log(TASK, "w", replace(Watched(
        bundle(), None, None, None, folder, folder / f"look-{number - 1}", keep, memory or {}, number, 1, START),
        **changed))


def log(folder: Path, *records: Step) -> TrajectoryLog:
    made = TrajectoryLog(folder / "steps", HEADER)
    made.append(records)
    return made


def besides_drift(looked: Looked) -> tuple[str, ...]:
    """Its notes; too few steps for drift are said in each look of this file."""
    return tuple(note for note in looked.notes if not note.startswith("drift is looked at from 5,120 "))


def found(looked: Looked) -> set[str]:
    return {one.what for one in looked.findings if one.found}


def test_a_policy_as_it_was_judged_is_fine_look_after_look(tmp_path: Path) -> None:
    memory = None
    for number in range(1, 6):
        log(tmp_path, *steps(40, first=40 * (number - 1)))
        seen = look(tmp_path, number, memory)
        memory = seen.memory
        assert (seen.rows, seen.enough, found(seen)) == (40, True, set())
    (reward,) = [one for one in seen.findings if one.what == "reward"]
    assert reward.figures["rewards"] == pytest.approx([1.2, 1.2], abs=0.02) and decide(seen).choice == "fine"
    assert {one.what for one in seen.findings} == {"specification", "reward", "unfamiliar", "outside", "shield",
                                                   "fallback"}


@pytest.mark.parametrize("reward", [lambda k: 0.8, lambda k: 1.4 if k < 30 else 1.1], ids=["T_serving", "T_var"])
def test_a_policy_that_leaves_its_profile_is_found_and_may_come_back(tmp_path: Path, reward: Any) -> None:
    log(tmp_path, *(replace(step, reward=reward(step.step)) for step in steps(40)))
    seen = look(tmp_path)
    assert found(seen) == {"reward"} and decide(seen).choice == "fine-tune"
    assert "T_serving 1, T_var 0.1" in decide(seen).reasons[0]
    log(tmp_path, *steps(40, first=40))
    assert found(look(tmp_path, 2, seen.memory)) == set()


@pytest.mark.parametrize("content", [None, b"", b'{"profile": {}, "tracks": []}', b'{"profile": {}, "tracks": {}}'])
def test_what_it_knew_of_a_policy_is_read_again_from_the_log_where_it_is_lost(
        tmp_path: Path, content: bytes | None) -> None:
    log(tmp_path, *steps(40, reward=0.8))
    first = look(tmp_path, 1)
    log(tmp_path, *steps(40, reward=0.8, first=40))
    whole = look(tmp_path, 2, first.memory)
    states = tmp_path / "look-1" / "lifecycle.json"
    states.unlink() if content is None else states.write_bytes(content)
    (tmp_path / "look-2").rename(tmp_path / "seen-2")
    again = look(tmp_path, 2, first.memory)
    (note,) = set(besides_drift(again)) - set(besides_drift(whole))
    assert note.startswith("reward is read from the beginning of the log: lifecycle states must be")
    assert "reward" in found(whole) and found(again) == found(whole)
    assert {one.what: one.figures for one in again.findings} == {one.what: one.figures for one in whole.findings}


def test_an_episode_that_goes_on_from_one_look_to_the_next_counts_once(tmp_path: Path) -> None:
    log(tmp_path, *steps(25))
    first = look(tmp_path)
    log(tmp_path, *steps(25, first=25))
    seen = look(tmp_path, 2, first.memory)
    assert seen.memory["episode"] == 4 and seen.memory["counted"] == (0, 49)
    (reward,) = [one for one in seen.findings if one.what == "reward"]
    assert reward.figures["missing"] == 0 and len(reward.figures["rewards"]) == 2


@pytest.mark.parametrize(("detail", "what", "choice"), [
    ({"strange": lambda k: ["load"] if k % 3 else []}, "unfamiliar", "retrain"),
    ({"outside": lambda k: ["load"] if k % 3 else []}, "outside", "retrain"),
    ({"changes": lambda k: [{"control": "target", "reason": "range"}] if k % 3 else []}, "shield", "fine-tune"),
    ({"actor": lambda k: "fallback" if k % 3 else "policy"}, "fallback", "fine-tune"),
], ids=["unfamiliar", "outside", "shield", "fallback"])
def test_what_is_so_often_is_found_and_what_is_so_once_is_not(tmp_path: Path, detail: Any, what: str,
                                                              choice: str) -> None:
    log(tmp_path, *steps(2000, **detail))
    assert what in found(seen := look(tmp_path)) and decide(seen).choice == choice
    (key, value), = detail.items()
    (tmp_path / "steps/steps-000001.jsonl").unlink()
    log(tmp_path, *steps(2000, **{key: lambda k: value(1) if 500 < k < 520 else value(0)}))
    assert found(look(tmp_path, 2)) == set()


def test_a_policy_that_breaks_what_was_proved_is_found(tmp_path: Path) -> None:
    log(tmp_path, *steps(40))
    assert "specification" in found(look(tmp_path, bundle=bundle(direction="decreasing")))


def test_the_policy_before_is_gone_back_to_where_it_earned_more(tmp_path: Path) -> None:
    log(tmp_path, *steps(400, 1.3, version=OTHER), *steps(400, 0.8, first=400))
    seen = look(tmp_path, before=bundle(OTHER))
    assert seen.rows == 400 and seen.before is not None and seen.before.better and decide(seen).choice == "roll back"
    (tmp_path / "steps/steps-000001.jsonl").unlink()
    log(tmp_path, *steps(400, 0.7, version=OTHER), *steps(400, 0.8, first=400))
    seen = look(tmp_path, 2, before=bundle(OTHER))
    assert seen.before is not None and not seen.before.better and decide(seen).choice == "fine-tune"


def test_a_log_that_shrank_is_not_counted_again(tmp_path: Path) -> None:
    log(tmp_path, *steps(60))
    first = look(tmp_path)
    (tmp_path / "steps/steps-000001.jsonl").unlink()
    log(tmp_path, *steps(45))  # as of a disk that was restored
    seen = look(tmp_path, 2, first.memory)
    assert (seen.rows, seen.enough) == (0, False) and "ends before what was read" in seen.notes[0]


def test_a_log_whose_oldest_part_is_gone_goes_on_and_one_that_begins_anew_is_read_from_there(tmp_path: Path) -> None:
    log(tmp_path, *steps(60))
    first = look(tmp_path)
    (tmp_path / "steps/steps-000001.jsonl").unlink()
    later = START + timedelta(hours=1)
    log(tmp_path, *steps(30, first=60, begin=later))
    second = look(tmp_path, 2, first.memory)
    assert (second.rows, besides_drift(second)) == (30, ())
    (tmp_path / "steps/steps-000001.jsonl").unlink()
    log(tmp_path, *steps(40, begin=later + timedelta(hours=1)))
    third = look(tmp_path, 3, second.memory)
    assert third.rows == 40 and "begins anew" in third.notes[0]


def test_a_clock_that_jumps_back_counts_no_step_twice(tmp_path: Path) -> None:
    log(tmp_path, *steps(30), *steps(30, first=30, begin=START - timedelta(days=2)))
    first = look(tmp_path)
    log(tmp_path, *steps(30, first=60, begin=START))
    assert (first.rows, look(tmp_path, 2, first.memory).rows) == (60, 30)


def test_a_broken_record_is_lost_alone_and_told(tmp_path: Path) -> None:
    log(tmp_path, *steps(40))
    part = tmp_path / "steps/steps-000001.jsonl"
    part.write_bytes(part.read_bytes() + b'{"application": "w", "epis\n')
    seen = look(tmp_path)
    assert seen.rows == 40 and besides_drift(seen) == ("1 record of the log cannot be read: left out",)


def test_no_log_a_log_of_another_task_and_a_bundle_without_a_profile(tmp_path: Path) -> None:
    seen = look(tmp_path)
    assert decide(seen).choice == "no data" and "there is no log" in seen.notes[0]
    log(tmp_path, *steps(40))
    assert "no profile" in look(tmp_path, 2, bundle=bundle(profile=None)).notes[0]
    unusable = bundle()
    for number, steps_said in enumerate(("ten", math.nan, math.inf, None), 3):
        unusable.evidence["steps"] = steps_said
        assert "no profile" in look(tmp_path, number, bundle=unusable).notes[0]
    with pytest.raises(InputError, match="must be of the task other"):
        watch_log(SimpleNamespace(name="other"), "w", Watched(  # type: ignore[arg-type]
            bundle(), None, None, None, tmp_path, tmp_path, tmp_path, {}, 1, 1, START))
