"""The campaign's command on tiny networks: real verdicts, what is measured stays, contradictions are told.

HiGHS comes with the test packages; other peers run where the variables of test_verification_peers.py name them.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main as run_benchmark
from benchmarks.verification import campaign as verification_campaign
from benchmarks.verification import growth as verification_growth
from benchmarks.verification.campaign_process import Answer, Limits
from benchmarks.verification.growth import Series
from benchmarks.verification.networks import KINDS, SIZES, Recipe
from benchmarks.verification.peers.installation import PEERS, Installation, missing
from models.training.derivative_penalty import derivative_bounds
from models.verification.verdict import Status

Run = Callable[..., int]
SOURCES = {name: Path(os.environ[f"{name.upper()}_SOURCE"]) for name in ("auto_lirpa", "alpha_beta_crown")
           if f"{name.upper()}_SOURCE" in os.environ}
INSTALLATION = Installation(Path(os.environ.get("PEERS_PYTHON", sys.executable)), tuple(SOURCES.items()))


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "results" / "campaign.json"


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("networks")


@pytest.fixture
def run(networks: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command on networks of 16 neurons a layer: one that falls somewhere, one that is trained to rise."""
    for module in (verification_campaign, verification_growth):
        monkeypatch.setattr(module, "tool_code", lambda tool: "code")  # others may be writing some
    monkeypatch.setitem(SIZES, "2x16", (16, 16))
    monkeypatch.setitem(KINDS, "plain", Recipe(20))
    monkeypatch.setitem(KINDS, "certified", Recipe(800, weight=3.0, margin=0.05, bound=derivative_bounds))

    def command(*options: str, limit: float = 20.0) -> int:
        return run_benchmark([
            "verification-campaign", "--sizes", "2x16", "--features", "1", "--kinds", "plain", "certified",
            "--limit", str(limit), "--networks", str(networks), "--output", str(output), *options])

    return command


def entries(output: Path) -> dict[tuple[str, str], dict[str, Any]]:
    found = json.loads(output.read_text())["entries"]
    return {(entry["kind"], entry["tool"]): entry for entry in found}


def answering(*statuses: Status) -> Callable[..., Answer]:
    """Stands in for `ask`: the given verdicts in turn, then a failure."""
    left = list(statuses)

    def ask(*_: object) -> Answer:
        return Answer(left.pop(0), "made up", 1.0, 1.0, processor_share=1.0)

    return ask


def test_both_verdicts_come_out_and_nothing_is_measured_twice(
    run: Run, output: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--tools", "assay") == 0
    found = entries(output)
    assert found["plain", "assay"]["verdict"] == "REFUTED" and found["certified", "assay"]["verdict"] == "PROVED"
    for entry in found.values():
        assert len(entry["all_seconds"]) == 3 and 0 < entry["seconds"] < 20 and 50 < entry["peak_rss_mib"] < 4096
        assert sorted(entry["all_seconds"])[1] == entry["seconds"]
    assert "1/2  2x16_F1_plain assay: REFUTED" in capsys.readouterr().err
    monkeypatch.setattr(verification_campaign, "ask", answering())
    assert run("--tools", "assay") == 0
    assert entries(output) == found


def test_what_a_killed_run_had_measured_is_kept(
    run: Run, output: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def interrupted(tool: str, *_: object) -> Answer:
        calls.append(tool)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return Answer(Status.TIMEOUT, "made up", 20.0, 20.0)

    monkeypatch.setattr(verification_campaign, "ask", interrupted)
    assert run("--tools", "assay", "assay_search") == 130
    assert list(entries(output)) == [("plain", "assay")]
    assert [path.name for path in output.parent.iterdir()] == [output.name]
    monkeypatch.setattr(verification_campaign, "ask", answering(*[Status.TIMEOUT] * 3))
    assert run("--tools", "assay", "assay_search") == 0
    assert len(entries(output)) == 4


def test_other_weights_or_code_are_measured_again(
    run: Run, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = ("--tools", "assay", "--networks", str(tmp_path / "networks"))
    monkeypatch.setitem(KINDS, "certified", Recipe(3))
    monkeypatch.setattr(verification_campaign, "ask", answering(*[Status.UNKNOWN] * 4))
    assert run(*own) == 0
    before = entries(output)
    monkeypatch.setattr(verification_campaign, "tool_code", lambda tool: "other")
    assert run(*own) == 0
    assert {entry["code"] for entry in entries(output).values()} == {"other"}
    (tmp_path / "networks" / "2x16_F1_plain.npz").unlink()
    monkeypatch.setitem(KINDS, "plain", Recipe(21))
    monkeypatch.setattr(verification_campaign, "ask", answering(Status.UNKNOWN))
    assert run(*own) == 0
    after = entries(output)
    assert after["plain", "assay"]["digest"] != before["plain", "assay"]["digest"]
    assert after["certified", "assay"]["digest"] == before["certified", "assay"]["digest"]


def test_a_contradiction_is_told_and_fails(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    # ours three times, the search alone once: TIMEOUT is not repeated
    verdicts = [Status.PROVED] * 3 + [Status.REFUTED] * 3 + [Status.TIMEOUT] * 2
    monkeypatch.setattr(verification_campaign, "ask", answering(*verdicts))
    assert run("--tools", "assay", "assay_search") == 1
    assert "CONTRADICTION 2x16_F1_plain: assay PROVED, assay_search REFUTED" in capsys.readouterr().err


def test_repeats_that_differ_are_told_by_the_one_that_differs(
    run: Run, output: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verification_campaign, "ask", answering(
        Status.PROVED, Status.PROVED, Status.ERROR, Status.TIMEOUT))
    assert run("--tools", "assay") == 1
    assert entries(output)["plain", "assay"]["verdict"] == "ERROR"


def test_repeats_that_contradict_each_other_are_an_error(
    run: Run, output: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verification_campaign, "ask", answering(
        Status.PROVED, Status.REFUTED, Status.PROVED, Status.TIMEOUT))
    assert run("--tools", "assay") == 1
    assert entries(output)["plain", "assay"]["verdict"] == "ERROR"


def test_code_that_changes_under_a_measurement_is_not_kept(
    run: Run, output: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    codes = iter(["before", "before", "after"])
    monkeypatch.setattr(verification_campaign, "tool_code", lambda tool: next(codes))
    monkeypatch.setattr(verification_campaign, "ask", answering(*[Status.UNKNOWN] * 2))
    assert run("--tools", "assay") == 2
    assert "code must stay as it is" in capsys.readouterr().err and list(entries(output)) == [("plain", "assay")]


def test_other_limits_need_another_file(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(verification_campaign, "ask", answering(*[Status.UNKNOWN] * 2))
    assert run("--tools", "assay") == 0
    assert run("--tools", "assay", limit=21.0) == 2
    assert "give another file" in capsys.readouterr().err
    assert run("--tools", "assay", limit=float("nan")) == 2
    assert "limit_s must be positive, got nan" in capsys.readouterr().err


def test_a_file_of_another_benchmark_is_left_alone(run: Run, output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output.parent.mkdir()
    output.write_text('{"format": "other/1"}')
    assert run() == 2
    assert "must be of format" in capsys.readouterr().err and output.read_text() == '{"format": "other/1"}'


def test_a_damaged_network_is_named(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "2x16_F1_plain.npz").write_bytes(b"no network")
    assert run("--tools", "assay", "--networks", str(tmp_path)) == 2
    assert "network must be readable" in capsys.readouterr().err


def test_a_missing_peer_is_left_out_in_one_line(
    run: Run, output: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("AUTO_LIRPA_SOURCE", raising=False)
    assert run("--tools", "auto_lirpa") == 0
    assert "left out: peer auto_lirpa is not installed" in capsys.readouterr().err
    assert entries(output) == {}


@pytest.mark.parametrize("tool", sorted(PEERS))
def test_an_installed_peer_agrees_with_ours(
    run: Run, output: Path, tool: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = missing(tool, INSTALLATION)
    if line is not None:
        pytest.skip(line)
    monkeypatch.setattr(verification_campaign, "REPEATS", 1)
    assert run("--tools", "assay_search", tool) == 0
    found = entries(output)
    for kind in ("plain", "certified"):
        assert found[kind, tool]["verdict"] == found[kind, "assay_search"]["verdict"] in ("PROVED", "REFUTED")
    assert json.loads(output.read_text())["peers"][tool] not in ("", "unknown")


def test_growth_is_measured_and_goes_on_where_it_was(
    run: Run, output: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    series = (Series("2 layers, 3 inputs", "width", ((3, 8, 2), (3, 16, 2))),)

    def short(path: Path, limits: Limits, say: Callable[[str], None]) -> None:
        verification_growth.measure_growth(path, limits, say, series, repeats=1)

    monkeypatch.setattr(verification_campaign, "measure_growth", short)
    assert run("--growth") == 0
    growth = json.loads(output.read_text())["growth"]
    assert [point["verdict"] for point in growth["points"] if point["cost"] == "proof"] == ["PROVED", "PROVED"]
    proof = next(one for one in growth["series"] if one["cost"] == "proof")
    assert proof["sizes"] == [8, 16] and all(0 < value < 20 for value in proof["seconds"])
    assert proof["exponent"] is not None

    def refuse(*_: Sequence[object]) -> Answer:
        raise AssertionError("measured twice")

    monkeypatch.setattr(verification_growth, "ask", refuse)
    assert run("--growth") == 0
    assert json.loads(output.read_text())["growth"] == growth
