"""Drift of a policy's signals and targets against its first steps: what counts, what is kept, what is found."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

from models.control.training.trajectory_log import Header, Step
from models.monitoring.chances import level_of
from models.monitoring.findings import Finding, decide
from models.tasks.control.monitored_steps import LOOKS, REFERENCES, STEPS, drift_of_steps, reference_length
from models.tasks.monitored_kind import Watched
from tests.models.tasks.control.test_monitoring import START, bundle, log, look
from tests.models.tasks.control.test_monitoring import steps as logged

HEADER = Header("t", (("load", "1/s"), ("limit", "cores")), (("target", "cores"),))
ENOUGH = 2 * REFERENCES[0]


def steps(count: int, seed: int = 0, memory: float = 0.9, load: float = 0.0, target: float = 0.0) -> list[Step]:
    """Autoregressive signals, and a target that has what is added to it."""
    noise = np.random.default_rng(seed).normal(size=(count + 200, 2)) * np.sqrt(1 - memory**2)
    seen = lfilter([1.0], [1.0, -memory], noise, axis=0)[200:] + [load, 0.0]
    return [Step("w", seed, k, "policy", tuple(row), (float(row[1]) + target,), 1.0) for k, row in
            enumerate(seen.tolist())]


def drifted(folder: Path, number: int, new: list[Step], memory: Any = None,
            has_truth: bool = True) -> tuple[tuple[Finding, ...], tuple[str, ...], int]:
    keep = folder / f"look-{number}"
    keep.mkdir()
    return drift_of_steps(Watched(bundle(), None, None, None, folder, folder / f"look-{number - 1}", keep,
                                  memory or {}, number, 1, START), HEADER, new, has_truth)


def test_a_reference_is_the_longest_that_is_at_most_half_of_the_steps() -> None:
    assert [reference_length(count) for count in (ENOUGH - 1, ENOUGH, 4 * REFERENCES[0] - 1, 4 * REFERENCES[0])] == [
        0, 2560, 2560, 5120]
    assert reference_length(10**9) == REFERENCES[-1]


def test_before_there_is_a_reference_nothing_is_found_and_it_is_said(tmp_path: Path) -> None:
    assert drifted(tmp_path, 1, steps(ENOUGH - 1)) == ((), (
        "drift is looked at from 5,120 whole steps of the policy on, of which there are 5,119",), 0)
    (found,), notes, looks = drifted(tmp_path, 2, steps(20, 1), {LOOKS: 0})
    assert not found.found and notes == () and looks == 1
    assert found.figures["level"] == level_of(1, 1, 2)  # those before cost nothing of the false alarms


def test_what_stays_is_no_drift_look_after_look(tmp_path: Path) -> None:
    memory: dict[str, int] = {}
    made = steps(4 * ENOUGH)
    for number, end in enumerate(range(ENOUGH, len(made) + 1, ENOUGH // 8), start=1):
        (found,), _, looks = drifted(tmp_path, number, made[end - ENOUGH // 8 if memory else 0:end], memory)
        assert not found.found and looks == number
        memory = {LOOKS: looks}
    assert found.sentence == ("none of 3 features differs from the first 10,240 steps of the policy by more than luck "
                              "does")


@pytest.mark.parametrize(("change", "feature"), [({"load": 2.0}, "load (median"), ({"target": 2.0}, "target (median")])
def test_a_signal_or_a_target_that_changes_is_found_and_named(tmp_path: Path, change: Any, feature: str) -> None:
    drifted(tmp_path, 1, steps(ENOUGH))
    (found,), _, _ = drifted(tmp_path, 2, steps(1280, 1, **change), {LOOKS: 1})
    assert found.found
    assert found.sentence.startswith(f"1 of 3 features differ from the first 2,560 steps of the policy: {feature}")


def test_only_whole_steps_of_the_policy_count_and_first_and_newest_ones_are_kept(tmp_path: Path) -> None:
    new = steps(100)
    new[:30] = [replace(step, actor="fallback") for step in new[:30]]
    new[40] = replace(new[40], observation=(np.nan, 1.0))
    drifted(tmp_path, 1, new)
    kept = pd.read_parquet(tmp_path / "look-1" / STEPS)
    assert len(kept) == 69
    many = steps(2 * REFERENCES[-1] + 500, 1, memory=0.0)
    drifted(tmp_path, 2, many, {LOOKS: 0})
    both = pd.read_parquet(tmp_path / "look-2" / STEPS)
    assert len(both) == 2 * REFERENCES[-1]
    pd.testing.assert_frame_equal(both.iloc[:69], kept)
    assert both["load"].iloc[-1] == np.float32(many[-1].observation[0])
    drifted(tmp_path, 3, steps(30, 2))  # another champion begins anew
    assert len(pd.read_parquet(tmp_path / "look-3" / STEPS)) == 30


def test_a_control_may_have_the_name_of_a_signal(tmp_path: Path) -> None:
    seen = Watched(bundle(), None, None, None, tmp_path, tmp_path, tmp_path, {}, 1, 1, START)
    assert drift_of_steps(seen, replace(HEADER, controls=(("limit", "cores"),)), steps(20), True)[2] == 0
    assert pd.read_parquet(tmp_path / STEPS).columns.tolist() == ["load", "limit", "target limit"]


def test_rewards_show_whether_drift_matters(tmp_path: Path) -> None:
    """By the whole look: with rewards in the profile it is a word on the page, without any a reason to fine-tune."""
    changed = [replace(step, observation=(step.observation[0] * 0.2, step.observation[1]))
               for step in logged(1280, first=ENOUGH)]
    log(tmp_path, *logged(ENOUGH), *changed)
    seen = look(tmp_path)
    assert {one.what for one in seen.findings if one.found} == {"drift"} and decide(seen).choice == "fine"
    assert "1 of 3 features differ from the first 2,560 steps of the policy: load" in decide(seen).reasons[0]
    blind = look(tmp_path, 2, bundle=bundle(profile=None))
    assert {one.what for one in blind.findings if one.found} == {"drift, no truth"}
    assert decide(blind).choice == "fine-tune"
