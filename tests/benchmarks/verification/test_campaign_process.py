"""One tool in its process: verdicts on several features, limits, and how its answers are judged."""

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.limited_process import Ended
from benchmarks.verification import campaign_process
from benchmarks.verification.campaign_child import read_request, write_request
from benchmarks.verification.campaign_process import Limits, ask
from benchmarks.verification.peers.installation import ROOT, Installation, missing
from benchmarks.verification.peers.question import Question
from models.verification.verdict import Status
from tests.models.verification.networks import monotone_network, random_network

LIMITS = Limits(seconds=20.0)
RISES, FALLS = (0, 1), (1, 1)


def questions(*queries: tuple[int, int], hidden: tuple[int, ...] = (8, 8)) -> list[Question]:
    """About a network of 3 inputs that rises in input 0 and falls in input 1."""
    network = monotone_network(3, list(hidden), [(0, 1), (1, -1)])
    return [Question(network, feature, sign, np.zeros(3), np.ones(3), 1e-4) for feature, sign in queries]


def test_a_request_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "request.npz"
    write_request(path, questions(RISES, FALLS), 3.5, 2, 77)
    read, seconds, threads, boxes = read_request(path)
    assert (seconds, threads, boxes) == (3.5, 2, 77)
    assert [(one.feature, one.sign, one.tolerance) for one in read] == [(0, 1, 1e-4), (1, 1, 1e-4)]
    for mine, theirs in zip(read[0].network.weights, questions(RISES)[0].network.weights, strict=True):
        assert (mine == theirs).all() and mine.dtype == theirs.dtype


@pytest.mark.parametrize("tool", ["assay", "assay_search", "highs"])
def test_one_wrong_feature_refutes_the_network(tool: str) -> None:
    line = missing(tool) if tool == "highs" else None
    if line is not None:
        pytest.skip(line)
    proved = ask(tool, questions(RISES), LIMITS)
    assert proved.status is Status.PROVED, proved
    refuted = ask(tool, questions(RISES, FALLS), LIMITS)
    assert refuted.status is Status.REFUTED, refuted
    assert 0 < refuted.seconds <= refuted.wall_seconds < 20 and refuted.setup_seconds > 0


def test_bounds_alone_stop_at_their_boxes() -> None:
    network = random_network(np.random.default_rng(0), 3, [16, 16])
    asked = [Question(network, 0, 1, np.zeros(3), np.ones(3), 1e-4)]
    answer = ask("bounds", asked, Limits(20.0, boxes=100))
    assert answer.status is Status.UNKNOWN and answer.boxes >= 100
    assert 0 < answer.search_seconds <= answer.seconds


def test_too_much_memory_is_an_error() -> None:
    answer = ask("assay", questions(RISES), Limits(20.0, memory_gib=0.01))
    assert answer.status is Status.ERROR and "memory limit of 0.01 GiB" in answer.reason
    assert answer.peak_rss_mib > 10


@dataclass(frozen=True)
class Made(Installation):
    """Adds a peer "made" whose solve has the given lines; it decides the small questions of the warm-up at once."""

    folder: Path = Path()

    @staticmethod
    def of(folder: Path, lines: str) -> "Made":
        (folder / "sitecustomize.py").write_text(f"""
import sys, types

def solve(question, seconds, threads):
    from benchmarks.verification.peers.question import PeerResult
    from models.verification.verdict import Status
    if question.network.inputs == 2:
        return PeerResult(Status.UNKNOWN, "warm")
    {lines}

sys.modules["benchmarks.verification.peers.made"] = types.ModuleType("benchmarks.verification.peers.made")
sys.modules["benchmarks.verification.peers.made"].solve = solve
""")
        return Made(folder=folder)

    def path(self, name: str) -> list[str]:
        return [str(self.folder), str(ROOT)]


def test_a_tool_that_heeds_no_limit_is_ended_by_its_processor_time(tmp_path: Path) -> None:
    installation = Made.of(tmp_path, "while True: pass")
    result = ask("made", questions(RISES), Limits(1.0), installation)
    assert result.status is Status.TIMEOUT and result.reason == "stopped: its 1 s of the processor are spent"


def test_a_tool_that_waits_for_ever_is_ended_by_the_clock(tmp_path: Path) -> None:
    installation = Made.of(tmp_path, "__import__('time').sleep(600)")
    result = ask("made", questions(RISES), Limits(0.5), installation, start_up_s=4.0)
    assert result.status is Status.TIMEOUT and "did not keep to its limit of 0.5 s" in result.reason
    assert result.wall_seconds < 60


def test_a_question_that_crashes_leaves_the_next_one(tmp_path: Path) -> None:
    lines = """if question.feature == 0:
        raise RuntimeError("broken")
    import numpy as np
    from benchmarks.verification.peers.question import refuted
    return refuted(question, np.array([0.5] * 3), np.array([0.5, 0.9, 0.5]), "found", 0.001, 0.0)"""
    assert ask("made", questions(RISES, FALLS), LIMITS, Made.of(tmp_path, lines)).status is Status.REFUTED
    crashed = ask("made", questions(RISES), LIMITS, Made.of(tmp_path, lines))
    assert crashed.status is Status.ERROR and crashed.reason == "RuntimeError: broken"


Judge = Callable[..., campaign_process.Answer]


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    """`ask` about two features with a process that writes the given answers and ends so."""
    def judged(answers: list[dict[str, Any]], ended: Ended = Ended("", 0, 30.0, 100.0), tool: str = "highs",
               limits: Limits = LIMITS) -> campaign_process.Answer:
        def run(command: list[str], folder: Path, environment: object, errors: Path, *_: float) -> Ended:
            errors.write_text("Traceback\nValueError: in /some/where/file.py\n")
            Path(command[-1]).write_text(json.dumps({"answers": answers, "peak_rss_mib": 5.0}))
            return ended

        monkeypatch.setattr(campaign_process, "run_limited", run)
        return ask(tool, questions(RISES, FALLS), limits)

    return judged


def answer(status: str, seconds: float = 1.0, **others: Any) -> dict[str, Any]:
    return {"status": status, "reason": f"said {status}", "seconds": seconds, "wall_seconds": 2 * seconds,
            "processor_share": 0.5, **others}


def witness(low: list[float], high: list[float], feature: int) -> dict[str, Any]:
    return {"low": low, "high": high, "feature": feature, "sign": 1}


def test_both_features_must_be_proved(judge: Judge) -> None:
    both = judge([answer("PROVED"), answer("PROVED", 2.0)])
    assert (both.status, both.seconds, both.wall_seconds, both.setup_seconds) == (Status.PROVED, 3.0, 6.0, 24.0)
    assert judge([answer("PROVED", 25.0)]).status is Status.TIMEOUT
    assert judge([answer("PROVED"), answer("UNKNOWN")]).status is Status.UNKNOWN


def test_an_answer_after_the_limit_is_none(judge: Judge) -> None:
    late = judge([answer("PROVED", 15.0), answer("PROVED", 5.5)])
    assert late.status is Status.TIMEOUT and "PROVED after its limit of 20 s" in late.reason


def test_a_counterexample_counts_only_if_it_replays(judge: Judge) -> None:
    right = judge([answer("PROVED"), answer("REFUTED", **witness([0.5] * 3, [0.5, 0.9, 0.5], 1))])
    assert right.status is Status.REFUTED
    wrong = judge([answer("REFUTED", **witness([0.5] * 3, [0.9, 0.5, 0.5], 0)), answer("PROVED")])
    assert wrong.status is Status.UNKNOWN and "does not replay" in wrong.reason


def test_a_refutation_outweighs_an_open_feature_before_it(judge: Judge) -> None:
    found = judge([answer("UNKNOWN"), answer("REFUTED", **witness([0.5] * 3, [0.5, 0.9, 0.5], 1))])
    assert found.status is Status.REFUTED


def test_how_a_process_ended_is_told_where_it_did_not_decide(judge: Judge) -> None:
    crashed = judge([answer("PROVED")], Ended("", 1, 3.0, 10.0))
    assert crashed.status is Status.ERROR and crashed.reason.endswith("ended with code 1: ValueError: in file.py")
    spent = judge([], Ended("", -signal.SIGXCPU, 40.0, 10.0))
    assert (spent.status, spent.seconds, spent.wall_seconds) == (Status.TIMEOUT, 20.0, 40.0)
    assert judge([], Ended("time", -9, 90.0, 10.0)).status is Status.TIMEOUT
    assert judge([], Ended("memory", -9, 9.0, 9000.0)).status is Status.ERROR


def test_ours_answers_once_for_all_features(judge: Judge) -> None:
    assert judge([answer("PROVED", boxes=7, search_seconds=0.5)], tool="assay").status is Status.PROVED
