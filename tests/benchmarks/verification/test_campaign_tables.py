"""Goals, counts, ratios and plots of the campaign, from results whose figures are worked out by hand."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import tables
from benchmarks.__main__ import main as run_benchmark
from benchmarks.verification import campaign_tables
from benchmarks.verification.plots import draw_cactus, draw_growth
from tests.benchmarks.sample_results import MACHINE


def entry(network: str, tool: str, verdict: str, seconds: float, reason: str = "", peak_rss_mib: float = 300.0,
          digest: str = "d") -> dict[str, Any]:
    size, features, kind = network.split("_", 2)
    return {"network": network, "tool": tool, "digest": network + digest, "code": "c", "size": size, "kind": kind,
            "features": int(features[1:]), "verdict": verdict, "seconds": seconds, "all_seconds": [seconds],
            "wall_seconds": seconds, "setup_seconds": 2.0, "peak_rss_mib": peak_rss_mib, "boxes": 1,
            "processor_share": 1.0, "reason": reason, "date": "2026-01-02T03:04:05+00:00", "load_average_before": 0.5}


def results() -> dict[str, Any]:
    """Ours solves three of four, auto_LiRPA two, SCIP one."""
    return {"format": "assay-verification-campaign/1", "machine": MACHINE,
            "settings": {"limit_s": 120.0, "threads": 1, "memory_gib": 8.0}, "peers": {"scip": "6.3.0"},
            "entries": [
                entry("3x512_F3_certified", "assay", "PROVED", 0.2, peak_rss_mib=1000.0),
                entry("3x512_F3_certified", "scip", "ERROR", 9.0, "stopped at its memory limit of 8 GiB"),
                entry("2x64_F1_plain", "assay", "REFUTED", 0.02),
                entry("2x64_F1_plain", "auto_lirpa", "REFUTED", 2.0),
                entry("2x64_F1_plain", "scip", "REFUTED", 1.2),
                entry("2x64_F3_certified", "assay", "PROVED", 0.5),
                entry("2x64_F3_certified", "auto_lirpa", "PROVED", 100.0),
                entry("2x64_F3_certified_thin", "assay", "TIMEOUT", 120.0),
                entry("2x64_F3_certified_thin", "auto_lirpa", "UNKNOWN", 5.0)]}


def replaced(tool: str, network: str, **changes: Any) -> dict[str, Any]:
    found = copy.deepcopy(results())
    for one in found["entries"]:
        if (one["tool"], one["network"]) == (tool, network):
            one |= changes
    return found


def row(text: str, start: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_goals_are_computed() -> None:
    text = campaign_tables.goals_table(results())
    # 1.2 s / 0.02 s and 100 s / 0.5 s
    assert row(text, "the best peer's seconds")[1:] == ["130 (60.0 to 200)", "at least 50", "yes"]
    assert row(text, "the best peer's seconds")[0].endswith("median of 2 instances that a peer solves")
    assert row(text, "instances that a peer solves")[1:] == ["0 of 2", "none", "yes"]
    assert row(text, "instances solved by Assay")[:2] == [
        "instances solved by Assay and by the best peer (auto_LiRPA)", "3 and 2"]
    assert row(text, "instances solved by Assay")[3] == "**no**"
    assert row(text, "proof of 3x512")[1:] == ["PROVED, 0.200 s", "< 0.3 s", "yes"]
    assert row(text, "Assay's largest memory")[1:] == ["1.05 GB", "< 4 GB", "yes"]
    assert row(text, "questions that one tool proves")[1:] == ["0", "0", "yes"]


def test_what_a_peer_alone_solves_counts_against_ours() -> None:
    text = campaign_tables.goals_table(replaced("auto_lirpa", "2x64_F3_certified_thin", verdict="PROVED", seconds=6.0))
    assert row(text, "instances that a peer solves")[1:] == [
        "1 of 3: 2x64, 3 features, certified, thin", "none", "**no**"]
    # ours took at least its 120 s there
    assert row(text, "the best peer's seconds")[1] == "60.0 (0.0500 to 200)"


@pytest.mark.parametrize(("changes", "met"), [
    ({"seconds": 0.31}, "**no**"), ({"verdict": "REFUTED"}, "**no**"), ({"seconds": 0.29}, "yes")])
def test_the_large_proof_must_be_a_proof_in_time(changes: dict[str, Any], met: str) -> None:
    text = campaign_tables.goals_table(replaced("assay", "3x512_F3_certified", **changes))
    assert row(text, "proof of 3x512")[3] == met


def test_a_contradiction_is_listed() -> None:
    text = campaign_tables.goals_table(replaced("scip", "2x64_F1_plain", verdict="PROVED"))
    assert row(text, "questions that one tool proves")[1:] == ["1", "0", "**no**"]
    assert "Contradiction, 2x64, 1 feature, plain: Assay REFUTED, auto_LiRPA REFUTED, SCIP PROVED." in text


def test_nothing_measured_meets_no_goal() -> None:
    found = {**results(), "entries": []}
    text = campaign_tables.goals_table(found)
    assert text.count("**no**") == 5 and text.count("not measured") == 4
    assert campaign_tables.growth_table(found) == ""


def test_tools_are_counted() -> None:
    text = campaign_tables.tools_table(results())
    assert row(text, "Assay")[1:] == ["4", "**3**", "2", "1", "1", "0", "0", "0.200 s", "1.05 GB"]
    assert row(text, "auto_LiRPA")[1:8] == ["3", "**2**", "1", "1", "0", "1", "0"]
    assert "Marabou" not in text


def test_every_network_has_its_row_small_ones_first() -> None:
    text = campaign_tables.instances_table(results())
    names = [line.split(" | ")[0].strip("| ") for line in text.splitlines()[2:]]
    assert names == ["2x64, 1 feature, plain", "2x64, 3 features, certified", "2x64, 3 features, certified, thin",
                     "3x512, 3 features, certified"]
    assert row(text, "2x64, 1 feature")[1:] == ["refuted 20.0 ms", "refuted 2.00 s", "refuted 1.20 s", "60.0"]
    assert row(text, "2x64, 3 features, certified, thin")[1:] == ["time", "unknown", "", ""]
    assert row(text, "3x512")[1:] == ["proved 0.200 s", "", "memory", ""]


def test_entries_of_other_weights_do_not_compare() -> None:
    found = replaced("auto_lirpa", "2x64_F3_certified", digest="older")
    assert row(campaign_tables.instances_table(found), "2x64, 3 features, certified |")[2] == ""
    assert row(campaign_tables.goals_table(found), "the best peer's seconds")[1] == "60.0 (60.0 to 60.0)"


def test_conditions_name_the_clock_and_the_peers() -> None:
    text = campaign_tables.conditions_line(results()).replace("\n", " ")
    assert "one thread a tool, 120 s" in text and "processor seconds" in text and "SCIP 6.3.0" in text
    assert "wall seconds" in campaign_tables.conditions_line(
        {**results(), "settings": {"limit_s": 120.0, "threads": 2, "memory_gib": 8.0}}).replace("\n", " ")


def growth() -> dict[str, Any]:
    return {"points": [], "series": [
        {"label": "2 layers, 8 inputs", "axis": "width", "cost": "proof", "sizes": [64, 128], "seconds": [0.01, 0.02],
         "exponent": 1.0},
        {"label": "3 layers of 128", "axis": "inputs", "cost": "box", "sizes": [8], "seconds": [0.001],
         "exponent": None},
        {"label": "width 128, 8 inputs", "axis": "depth", "cost": "box", "sizes": [], "seconds": [],
         "exponent": None}]}


def test_growth_has_sizes_and_exponents() -> None:
    text = campaign_tables.growth_table({"growth": growth()})
    assert row(text, "2 layers")[1:] == ["width", "a proof", "64: 10.0 ms, 128: 20.0 ms", "1.00"]
    assert row(text, "3 layers")[4] == "" and "width 128" not in text


def test_plots_are_the_same_bytes_for_the_same_results(tmp_path: Path) -> None:
    for number in (1, 2):
        draw_cactus(results(), tmp_path / f"cactus{number}.svg")
        draw_growth(growth(), tmp_path / f"growth{number}.svg")
    for name in ("cactus", "growth"):
        first, second = ((tmp_path / f"{name}{number}.svg").read_bytes() for number in (1, 2))
        assert first == second and b"<svg" in first
    draw_cactus(replaced("scip", "2x64_F1_plain", seconds=60.0), tmp_path / "other.svg")
    assert (tmp_path / "other.svg").read_bytes() != (tmp_path / "cactus1.svg").read_bytes()


def test_the_plots_are_made_with_the_tables(project: Path) -> None:
    run_benchmark(["tables", "--root", str(project)])
    assert not (project / tables.CACTUS_PLOT).exists()
    path = project / "benchmarks" / "results" / "verification_campaign.json"
    path.write_text(json.dumps({**results(), "growth": growth()}))
    assert run_benchmark(["tables", "--root", str(project)]) == 0
    assert (project / tables.CACTUS_PLOT).is_file() and (project / tables.GROWTH_PLOT).is_file()
    assert "the best peer's seconds by Assay's" in (project / "README.md").read_text()
