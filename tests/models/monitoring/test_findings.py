"""Each finding asks for what the table says; the champion before is gone back to where it is better, and only there."""

from pathlib import Path

import pytest

from models.monitoring.findings import ASKS_FOR, WORSE, Before, Finding, Looked, decide, incidents


def looked(*whats: str, before: Before | None = None, enough: bool = True) -> Looked:
    return Looked(100, enough, tuple(Finding(what, True, f"{what} is so") for what in whats), before)


@pytest.mark.parametrize(("what", "choice"), ASKS_FOR.items())
def test_each_finding_asks_for_what_the_table_says_with_its_sentence(what: str, choice: str) -> None:
    found = decide(looked(what))
    assert (found.choice, found.reasons) == (choice, (f"{what} is so",))
    assert decide(Looked(100, True, (Finding(what, False, "it is not so"),))).choice == "fine"


def test_the_documented_table_has_every_finding() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/monitor.md").read_text()
    for what, choice in ASKS_FOR.items():
        row = [line for line in page.splitlines() if line.startswith(f"| {what} |")]
        assert len(row) == 1 and row[0].endswith(f"| {choice} |"), what


@pytest.mark.parametrize("what", sorted(ASKS_FOR))
def test_only_a_better_champion_before_is_gone_back_to_and_only_from_a_worse_model(what: str) -> None:
    better, other = Before(True, "it is better"), Before(False, "it is not better")
    assert decide(looked(what, before=better)).choice == ("roll back" if what in WORSE else ASKS_FOR[what])
    assert decide(looked(what, before=other)).choice == ASKS_FOR[what]
    assert (better.sentence in decide(looked(what, before=better)).reasons) == (what in WORSE)


def test_what_asks_for_most_wins_and_all_reasons_are_given() -> None:
    found = decide(looked("drift", "error", "outside"))
    assert found.choice == "retrain" and len(found.reasons) == 3
    assert decide(Looked(100, True)).choice == "fine"


def test_too_few_rows_are_no_data_whatever_was_found() -> None:
    assert decide(looked("specification", enough=False)).choice == "no data"
    assert not decide(looked(enough=False)).asks and decide(looked("error")).asks


def test_a_broken_specification_is_an_incident_and_nothing_else_is() -> None:
    assert [one.what for one in incidents(looked(*ASKS_FOR).findings)] == ["specification"]
