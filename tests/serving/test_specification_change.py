"""Whatever a contract promises less than the champion's is found and said; whatever it promises more is not."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract import Contract
from serving.specification_change import weaker_in
from tests.serving.conftest import contract as contract_data

Json = dict[str, Any]


def made(change: Callable[[Json], Any] = lambda data: None, tolerance: float = 1e-4) -> Contract:
    data = contract_data()
    data["specification"]["tolerance"] = tolerance
    change(data)
    return Contract.from_json(data)


def lines(change: Callable[[Json], Any], leeway: float = 0.0) -> tuple[str, ...]:
    return weaker_in(made(change), made(), leeway)


def zero_width(data: Json) -> None:
    for item in data["inputs"]:
        item["minimum"] = item["maximum"] = (item["minimum"] + item["maximum"]) / 2


def no_limits(data: Json) -> None:
    for item in data["inputs"]:
        item["physical_minimum"] = item["physical_maximum"] = None


def swapped(data: Json) -> None:
    data["inputs"].reverse()


def renamed(data: Json) -> None:
    data["inputs"][2]["name"] = "clients"


WEAKER: dict[str, tuple[Callable[[Json], Any], list[str]]] = {
    "box of zero width": (zero_width, [
        "box of psi_cpu_some is 0.3 to 0.3 share, the champion's is 0 to 0.6 share: not all of it is covered",
        "box of psi_io_full is 0.5 to 0.5 share, the champion's is 0.1 to 0.9 share: not all of it is covered",
        "box of connections is 32.5 to 32.5 count, the champion's is 1 to 64 count: not all of it is covered"]),
    "tolerance": (lambda data: data["specification"].update(tolerance=0.999), [
        "tolerance is 0.999 of the output's range, the champion's is 0.0001",
        "latency_ms may violate the order by 39.4605 ms over the box, the champion's by 0.00395 ms (output range 0.5 "
        "to 40, the champion's 0.5 to 40)"]),
    "feature dropped": (
        lambda data: data["specification"]["properties"][0]["monotone"].update(features=["psi_io_full"]),
        ["latency_ms increasing in psi_cpu_some is not proved any more"]),
    "direction turned": (
        lambda data: data["specification"]["properties"][0]["monotone"].update(direction="decreasing"),
        ["latency_ms increasing in psi_cpu_some is not proved any more",
         "latency_ms increasing in psi_io_full is not proved any more"]),
    "physical limits removed": (no_limits, [
        "physical limits of input psi_cpu_some are unbounded to unbounded, the champion's are 0 to 1",
        "physical limits of input psi_io_full are unbounded to unbounded, the champion's are 0 to 1",
        "physical limits of input connections are unbounded to unbounded, the champion's are 0 to unbounded"]),
    "unit": (lambda data: data["inputs"][0].update(unit="percent"),
             ["unit of input psi_cpu_some is percent, the champion's is share"]),
    "output's unit": (lambda data: data["outputs"][0].update(unit="s"),
                      ["unit of output latency_ms is s, the champion's is ms"]),
    "output's limits": (lambda data: data["outputs"][0].update(physical_minimum=None), [
        "physical limits of output latency_ms are unbounded to unbounded, the champion's are 0 to unbounded"]),
    "output's range": (lambda data: data["outputs"][0].update(maximum=40e6), [
        "latency_ms may violate the order by 4000 ms over the box, the champion's by 0.00395 ms (output range 0.5 to "
        "4e+07, the champion's 0.5 to 40)"]),
    "order of inputs": (swapped, ["inputs stand in another order: connections, psi_io_full, psi_cpu_some, the "
                                  "champion's psi_cpu_some, psi_io_full, connections"]),
    "input renamed": (renamed, ["input connections is not taken any more",
                                "input clients is new: what feeds the champion does not give it"]),
}


@pytest.mark.parametrize("name", WEAKER)
def test_every_way_to_promise_less_is_said_in_words(name: str) -> None:
    change, expected = WEAKER[name]
    assert list(lines(change)) == expected


@pytest.mark.parametrize("name", WEAKER)
def test_a_leeway_of_one_percent_lets_none_of_them_through(name: str) -> None:
    assert lines(WEAKER[name][0], leeway=0.01)


def test_properties_that_are_not_of_one_order_must_all_stay() -> None:
    rule = {"range": {"output": "latency_ms", "maximum": 250}}
    champion = made(lambda data: data["specification"]["properties"].append(rule))
    assert weaker_in(made(), champion) == (
        'property {"range":{"maximum":250,"output":"latency_ms"}} is not proved any more',)
    assert weaker_in(champion, champion) == weaker_in(champion, made()) == ()


def test_with_a_tolerance_of_zero_the_range_of_the_output_does_not_matter() -> None:
    wide = made(lambda data: data["outputs"][0].update(maximum=4e7), tolerance=0.0)
    assert weaker_in(wide, made(tolerance=0.0)) == ()


def test_a_model_with_an_encoder_is_fed_in_another_way() -> None:
    embedding = {"file": "encoder.onnx", "sha256": "0" * 64, "inputs": ["psi_io_full"],
                 "configuration": ["psi_cpu_some", "connections"], "target": "latency_ms", "runs": 3, "own": [0.5],
                 "similarity": 0.9, "threshold": 0.5}
    few_shot = made(lambda data: data.update(embedding=embedding))
    assert weaker_in(few_shot, few_shot) == ()
    for new, old in ((few_shot, made()), (made(), few_shot)):
        assert weaker_in(new, old) == ("what the encoder of runs takes and gives is another than the champion's",)
    for change, line in (({"runs": 2}, "encoder takes up to 2 runs, the champion's up to 3"),
                         ({"threshold": 0.4}, "a workload is out of distribution where its similarity is below 0.4, by "
                                              "the champion's encoder below 0.5: less is flagged")):
        worse = made(lambda data, change=change: data.update(embedding={**embedding, **change}))
        assert weaker_in(worse, few_shot) == (line,)
        assert weaker_in(few_shot, worse) == ()


NAMES = ("psi_cpu_some", "psi_io_full", "connections")
SIDES = st.floats(0.0, 1.0)


@st.composite
def contracts(draw: st.DrawFn) -> Json:
    """Boxes, directions, tolerances and output ranges of every size; names, units and limits stay."""
    data = contract_data()
    for item in data["inputs"]:
        item["minimum"], item["maximum"] = sorted((draw(SIDES), draw(SIDES)))
    features = draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(("increasing", "decreasing")), min_size=1))
    data["specification"]["properties"] = [
        {"monotone": {"features": [name], "direction": direction}} for name, direction in features.items()]
    data["specification"]["tolerance"] = draw(st.floats(0, 0.5))
    data["outputs"][0]["maximum"] = draw(st.floats(1, 100))
    return data


def demands(data: Json) -> set[tuple[str, str]]:
    return {(name, rule["monotone"]["direction"]) for rule in data["specification"]["properties"]
            for name in rule["monotone"]["features"]}


@given(contracts(), contracts())
def test_it_is_not_weaker_exactly_where_everything_is_at_least_as_strong(new: Json, old: Json) -> None:
    boxes = all(a["minimum"] <= b["minimum"] and a["maximum"] >= b["maximum"]
                for a, b in zip(new["inputs"], old["inputs"], strict=True))
    tolerances = [data["specification"]["tolerance"] for data in (new, old)]
    allowed = [tolerance * (data["outputs"][0]["maximum"] - 0.5)
               for tolerance, data in zip(tolerances, (new, old), strict=True)]
    strong = boxes and demands(new) >= demands(old) and tolerances[0] <= tolerances[1] and \
        allowed[0] <= allowed[1] * (1 + 1e-12)
    assert (weaker_in(Contract.from_json(new), Contract.from_json(old)) == ()) is strong


@given(contracts())
def test_it_is_never_weaker_than_itself(data: Json) -> None:
    assert weaker_in(Contract.from_json(data), Contract.from_json(copy.deepcopy(data))) == ()


@given(contracts(), contracts(), contracts())
def test_by_steps_that_are_not_weaker_nobody_gets_to_a_weaker_one(a: Json, b: Json, c: Json) -> None:
    first, second, third = (Contract.from_json(data) for data in (a, b, c))
    if not weaker_in(second, first) and not weaker_in(third, second):
        assert not [line for line in weaker_in(third, first) if "may violate" not in line]  # rounding adds up


@given(contracts(), st.data())
def test_any_single_thing_that_gets_weaker_is_found(data: Json, draw: st.DataObject) -> None:
    champion = Contract.from_json(json.loads(json.dumps(data)))
    item = draw.draw(st.sampled_from(data["inputs"]))
    what = draw.draw(st.sampled_from(("minimum", "maximum", "unit", "physical_minimum", "tolerance", "properties")))
    if what == "minimum" and item["minimum"] < item["maximum"]:
        item["minimum"] = draw.draw(st.floats(item["minimum"], item["maximum"], exclude_min=True))
    elif what == "maximum" and item["minimum"] < item["maximum"]:
        item["maximum"] = draw.draw(st.floats(item["minimum"], item["maximum"], exclude_max=True))
    elif what == "unit":
        item["unit"] += "s"
    elif what == "physical_minimum":
        item["physical_minimum"] = -1.0
    elif what == "tolerance":
        data["specification"]["tolerance"] += 0.1
    elif what == "properties" and len(data["specification"]["properties"]) > 1:
        data["specification"]["properties"].pop()
    else:
        return
    assert weaker_in(Contract.from_json(data), champion)
