"""The data card: complete, consistent with the samples, and silent about the host."""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from feature_store.errors import InputError, SourceError
from feature_store.schema import CONFIGURATION, METRICS, TARGETS
from recording import data_card, tools
from recording.data_card import card_text, keep_host, make_card, read_host
from recording.overhead import CpuReading, core_shares
from recording.raw_folder import Outcome
from recording.settings import CampaignSettings


def outcome(identifier: str, seconds: float, share: float, problem: str = "") -> Outcome:
    return Outcome(identifier, {}, 100.0, 100.0 + seconds, 0.0, problem, {"recorder": share, "prometheus": 0.01})


HOST = {"machine": data_card.machine(), "versions": {"nginx": "1.2.3"}}


@pytest.fixture
def card() -> dict[str, Any]:
    samples = pd.DataFrame({
        "workload": ["redis", "redis", "nginx"],
        "combination": ["base-0", "base-1", "base-1"],
        "window_start": pd.to_datetime([100.0, 102.0, 102.0], unit="s", utc=True),
        "latency_ms": [1.0, 3.0, 5.0],
    })
    outcomes = [outcome("base-0", 30.0, 0.04), outcome("base-1", 10.0, 0.0, "nginx ended by itself")]
    return make_card(CampaignSettings(seed=7), samples, outcomes, HOST, "assay record data/base")


def test_the_card_counts_what_is_in_the_samples(card: dict[str, Any]) -> None:
    assert (card["samples"], card["combinations"], card["workloads"]) == (3, 2, {"redis": 2, "nginx": 1})
    assert card["latency_ms"]["redis"]["mean"] == 2.0
    assert card["problems"] == {"base-1": "nginx ended by itself"}


def test_the_card_is_json_where_a_workload_has_one_sample(card: dict[str, Any]) -> None:
    json.dumps(card, allow_nan=False)
    assert card["latency_ms"]["nginx"]["std"] is None and math.isclose(card["latency_ms"]["redis"]["std"], 1.4142)


def test_the_card_says_what_the_bursts_of_wrk_leave_out(card: dict[str, Any]) -> None:
    assert "a longer stall cannot be seen" in card_text(card)


def test_the_card_names_what_was_recorded_on_wherever_it_is_written(
    card: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError, match=r"must say what it was recorded on, got no host.json"):
        read_host(tmp_path)
    keep_host(tmp_path, ["sh"], ["pandas"], begun=False)
    recorded = read_host(tmp_path)
    assert recorded["machine"] == data_card.machine() and recorded["versions"]["pandas"] == pd.__version__
    monkeypatch.setattr(tools, "SEARCH_PATH", "/nowhere")  # on a machine without the tools, and another one
    monkeypatch.setattr(data_card, "machine", dict)
    assert read_host(tmp_path) == recorded
    assert (card["machine"], card["versions"]) == (HOST["machine"], HOST["versions"])


def test_a_campaign_goes_on_only_on_the_machine_and_with_the_versions_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError, match=r"must say what it was recorded on, got no host.json"):
        keep_host(tmp_path, ["sh"], ["pandas"], begun=True)
    keep_host(tmp_path, ["sh"], ["pandas"], begun=False)
    began, here = read_host(tmp_path), data_card.machine()
    monkeypatch.setattr(data_card, "machine", lambda: {**here, "memory_gib": round(here["memory_gib"] + 0.1, 1)})
    keep_host(tmp_path, ["sh"], ["pandas"], begun=True)  # the same, after another boot
    monkeypatch.setattr(data_card, "machine", lambda: {**here, "cpus": 9999})
    monkeypatch.setattr(data_card, "version", lambda name: "0.1")
    with pytest.raises(InputError, match=r"got cpus 9999 instead of \d+, pandas 0.1 instead of [\d.]+ \("):
        keep_host(tmp_path, ["sh"], ["pandas"], begun=True)
    assert read_host(tmp_path) == began
    keep_host(tmp_path, ["sh"], ["pandas"], begun=False)  # nothing was recorded there
    assert read_host(tmp_path)["machine"]["cpus"] == 9999


def test_the_recorders_share_is_weighted_by_time(card: dict[str, Any]) -> None:
    assert card["recorder_core_share"] == {"recorder": 0.03, "prometheus": 0.01, "sum": 0.04}


def test_the_text_names_every_column_with_its_unit_and_how_to_record_again(card: dict[str, Any]) -> None:
    text = card_text(card)
    for name, column in {**METRICS, **CONFIGURATION, **TARGETS}.items():
        assert f"| {name} | {column.unit} |" in text
    for part in ("assay record data/base", "Seed 7", "CC-BY-4.0", "Other processes of the host were running",
                 "- base-1: nginx ended by itself"):
        assert part in text


def test_the_card_names_no_folder_of_the_host(card: dict[str, Any]) -> None:
    assert str(Path.cwd()) not in card_text(card) + str(card)


def test_core_shares_are_cpu_seconds_by_wall_seconds() -> None:
    before, after = CpuReading(10.0, {"a": 1.0, "b": 2.0}), CpuReading(20.0, {"a": 1.5, "b": 2.0})
    assert core_shares(before, after) == {"a": 0.05, "b": 0.0}
