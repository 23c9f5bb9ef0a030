"""A reviewer sees what a version is from its tags and its gate table."""

from collections.abc import Callable
from pathlib import Path

from serving.bundle import open_bundle
from serving.card import gate_table, version_tags


def test_the_gate_table_is_markdown_with_one_row_a_gate(bundle: Path) -> None:
    lines = gate_table(open_bundle(bundle)).splitlines()
    assert lines[0].startswith("**The output is increasing in psi_cpu_some, psi_io_full, for every input in the box")
    assert "It is proved for the network in real arithmetic" in lines[0]
    assert lines[4] == "| specification | yes | verdict | PROVED | == | PROVED |  |  | the verdict is PROVED |"
    assert len(lines) == 4 + 8
    assert {line.count(" | ") for line in lines[4:]} == {8}


def test_a_failed_gate_and_a_missing_value_are_seen(
    bundle_writer: Callable[..., Path], tmp_path: Path
) -> None:
    table = gate_table(open_bundle(bundle_writer(tmp_path / "b", test_mse=float("nan"), status="REFUTED")))
    assert "| specification | NO | verdict | REFUTED | == | PROVED |" in table
    assert "It is asked of the network" in table and "It is proved" not in table
    assert "| baseline_mse | NO | test_mse |  | <= |  | scaled² | 60 | test_mse must be a finite" in table


def test_tags_leave_out_what_is_empty_and_cut_what_is_too_long(bundle: Path) -> None:
    opened = open_bundle(bundle)
    assert "reproduce" not in version_tags(opened, True, "better", "", "t")
    assert len(version_tags(opened, True, "better", "x" * 10_000, "t")["reproduce"]) == 4000
    assert len(version_tags(opened, True, "y" * 10_000)["decision"]) == 4000
    assert version_tags(opened, False, "worse", "", "t")["gates_passed"] == "false"
