"""`assay record`: which task it records, and which options go with which task."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.command_line import app
from recording import campaign as colocation
from recording.dataset import CampaignSummary
from recording.scaling import campaign as scaling
from recording.scaling.dataset import ScalingSummary
from recording.scaling.settings import ScalingSettings
from recording.settings import CampaignSettings

Calls = list[tuple[Any, Path, dict[str, Any]]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What the recorders were asked for; they record nothing."""
    made: Calls = []

    def record_campaign(settings: CampaignSettings, destination: Path, show: object, **options: Any) -> CampaignSummary:
        made.append((settings, destination, options))
        return CampaignSummary(0, 0, {}, 0.0, ())

    def record_scaling(settings: ScalingSettings, destination: Path, show: object, **options: Any) -> ScalingSummary:
        made.append((settings, destination, options))
        return ScalingSummary(0, 0, 0, 0, ())

    monkeypatch.setattr(colocation, "record_campaign", record_campaign)
    monkeypatch.setattr(scaling, "record_scaling", record_scaling)
    return made


def record(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["record", *arguments])
    return result.exit_code, result.output


def test_autoscaling_takes_its_own_options(calls: Calls, tmp_path: Path) -> None:
    code, output = record("--task", "autoscaling", str(tmp_path), "--servers", "redis,nginx", "--utilisations",
                          "0.2,0.9", "--point-s", "3", "--warm-up-s", "1", "--seed", "4", "--resume", "--sweeps-only")
    assert code == 0, output
    ((settings, destination, options),) = calls
    assert settings == ScalingSettings(
        servers=("redis", "nginx"), utilisations=(0.2, 0.9), point_s=3.0, warm_up_s=1.0, seed=4, sweeps_only=True)
    assert destination == tmp_path and options["resume"]
    assert options["command"].startswith(f"assay record --task autoscaling {tmp_path} --servers=redis,nginx ")


def test_the_command_of_the_card_asks_for_the_same_settings(calls: Calls, tmp_path: Path) -> None:
    settings = ScalingSettings(servers=("mysql",), utilisations=(0.5,), seed=7, sweeps_only=True, most_attempts=2)
    assert record("--task", "autoscaling", str(tmp_path), *settings.options())[0] == 0
    assert calls[0][0] == settings


def test_colocation_is_the_default(calls: Calls, tmp_path: Path) -> None:
    assert record(str(tmp_path), "--workloads", "redis", "--theta", "1", "--combinations", "2")[0] == 0
    assert calls[0][0] == CampaignSettings(workloads=("redis",), theta=1, combinations=2)


@pytest.mark.parametrize(("arguments", "message"), [
    (["--task", "autoscalin"], "--task must be one of colocation, autoscaling"),
    (["--task", "autoscaling", "--theta", "5"], "--theta must go with --task colocation, got --task autoscaling"),
    (["--trace", "x.csv"], "--trace must go with --task autoscaling, got --task colocation"),
    (["--task", "autoscaling", "--utilisations", "0.5;0.7"], "--utilisations must be numbers with commas"),
    (["--task", "autoscaling", "--servers", "ngin"], "server must be known, got 'ngin'"),
    (["--task", "autoscaling", "--trace", "/no/such.csv"], "trace must be a file"),
])
def test_what_makes_no_sense_is_refused_before_anything_starts(
    arguments: list[str], message: str, calls: Calls, tmp_path: Path
) -> None:
    code, output = record(str(tmp_path), *arguments)
    assert code == 2 and message in " ".join(output.split()) and not calls
