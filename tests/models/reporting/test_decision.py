"""The first screen: what it decides in each state, and that it hides nothing that is open."""

import copy
import re
from typing import Any

import pytest
from markupsafe import Markup

from models.reporting import plots, report
from models.reporting.decision import decision, first_screen
from models.reporting.document import Beside, Decision, Facts, Fold, Lines, Part
from models.reporting.promises import directions, properties
from models.tasks.control.pages import ControlPages
from models.tasks.supervised.pages import SupervisedPages
from tests.models.reporting import sample
from tests.models.reporting.test_report import ODD, Page, places, put
from tests.models.tasks.control import sample as control

BETTER = ("better_than_champion holds against version 3, attempt 1: mean squared error 2 ms² "
          "against the champion's 4 ms²")
WORSE = BETTER.replace("holds", "does not hold")
WEAKER = "specification_not_weaker does not hold: latency_ms increasing in psi_io_full is not proved any more"


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "embed", lambda *_: Markup("<svg></svg>"))


def screen(evidence: Any = None, gates: Any = None, contract: Any = None, **context: Any) -> tuple[Part, ...]:
    return first_screen(contract or sample.contract(), evidence or sample.evidence(), gates or sample.gates(), context,
                        SupervisedPages())


def page(evidence: Any, gates: Any = None, **context: Any) -> Page:
    return Page(report.render_version_report(sample.contract(), evidence, gates or sample.gates(),
                                             {**sample.context(), **context}, SupervisedPages()))


def decided(gates: Any, **context: Any) -> Decision:
    return decision(sample.evidence(), gates, context)


def lines(parts: Any) -> list[tuple[str, str]]:
    """Of every list, those in folds and groups too, in order."""
    found = []
    for part in parts:
        if isinstance(part, Lines):
            found += list(part.items)
        elif isinstance(part, Fold):
            found += lines(part.parts)
        elif isinstance(part, Beside):
            found += [line for _, group in part.groups for line in lines(group)]
    return found


def test_the_first_section_of_a_page_begins_with_the_decision() -> None:
    html = report.render_version_report(sample.contract(), sample.evidence(), sample.gates(), sample.context(),
                                        SupervisedPages())
    first = html[html.index("<section"):html.index("</section>")]
    assert re.search(r'<section id="lead"[^>]*>\s*<div class="decision good"><p>Ships: version 4 is', first)
    assert "What is guaranteed" in first and "Against the champion" in first and "<h2>" not in first
    assert isinstance(screen()[0], Decision) and isinstance(screen()[1], Facts) and isinstance(screen()[2], Beside)


@pytest.mark.parametrize(("context", "title", "tone", "reasons"), [
    ({"version": 1, "alias": "champion", "decision": "no champion yet"},
     "Ships: version 1 is the champion, all 7 gates hold.", "good", ("There was no champion before it.",)),
    ({"version": 4, "alias": "champion", "decision": BETTER},
     "Ships: version 4 is the champion, all 7 gates hold.", "good",
     ("It is better than the champion by more than luck explains.",)),
    ({"version": 4, "alias": "challenger", "decision": f"{BETTER}; waits for assay promote"},
     "Waits for approval: all 7 gates hold.", "open",
     ("It is better than the champion by more than luck explains.",
      "`assay promote --task performance --workload redis` makes it champion.")),
    ({"version": 1, "alias": "challenger", "decision": "no champion yet; waits for assay promote"},
     "Waits for approval: all 7 gates hold.", "open",
     ("There is no champion yet.", "`assay promote --task performance --workload redis` makes it champion.")),
    ({"version": 4, "alias": "challenger", "decision": f"{WORSE}; {WEAKER}"},
     "Does not ship by itself: all 7 gates hold, but it stays challenger.", "open",
     ("It is not better than the champion by more than luck explains.", "It promises less than the champion.",
      "`assay promote --task performance --workload redis` makes it champion.")),
    ({"version": 4, "alias": "challenger",
      "decision": f"{BETTER}; model.onnx computes what that of version 2 did, which was rolled back; "
                  "waits for assay promote"},
     "Waits for approval: all 7 gates hold.", "open",
     ("It is better than the champion by more than luck explains.",
      "model.onnx computes what that of version 2 did, which was rolled back.",
      "`assay promote --task performance --workload redis` makes it champion.")),
    ({"version": 4, "alias": "live", "role": "champion", "decision": BETTER},
     "Ships: version 4 is the champion, all 7 gates hold.", "good",
     ("It is better than the champion by more than luck explains.",)),
    ({"version": 4, "alias": "champion", "role": "challenger", "decision": WORSE},
     "Does not ship by itself: all 7 gates hold, but it stays challenger.", "open",
     ("It is not better than the champion by more than luck explains.",
      "`assay promote --task performance --workload redis` makes it champion.")),
    ({}, "May ship: all 7 gates hold. It is not registered yet.", "good", ()),
    ({"version": 2, "decision": "unchanged: model.onnx is that of version 2, byte for byte; nothing is registered"},
     "Does not ship: all 7 gates hold, but version 2 is neither champion nor challenger.", "open",
     ("At registration: unchanged: model.onnx is that of version 2, byte for byte; nothing is registered.",)),
])
def test_a_version_that_holds_its_gates_ships_or_waits(context: Any, title: str, tone: str, reasons: Any) -> None:
    assert decided(sample.gates(), **context) == Decision(title, tone, reasons)  # type: ignore[arg-type]


def test_a_gate_that_fails_is_said_in_words_with_value_and_limit() -> None:
    gates = sample.gates()
    gates["passed"] = False
    gates["gates"][1] |= {"passed": False, "value": 0.41,
                          "reason": "test_accuracy 0.41 >= 0.5 does not hold over 420 cases"}
    gates["gates"][3] |= {"passed": False, "value": 0.0109, "reason": (
        "test_mse 0.0109 <= 0.00453 does not hold over 420 cases; baseline_mse is 0.00302, times 1.5")}
    found = decided(gates, version=2, alias=None, decision="gates failed: test_accuracy, baseline_mse")
    assert (found.title, found.tone) == ("May not ship: 2 of 7 gates fail.", "bad")
    assert [reason.replace("\N{NO-BREAK SPACE}", " ") for reason in found.reasons] == [
        "Test rows predicted right: 41.0 %, over 420 cases; must be at least 50.0 % (gate `test_accuracy`)",
        "Error on test rows, root mean square: 3.987 ms, over 420 cases; must be at most 2.57 ms (gate `baseline_mse`: "
        "baseline_mse times 1.5)"]


@pytest.mark.parametrize(("value", "said"), [(0.61, "61.0 %"), (1.5, "150 %"), (-1.5, "-150 %"), (-0.5, "-50.0 %")])
@pytest.mark.parametrize("unit", ["of the measured", "share"])
def test_a_percentage_error_is_in_percent_beside_its_limit(value: float, said: str, unit: str) -> None:
    gates = {"passed": False, "gates": [{
        "name": "test_mape", "metric": "test_mape", "value": value, "comparison": "<=", "threshold": 0.5, "cases": 8,
        "unit": unit, "passed": False, "reason": f"test_mape {value} <= 0.5 does not hold over 8 cases"}]}
    assert decided(gates).reasons[0].replace("\N{NO-BREAK SPACE}", " ") == (
        f"Mean absolute percentage error: {said}, over 8 cases; must be at most 50.0 % (gate `test_mape`)")


def test_a_metric_that_is_missing_is_the_reason() -> None:
    found = decided(sample.gates(False))
    assert found.title == "May not ship: 1 of 7 gates fails."
    assert found.reasons[0].endswith("(gate `latency`: latency_us must be in the evidence, it is missing)")


@pytest.mark.parametrize("gates", [None, {}, {"passed": True, "gates": []}])
def test_without_a_gate_report_nothing_ships(gates: Any) -> None:
    assert decided(gates, version=2, alias="champion").tone == "bad"


def test_gates_that_say_nothing_of_themselves_do_not_let_a_version_ship() -> None:
    gates = {**sample.gates(), "passed": None}
    assert decided(gates, version=2, alias="champion").title.startswith("May not ship: its gate report")


@pytest.mark.parametrize("status", ["TIMEOUT", "UNKNOWN", "ERROR"])
def test_a_verdict_that_is_not_proved_guarantees_nothing(status: str) -> None:
    parts = [{"name": "monotone", "verdict": status, "reason": "2 boxes are open"},
             {"name": "outputs", "verdict": "PROVED"}]
    verdict = {**sample.verdict(), "status": status, "reason": "time ran out", "parts": parts}
    evidence = {**sample.evidence(), "verdict": verdict}
    gates = sample.gates()
    gates["passed"] = False
    gates["gates"][0] |= {"passed": False, "value": status, "reason": f"the verdict is {status}"}
    found = page(evidence, gates)
    assert f"Verdict of the verifier: {status}; must be PROVED (gate specification )" in found.text
    assert f"Nothing is guaranteed: the verdict is {status} (time ran out). What was to be proved:" in found.text
    assert all(tone != "good" for _, tone in lines(screen(evidence, gates)))
    assert any(f"Part `monotone` of the specification: {status}" in line for line, _ in lines(screen(evidence)))


def test_a_line_stands_for_each_property_however_many_there_are() -> None:
    evidence = sample.evidence()
    assert properties(evidence) == ["latency never falls when PSI CPU some, PSI I/O full or PSI I/O some rises",
                                    "latency (ms) is at least 0.001"]
    evidence["specification"]["properties"] = [
        {"monotone": {"features": [name], "direction": "increasing", "output": "latency_ms"}}
        for name, *_ in sample.INPUTS for _ in range(3)]
    assert len([line for line, tone in lines(screen(evidence)) if tone == "good"]) == 3 * len(sample.INPUTS)
    (group, _) = screen(evidence)[2].groups  # type: ignore[union-attr]
    assert any(isinstance(part, Fold) and "more properties" in part.title for part in group[1])


def test_the_box_says_of_each_output_what_it_is() -> None:
    specification = {"outputs": ["y0", "y1"], "properties": [
        {"monotone": {"features": ["a"], "direction": direction, "output": output, **when}}
        for output, direction, when in (("y0", "increasing", {}), ("y1", "decreasing", {}),
                                        ("y1", "increasing", {"when": {"b": [0, 1]}}), ("y0", "increasing", {}))]}
    assert directions({"specification": specification}) == {"a": "y0 increasing, y1 decreasing"}
    assert set(directions(sample.evidence()).values()) == {"increasing"}


def test_a_specification_that_cannot_be_read_leaves_the_exact_sentence() -> None:
    evidence = sample.evidence() | {"specification": {"properties": "none"}}
    assert properties(evidence) == []
    assert sample.contract()["specification"]["statement"] in page(evidence).text


def test_a_closed_loop_that_is_not_proved_stands_beside_what_is() -> None:
    evidence = {**control.evidence(), "verdict": sample.verdict(), "specification": sample.specification()}
    shown = lines(first_screen(sample.contract(), evidence, sample.gates(), {}, ControlPages()))
    assert ("closed loop, change 0 cores a step: bound 71.1 core seconds, for ever", "good") in shown
    assert ("NOT guaranteed: closed loop, change 0.1 cores a step (UNKNOWN). The time ended", "open") in shown


def test_what_the_audit_could_not_decide_is_not_left_out() -> None:
    audit = [{"feature": "psi_io_full", "direction": "increasing", "kind": kind, "pairs": 12, "verdict": verdict}
             for kind, verdict in (("exact", "undecided"), ("matched", "contradicted"), ("exact", "obeyed"))]
    shown = [line for line, _ in lines(screen(audit=audit)) if "data" in line]
    assert shown == ["The data cannot decide that the target is increasing in PSI I/O full (exact, 12 pairs)",
                     "The data contradict that the target is increasing in PSI I/O full (matched, 12 pairs)"]


def test_each_metric_stands_beside_the_champions_with_its_paired_interval() -> None:
    found = page(sample.compared(worse=2.0), version=4, alias="challenger", decision=f"{BETTER}; {WEAKER}")
    assert "its interval, each end at 99 %;" in found.text
    assert "Against the champion, version 3" in found.text and BETTER in found.text
    squared, absolute, within = (found.row(name) for name in (
        "squared error (ms²)", "absolute error (ms)", "within 1.909\N{NO-BREAK SPACE}ms"))
    assert [row[-1] for row in (squared, absolute, within)] == ["better"] * 3
    mean, champion, gain = float(absolute[1]), float(absolute[2]), float(absolute[3].split()[0])
    assert champion == pytest.approx(2 * mean, rel=1e-3) and gain == pytest.approx(mean, rel=0.05)
    low, high = (float(end) for end in re.findall(r"[-+][\d.]+", absolute[3])[1:])
    assert 0 < low < gain < high
    assert "The test rows on which the two differ most" in found.text
    assert "The same as the champion's: specification, box, gates, data" in found.text


def test_an_equal_model_is_the_same_and_a_worse_one_worse() -> None:
    assert page(sample.compared(worse=1.0)).row("absolute error (ms)")[-1] == "the same"
    assert page(sample.compared(worse=0.5)).row("absolute error (ms)")[-1] == "worse"


def test_in_what_a_champion_differs_is_said() -> None:
    evidence = sample.compared()
    changes = evidence["champion"]["changes"]
    changes |= {"weaker": ["box of psi_io_full is smaller"], "added": ["latency_ms is at most 50"],
                "box": ["psi_io_full 0 to 0.41 share, the champion's 0 to 0.6"], "data_version": "another"}
    changes["gates"]["latency"] = ["<=", 900.0]
    changes["gates"]["gone"] = [">=", 1.0]
    del changes["gates"]["parity"]
    told = [line for line, _ in lines(screen(evidence))]
    for title in ("Its specification asks less than the champion's", "Its box is another one", "Its gates are others",
                  "Its specification asks what the champion's does not", "Its data are others"):
        assert title in told
    for detail in ("box of psi_io_full is smaller", "latency_ms is at most 50", "`latency` <= 500, was <= 900",
                   "`gone` is gone", "`parity` is new", "It was made from other rows"):
        assert detail in told
    assert not any("The same as" in line for line in told)
    assert not any("`baseline_mse`" in line for line in told)  # its limit moves with the baseline


def test_a_champion_that_cannot_be_compared_is_said_to_be_one() -> None:
    def text(champion: Any) -> str:
        return page({**sample.compared(), "champion": champion}).text

    assert "There was no champion to be compared with." in text(None)
    assert "Whether there was a champion is not in the evidence." in page(sample.evidence()).text
    unclaimed = {"version": 3, "metrics": {}, "unclaimed": "it was trained on 400 of the 420 test rows"}
    assert "Nothing is claimed about the two: it was trained on 400 of the 420 test rows." in text(unclaimed)
    other = copy.deepcopy(sample.compared()["champion"])
    other["cases"]["sha256"] = "1" * 64
    assert "The two cannot be compared: expected a champion that was measured on the same cases" in text(other)
    assert "In what its specification, box, data and gates differ was not recorded." in text(
        {key: value for key, value in sample.compared()["champion"].items() if key != "changes"})


def test_the_worst_rows_stand_there_with_their_inputs_and_how_many_lie_outside_of_the_box() -> None:
    worst = {"rows_outside_box": 7, "rows": [
        {"row": 31, "inputs": {"psi_io_full": 0.4}, "measured": 30.0, "predicted": 12.5}]}
    evidence = {**sample.evidence(), "worst": worst}
    evidence["metrics"]["test_rows"] = 420
    found = page(evidence)
    assert found.row("31") == ["31", "30 ms", "12.5 ms"] and ["psi_io_full", "0.4"] in found.rows
    assert "7 of 420 test rows lie outside of the box" in found.text


def test_no_hole_in_what_is_known_of_the_champion_breaks_the_screen() -> None:
    whole = sample.compared()
    for key in ("champion", "cases", "case_counts", "target", "specification"):
        for number, path in enumerate(places(whole[key], (key,))):
            broken = copy.deepcopy(whole)
            put(broken, path, ODD[number % len(ODD)])
            assert isinstance(screen(broken)[0], Decision)
