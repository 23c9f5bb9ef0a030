import copy
from typing import Any

import numpy as np
import pytest
from markupsafe import Markup
from matplotlib.figure import Figure

from models.reporting import control_plots
from models.reporting.document import Document, Fold, Grid, Note, Plot, Section, Table, render
from models.reporting.formatting import titled
from models.tasks.control import learning_sections, sections
from models.tasks.control.pages import ControlPages
from models.tasks.pages import Pages
from tests.models.tasks.control.sample import evidence

PAGES: Pages = ControlPages()


def parts(found: Any) -> dict[str, list[Any]]:
    """Of each section, with what is folded or in a grid laid open."""
    opened = {}
    for anchor, _, content in PAGES.sections(None, found, None, "p"):
        opened[anchor] = [inner for part in content
                          for inner in ([part] if not isinstance(part, Fold | Grid) else
                                        part.parts if isinstance(part, Fold) else part.plots)]
    return opened


def page(found: Any) -> str:
    headed = [*PAGES.sections(None, found, None, "p"), *PAGES.run_sections([{"workload": "web", "evidence": found}])]
    return render(Document("web", "", (), (PAGES.headline(found, None),), tuple(Section(*one) for one in headed)))


def test_every_section_has_its_plot_and_the_page_is_whole():
    opened = parts(evidence())
    assert {anchor: sum(isinstance(part, Plot) for part in content) for anchor, content in opened.items()} == {
        "front": 1, "day": 1, "episodes": 1, "actions": 1, "loop": 0, "lifecycle": 1, "adaptation": 1,
        "pretraining": 2}
    text = page(evidence())
    assert text.count("<svg") == 10 and 'class="missing"' not in text
    assert text.count("intervals, each end at 99 %") == 4 and "99 % interval" not in text


def test_headline_is_beside_one_rule_with_the_limits_of_the_gates_and_the_summary_says_what_was_measured():
    gates = {"gates": [{"metric": "cost_saved_lower", "comparison": ">=", "threshold": 0.0, "unit": "share"},
                       {"metric": "violating_share_upper", "comparison": "<=", "threshold": 0.03, "unit": "share"}]}
    facts = {label: (value.replace("\N{NO-BREAK SPACE}", " "), remark.replace("\N{NO-BREAK SPACE}", " "))
             for label, value, remark in PAGES.headline(evidence(), gates).items}
    assert facts["Cost saved against autopilot"] == ("12.0 %", "at least 8.0 %; limit: at least 0 %")
    assert facts["Steps that miss the objective"] == ("1.8 %", "autopilot 1.9 %; limit: at most 3.0 %")
    assert facts["Cost"] == ("3", "cores a core of mean load; autopilot 3.4")
    assert facts["Reward"] == ("1.45", "autopilot 1.4") and facts["A decision takes"][0] == "19.5 µs"
    assert [figure.value for figure in PAGES.figures(evidence())] == [12.0, pytest.approx(1.8), 1.45]
    assert PAGES.badness(evidence()) == -0.12
    assert PAGES.parameters(evidence()) == {"fallback": "hpa-cpu", "policy": "finetuned"}
    assert len(PAGES.cells(evidence())) == len(PAGES.columns([]).names) == 6


def test_how_a_policy_was_trained_and_what_it_learned_from_is_said():
    found = evidence()
    assert not any(isinstance(one, Note) and "Method" in one.text for one in learning_sections.pretraining(found, "p"))
    found["training"]["pretraining"] |= {"method": "td3_bc", "experience": 102_400, "history": []}
    found["training"]["experience"] = 1200
    notes = [one.text for one in (*learning_sections.pretraining(found, "p"), *learning_sections.adaptation(found, "p"))
             if isinstance(one, Note)]
    assert notes[0] == "Method: td3 bc. It learned from 102,400 steps of the fallback and never acted."
    assert "It learned from 1,200 steps that others took." in notes


def test_a_guarantee_of_the_loop_is_printed_where_it_is_proved_alone():
    statement, table, reason = sections.closed_loop(evidence(), "p")
    assert isinstance(statement, Note) and statement.text == "It holds." and reason.text == "The time ended."
    rows = [[cell.text.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in table.rows]
    assert rows[0][:5] == ["0 cores a step", "PROVED", "71.1 core seconds", "40", "17"]
    assert rows[1][1:5] == ["UNKNOWN", "-", "-", "-"]
    without = evidence() | {"closed_loop": {}}
    assert "loop" not in [anchor for anchor, *_ in PAGES.sections(None, without, None, "p")]
    assert [claim.status for claim in PAGES.claims(without)] == ["not tried"]


@pytest.mark.parametrize("bound", [0.0123, 71.04, 1234.41, 123_456.7, 1e12 + 1])
def test_a_bound_is_never_printed_below_what_was_proved(bound):
    found = evidence()
    found["closed_loop"]["found"][0]["bound"] = bound
    printed = (sections.closed_loop(found, "p")[1].rows[0][2].text, PAGES.claims(found)[0].text.removeprefix("bound "))
    assert all(bound <= float(one.split()[0]) <= 1.01 * bound for one in printed)


def test_every_change_of_the_closed_loop_that_was_tried_is_claimed_or_said_not_to_be():
    proved, unknown = PAGES.claims(evidence())
    assert (proved.name, proved.status) == ("closed loop, change 0 cores a step", "PROVED")
    assert proved.text == "bound 71.1 core seconds, for ever" and proved.sentence == "It holds."
    assert (unknown.status, unknown.text) == ("UNKNOWN", "The time ended")


def test_policy_and_champion_are_paired_in_all_that_is_recorded_of_an_episode():
    found = evidence()
    cases = {"quantity": "cost per episode", "metric": "mean_cost", "better": "smaller", "unit": found["cost_unit"],
             "values": found["episodes"]["policy_cost"], "sha256": "0" * 64, "scale": 1.0, "block": None}
    found |= {"cases": cases, "case_counts": {"mean_cost": 3}}
    found["metrics"]["mean_cost"] = sum(cases["values"]) / 3
    found["champion"] = {"metrics": {"mean_cost": 4.0}, "cases": {**cases, "values": [4.0, 3.0, 5.0]},
                         "episodes": {"violating_share": [0.01, 0.0, 0.02], "reward": [1.0, 1.1, 1.2]}}
    found["episodes"]["policy_reward"] = [1.1, 1.2, 1.3]
    assert [one.name for one in PAGES.paired(found)] == [
        "cost per episode", "reward per episode", "steps that miss the objective"]
    assert PAGES.paired(found)[2].champion.tolist() == [0.01, 0.0, 0.02]
    del found["champion"]["episodes"]
    assert [one.name for one in PAGES.paired(found)] == ["cost per episode"]


def test_the_worst_episodes_are_those_that_miss_the_objective_most():
    (table,) = PAGES.worst(evidence())
    assert [row[0].text for row in table.rows] == ["3", "2"] and table.header[2] == "autopilot"
    found = evidence()
    found["episodes"]["policy_violating_share"] = [0.0, 0.0, 0.0]
    (note,) = PAGES.worst(found)
    assert note.text == "None of 3 held-out episodes misses the objective."


def test_table_of_controllers_has_the_policy_first_and_the_rest_by_cost():
    (table,) = [part for part in parts(evidence())["front"] if isinstance(part, Table)]
    assert [row[0].text for row in table.rows] == ["policy", "hpa-cpu, own", "autopilot", "hpa-cpu"]
    assert table.header == ("Controller", "Cost", "Violating steps", "Reward", "Cores", "CPU utilization")


def test_early_training_is_told_by_quarters_against_the_fallback():
    (table,) = [part for part in learning_sections.adaptation(evidence(), "p") if isinstance(part, Table)]
    cells = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    # six updates: quarters of 2, 2, 1 and 1; rewards from 1.00 to 1.05 beside 1.3, costs from 3.0 to 2.5 beside 3.2
    assert cells["Reward a step"] == [f"{value}\N{NO-BREAK SPACE}%" for value in ("-22.7", "-21.2", "-20.0", "-19.2")]
    assert cells["Cost"][0] == "-7.8\N{NO-BREAK SPACE}%" and cells["Violating steps"][-1] == "2.5 times"
    assert "were there after 5 rounds" in table.note
    below = evidence()
    below["fallback"]["score"]["reward"] = -1.0
    (table,) = [part for part in learning_sections.adaptation(below, "p") if isinstance(part, Table)]
    assert table.rows[0][1].text == "+200.5\N{NO-BREAK SPACE}%"  # 1.005 is more than -1
    without = learning_sections.adaptation({**evidence(), "fallback": {}}, "p")
    assert not [part for part in without if isinstance(part, Table)]


def test_the_generic_policy_stands_among_the_rules_on_held_out_environments():
    plot, note = learning_sections.generic_front(evidence(), "p")
    assert isinstance(plot, Plot) and isinstance(note, Note)
    said = note.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "violates in 1.9 % of the steps" in said and "(autopilot): 9.0 %, between 5.0 % and 13.0 %." in said


def test_a_missed_saving_is_said_with_its_sign():
    (note,) = [part.text for part in sections.front(evidence(), "p") if isinstance(part, Note)]
    assert "(hpa-cpu, own): -1.0 %, between -5.0 % and 3.0 %." in note.replace("\N{NO-BREAK SPACE}", " ")


def test_map_is_over_the_objective_where_it_bounds_what_is_shown():
    def described(found: Any) -> str:
        grid = sections.actions(found, "p")[0]
        assert isinstance(grid, Grid)
        return str(grid.plots[0].markup)

    found = evidence()
    assert "replicas: change of the target over p99 over SLO and CPU utilization" in described(found)
    found["roles"]["objective"] = ""
    assert "over p99 (ms) and CPU utilization" in described(found)


@pytest.mark.parametrize("name, unit, shown", [
    ("p99_ms", "ms", "p99 (ms)"), ("cpu_limit_cores", "cores", "CPU limit (cores)"), ("replicas", "count", "replicas"),
    ("power_w", "W", "power (W)"), ("clock_ghz", "GHz", "clock (GHz)"), ("room_c", "degC", "room (degC)"),
    ("served_share", "share", "served share"),
    ("wait_over_slo", "1", "wait over SLO"), ("cores", "cores", "cores"), ("rate_rps", "1/s", "rate (1/s)")])
def test_names_lose_the_unit_that_stands_in_brackets(name, unit, shown):
    assert titled(name, unit) == shown


BROKEN = (None, {}, [], "text", float("nan"), [float("nan"), None, "x"], {"policy": None}, -1)
READ_BY = {
    "metrics": (sections.front,), "best_rule": (sections.front, sections.episodes),
    "best_own_rule": (sections.front,),
    "fallback": (learning_sections.adaptation,), "objective": (sections.front, learning_sections.pretraining),
    "cost_unit": (sections.front,),
    "measures": (sections.front,), "controllers": (sections.front,), "episodes": (sections.episodes,),
    "roles": (sections.day, sections.actions), "day": (sections.day,), "action_map": (sections.actions,),
    "closed_loop": (sections.closed_loop,), "lifecycle": (sections.lifecycle,),
    "training": (learning_sections.adaptation, learning_sections.pretraining)}


@pytest.fixture
def unsaved(monkeypatch):
    """Plots are drawn, and not written as SVG, which takes most of the time."""
    def drawn(draw: Any, width: float, height: float, name: str, description: str) -> Markup:
        draw(Figure(figsize=(width, height)))
        return Markup("<svg></svg>")

    monkeypatch.setattr(control_plots, "embed", drawn)


@pytest.mark.parametrize("key", list(evidence()))
def test_whatever_is_broken_in_the_evidence_leaves_a_section_of_parts(key, unsaved):
    for value in BROKEN:
        found = {**evidence(points=3), key: value}
        for section in READ_BY[key]:
            assert section(found, "p")
        PAGES.headline(found, None), PAGES.cells(found), PAGES.parameters(found), PAGES.figures(found)


def test_of_nothing_a_page_is_made_that_says_so():
    for nothing in (None, {}):
        text = page(nothing)
        assert text.count("<svg") == 0 and "No day was recorded." in text and "missing" in text
        assert all(figure.value is None for figure in PAGES.figures(nothing)) and PAGES.badness(nothing) is None


def test_broken_numbers_anywhere_leave_a_page(unsaved):
    """Each leaf of the evidence in turn is replaced."""
    def places(data: Any, path: tuple[Any, ...] = ()) -> Any:
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            if isinstance(value, dict | list):
                yield from places(value, (*path, key))
            else:
                yield (*path, key)

    whole = evidence(points=3)
    random = np.random.default_rng(0)
    paths = list(places(whole))
    for path in [paths[index] for index in random.choice(len(paths), 40, replace=False)]:
        for value in (float("nan"), 1e300, "x"):
            found = copy.deepcopy(whole)
            inner = found
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            assert all(section(found, "p") for section in READ_BY[path[0]])
            PAGES.headline(found, None)


def test_the_champion_stands_in_the_day_where_it_went_through_the_same_load():
    found = evidence()
    alone = len(page(found))
    found["champion"] = {"day": {"seconds": found["day"]["seconds"],
                                 "series": {"champion": found["day"]["series"]["hpa-cpu"]}}}
    assert list(sections._day(found)["series"]) == ["policy", "hpa-cpu", "champion"]
    assert len(page(found)) > alone
    found["champion"]["day"]["seconds"] = found["day"]["seconds"][:-1]
    assert list(sections._day(found)["series"]) == ["policy", "hpa-cpu"] and len(page(found)) == alone
