"""What the report says of a model that learned from few runs."""

from typing import Any

from models.reporting.document import Note, Table
from models.tasks.few_shot.sections import claims, few_shot, recommendations, recommended

OPTION = {"configuration": {"nodes": 4.0, "type": "m4"},
          "predicted": 100.0, "lower": 80.0, "upper": 130.0, "cost": 0.5, "runs": 0.0}
DEAR = {**OPTION, "configuration": {"nodes": 8.0, "type": "m4"},
        "predicted": 60.0, "lower": 50.0, "upper": 75.0, "cost": 0.6, "runs": 1.0}


def evidence(**change: Any) -> dict[str, Any]:
    found = {"note": "cores decreasing is not demanded: its own runs contradict it", "runs": 1, "bases": "random",
             "support": [{"configuration": "nodes 8, type m4", "target": 61.0}], "similarity": 0.7, "threshold": 0.5,
             "out_of_distribution": False, "coverage": 0.9, "deadline": 90.0, "pool": {"workloads": 12},
             "recommendation": DEAR, "options": [OPTION, DEAR], "judged_configurations": 9, "interval_coverage": 0.89,
             "crossing": {"status": "PROVED", "statement": "upper is at least lower."}}
    return {"workload": "sort", "few_shot": {**found, **change},
            "metrics": {"test_mape": 0.21, "closed_form_mape": 0.2, "baseline_mape": 0.6}}


def texts(parts: Any) -> str:
    found = []
    for part in parts:
        if isinstance(part, Note):
            found.append(part.text)
        if isinstance(part, Table):
            found += [part.caption, part.note, *part.header, *(cell.text for row in part.rows for cell in row)]
    return "\n".join(found)


def test_it_says_what_was_learned_from_and_how_well() -> None:
    said = texts(few_shot(evidence()))
    for wanted in ("cores decreasing is not demanded", "is like the pool", "nodes 8, type m4", "61", "21", "60",
                   "50 to 75", "measured"):
        assert wanted in said, wanted


def test_a_percentage_error_of_100_and_more_keeps_its_unit() -> None:
    said = texts(few_shot({**evidence(), "metrics": {"test_mape": 1.5, "closed_form_mape": 1.0}}))
    assert "\n150\N{NO-BREAK SPACE}%\n" in said and "\n100\N{NO-BREAK SPACE}%\n" in said and "missing" in said


def test_a_workload_unlike_the_pool_is_said_to_be() -> None:
    parts = few_shot(evidence(out_of_distribution=True, similarity=0.1))
    assert any(isinstance(part, Note) and "UNLIKE" in part.text and part.kind == "bad" for part in parts)


def test_the_run_lists_what_to_choose_and_where_nothing_meets_the_deadline() -> None:
    assert recommended(evidence()) == "nodes 8, type m4: 60 (50 to 75)"
    assert recommended(evidence(recommendation=None)) == "none"
    assert recommended({"metrics": {}}) == ""
    table = recommendations([{"evidence": evidence()}, {"evidence": None}, {"evidence": evidence(recommendation=None)}])
    assert [row[1].text for row in table.rows] == ["nodes 8, type m4: 60 (50 to 75)", "none"]
    assert "deadline of 90" in table.note
    assert "None has an interval that meets the deadline." in texts(few_shot(evidence(recommendation=None)))


def test_without_costs_the_fastest_are_shown_and_nothing_is_recommended() -> None:
    said = texts(few_shot(evidence(recommendation=None, priced=False)))
    assert "The fastest configurations" in said and "names no cost" in said and "meets the deadline" not in said


def test_what_is_claimed_of_the_intervals_says_what_it_rests_on():
    (proved,) = claims(evidence())
    assert (proved.status, proved.text, proved.sentence) == ("PROVED", "proved", "upper is at least lower.")
    crossing = {"status": "TIMEOUT", "reason": "1 box is open", "statement": "upper is at least lower."}
    refused, unlike = claims(evidence(crossing=crossing, out_of_distribution=True))
    assert (refused.status, refused.text) == ("TIMEOUT", "1 box is open")
    assert unlike.status == "UNKNOWN" and "unlike those of the pool" in unlike.text
    assert [(claim.status, claim.text) for claim in claims({})] == [("no verdict", "the evidence does not say why")]
