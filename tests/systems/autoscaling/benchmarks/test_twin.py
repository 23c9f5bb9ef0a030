"""The benchmark of the twin, on data that obey the law: what it must find is known."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main as run_benchmark
from systems.autoscaling.benchmarks.twin_tables import (
    bands_table,
    conditions_line,
    draw_twin,
    parameters_table,
    servers_table,
)
from tests.systems.autoscaling.made_campaign import TRUTHS, write_campaign


def test_data_that_obey_the_law_are_predicted(tmp_path: Path) -> None:
    data, output = write_campaign(tmp_path), tmp_path / "twin.json"
    command = ["autoscaling-twin", "--data", str(data), "--splits", "1", "--output", str(output)]
    assert run_benchmark(command) == 0
    results = json.loads(output.read_text())
    assert {(entry["law"], entry["server"]) for entry in results["entries"]} == {
        (law, server) for law in ("simulator", "without bursts") for server in TRUTHS}
    for entry in results["entries"]:
        judged = {one["how"]: np.abs(one["log_ratio"]) for one in entry["judged"]}
        assert np.median(judged["half"]) < 0.03 < np.median(judged["nearest"])
        assert len(judged["half"]) == 21 and len(judged["demand"]) == len(judged["few"]) == 38
        assert entry["parameters"]["cpu_ms"] == pytest.approx(TRUTHS[entry["server"]].cpu_ms, rel=0.02)
    for text in (bands_table(results), servers_table(results), parameters_table(results)):
        assert "simulator" in text and "without bursts" in text
    assert "42 of nginx" in conditions_line(results)
    draw_twin(results, tmp_path / "twin.svg")
    assert "<svg" in (tmp_path / "twin.svg").read_text()
    # Made by the same code from the same data: nothing is fitted again.
    before = results["entries"]
    before[0]["parameters"]["cpu_ms"] = 123.0
    output.write_text(json.dumps(results))
    assert run_benchmark(command) == 0
    assert json.loads(output.read_text())["entries"] == before


def test_missing_data_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_benchmark(["autoscaling-twin", "--data", str(tmp_path), "--output", str(tmp_path / "x.json")]) == 2
    assert "assay record --task autoscaling" in capsys.readouterr().err
