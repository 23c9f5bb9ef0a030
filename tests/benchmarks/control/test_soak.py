"""The soak of a controller: what its service measures, a short one from end to end, table and plot."""

import argparse
import shutil
from pathlib import Path

import pytest

from benchmarks.control import soak
from benchmarks.control.soak_service import metrics
from benchmarks.control.soak_tables import draw_soak, soak_conditions_line, soak_table
from benchmarks.harness.result_file import read_results
from recording.control_groups import find_hierarchy
from tests.serving.control.policy_bundle import write_champion

SAMPLES = [{"at_s": 10.0 * at, "rss_mib": 100.0 + 0.1 * at, "pss_mib": 70.0, "handles": 14, "threads": 11,
            "cpu_s": 0.2 * at, "step_ms": 12.0 if at else None, "slowest_step_ms": 20.0 if at else None}
           for at in range(361)]
RESULTS = {"machine": {"cores": 2, "cpu_model": "a core", "date": "2026-11-23T00:00:00+00:00"}, "seconds": 3600.0,
           "every_s": 0.75, "steps": 4800, "actors": {"policy": 4790, "fallback": 10}, "failures": 0,
           "given_back": True, "logged": 4800, "log_lost": 0, "log_mib": 9.0, "load_average": [1.0, 2.0],
           "samples": SAMPLES}


def test_the_service_follows_its_limits() -> None:
    few, many = metrics(0.0, 0.5, 256.0), metrics(0.0, 4.0, 512.0)
    assert few["rate_rps"] == many["rate_rps"] == 300.0
    assert few["cpu_utilization"] == 1.0 and many["cpu_utilization"] == pytest.approx(0.15)
    assert few["p99_ms"] > many["p99_ms"] and few["memory_utilization"] == 2 * many["memory_utilization"]


def test_what_grows_is_in_the_table() -> None:
    rows = {row[0].strip("| "): [cell.strip("| ") for cell in row[1:]]
            for row in (line.split(" | ") for line in soak_table(RESULTS).splitlines()[2:])}
    assert rows["resident memory (RSS), MiB"] == ["104", "132", "136", "36"]
    assert rows["open file handles"] == ["14.0", "14.0", "14.0", "0"]
    line = soak_conditions_line(RESULTS).replace("\n", " ")
    assert "4,800 steps of 0.75 s in 1 h (fallback 10, policy 4,790)" in line and "2.0 % of a core" in line
    assert "limits were NOT given" in soak_conditions_line({**RESULTS, "given_back": False}).replace("\n", " ")


def test_the_plot_is_drawn(tmp_path: Path) -> None:
    draw_soak(RESULTS, tmp_path / "soak.svg")
    assert (tmp_path / "soak.svg").read_text().startswith("<?xml")


@pytest.mark.skipif(shutil.which("prometheus") is None or find_hierarchy().cpu is None,
                    reason="needs the Debian package prometheus and writable control groups")
def test_a_short_soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_champion(tmp_path / "home")
    monkeypatch.setattr(soak, "SAMPLE_S", 1.0)
    options = argparse.Namespace(home=tmp_path / "home", task="autoscaling", workload="nginx", seconds=6.0, every=0.2,
                                 output=tmp_path / "soak.json")
    soak.run(options)
    found = read_results(options.output)
    assert found is not None and found["steps"] == found["logged"] == 30
    assert found["given_back"] and not found["log_lost"] and len(found["samples"]) >= 3
    assert soak_table(found).count("\n") == 7
