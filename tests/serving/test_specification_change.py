"""Whatever a contract promises less than the champion's is found and said; whatever it promises more is not."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.promise import Promise
from serving.specification_change import weaker_in
from tests.serving.conftest import promised

Json = dict[str, Any]

def nothing(data: Json) -> None:
    """No change."""


def made(change: Callable[[Json], Any] = nothing, amount: float = 0.004, **changed: Any) -> Promise:
    return promised(change, **{"tolerance": {"latency_ms": amount}, "rounding": {"latency_ms": 0.0004}, **changed})


def lines(change: Callable[[Json], Any] = nothing, leeway: float = 0.0, **changed: Any) -> tuple[str, ...]:
    return weaker_in(made(change, **changed), made(), leeway)


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


def limited(**fields: Any) -> Json:
    return {"range": {"output": "latency_ms", **fields}}


def order_in(*features: str, direction: str = "increasing", **fields: Any) -> list[Json]:
    return [{"monotone": {"features": list(features), "direction": direction, "output": "latency_ms", **fields}}]


Change = tuple[Callable[[Json], Any], Json, list[str]]
WEAKER: dict[str, Change] = {
    "box of zero width": (zero_width, {}, [
        "box of psi_cpu_some is 0.3 to 0.3 share, the champion's is 0 to 0.6 share: not all of it is covered",
        "box of psi_io_full is 0.5 to 0.5 share, the champion's is 0.1 to 0.9 share: not all of it is covered",
        "box of connections is 32.5 to 32.5 count, the champion's is 1 to 64 count: not all of it is covered"]),
    "tolerance": (nothing, {"amount": 40.0}, [
        "latency_ms may violate the order by 40 ms over the box of a feature, the champion's by 0.004 ms"]),
    "one slope for all": (nothing, {"tolerance": 0.1}, [
        "latency_ms may violate the order by 0.08 ms over the box of a feature, the champion's by 0.004 ms"]),
    "rounding": (nothing, {"rounding": {"latency_ms": 0.04}}, [
        "execution may add 0.04 ms to a violation in latency_ms, the champion's 0.0004 ms"]),
    "no limit of rounding": (nothing, {"rounding": {}}, [
        "execution may add any amount to a violation in latency_ms, the champion's 0.0004 ms"]),
    "feature dropped": (nothing, {"properties": order_in("psi_io_full")},
                        ["latency_ms increasing in psi_cpu_some is not proved any more"]),
    "direction turned": (nothing, {"properties": order_in("psi_cpu_some", "psi_io_full", direction="decreasing")}, [
        "latency_ms increasing in psi_cpu_some is not proved any more",
        "latency_ms increasing in psi_io_full is not proved any more"]),
    "a condition": (
        nothing, {"properties": order_in("psi_cpu_some", "psi_io_full", when={"connections": [1, 32]})}, [
            "latency_ms increasing in psi_cpu_some is not proved any more",
            "latency_ms increasing in psi_io_full is not proved any more"]),
    "another property instead": (nothing, {"properties": [limited(minimum=0)]}, [
        "latency_ms increasing in psi_cpu_some is not proved any more",
        "latency_ms increasing in psi_io_full is not proved any more"]),
    "physical limits removed": (no_limits, {}, [
        "physical limits of input psi_cpu_some are unbounded to unbounded, the champion's are 0 to 1",
        "physical limits of input psi_io_full are unbounded to unbounded, the champion's are 0 to 1",
        "physical limits of input connections are unbounded to unbounded, the champion's are 0 to unbounded"]),
    "unit": (lambda data: data["inputs"][0].update(unit="percent"), {},
             ["unit of input psi_cpu_some is percent, the champion's is share"]),
    "output's unit": (lambda data: data["outputs"][0].update(unit="s"), {},
                      ["unit of output latency_ms is s, the champion's is ms"]),
    "output's limits": (lambda data: data["outputs"][0].update(physical_minimum=None), {}, [
        "physical limits of output latency_ms are unbounded to unbounded, the champion's are 0 to unbounded"]),
    "output's kind": (lambda data: data["outputs"][0].update(kind="target"), {},
                      ["output latency_ms is a target, the champion's a prediction"]),
    "finite values": (lambda data: data["inputs"][2].update(values=[1, 8, 64]), {}, [
        "values of connections are 1, 8, 64, the champion's are every value of its box: not all are covered"]),
    "a one-hot group": (
        lambda data: [item.update(minimum=0, maximum=1) for item in data["inputs"][:2]]
        and data.update(one_hot=[["psi_cpu_some", "psi_io_full"]]), {"properties": [limited(minimum=0)]}, [
            "exactly one of psi_cpu_some, psi_io_full must be 1, which the champion does not ask",
            "latency_ms increasing in psi_cpu_some is not proved any more",
            "latency_ms increasing in psi_io_full is not proved any more"]),
    "order of inputs": (swapped, {}, ["inputs stand in another order: connections, psi_io_full, psi_cpu_some, the "
                                      "champion's psi_cpu_some, psi_io_full, connections"]),
    "input renamed": (renamed, {}, ["input connections is not taken any more",
                                    "input clients is new: what feeds the champion does not give it"]),
}


@pytest.mark.parametrize("name", WEAKER)
def test_every_way_to_promise_less_is_said_in_words(name: str) -> None:
    change, changed, expected = WEAKER[name]
    assert list(lines(change, **changed)) == expected


@pytest.mark.parametrize("name", WEAKER)
def test_a_leeway_of_one_percent_lets_none_of_them_through(name: str) -> None:
    assert lines(WEAKER[name][0], leeway=0.01, **WEAKER[name][1])


POINTS = [{"psi_cpu_some": 0.1, "psi_io_full": 0.2, "connections": 8}, [0.3, 0.4, 16]]


def robust(points: Any = POINTS, radius: float = 0.1, change: float = 2.0) -> Json:
    return {"robust": {"points": points, "radius": {"psi_cpu_some": radius}, "change": change, "output": "latency_ms"}}


# what the champion proves, and what is as much, more; and what is less or not known to be as much
KINDS: dict[str, tuple[Json, list[Json], list[Json]]] = {
    "range": (limited(minimum=0, maximum=250), [limited(minimum=1, maximum=200)],
              [limited(minimum=0), limited(maximum=250), limited(minimum=0, maximum=251)]),
    "a difference": (
        limited(minus="connections", minimum=-5), [limited(minus="connections", minimum=-4), {
            "order": {"upper": "latency_ms", "lower": "connections", "margin": -5}}],
        [limited(minimum=-5), limited(minus="connections", minimum=-6), limited(minus="psi_io_full", minimum=-5), {
            "order": {"upper": "connections", "lower": "latency_ms", "margin": -5}}]),
    "order": ({"order": {"upper": "connections", "lower": "latency_ms", "margin": 2}},
              [limited(minus="connections", maximum=-2)], [limited(minus="connections", maximum=-1)]),
    "order with a factor": (
        {"order": {"upper": "latency_ms", "lower": "connections", "factor": 0.75}},
        [{"order": {"upper": "latency_ms", "lower": "connections", "factor": 0.75, "margin": 1}}],
        [{"order": {"upper": "latency_ms", "lower": "connections", "factor": 0.5}},
         {"order": {"upper": "latency_ms", "lower": "connections"}}]),
    "order where one input is at least another": (
        {"order": {"upper": "latency_ms", "lower": "connections", "at_least": {"psi_cpu_some": "psi_io_full"}}},
        [{"order": {"upper": "latency_ms", "lower": "connections"}}, limited(minus="connections", minimum=0),
         {"order": {"upper": "latency_ms", "lower": "connections", "margin": 1,
                    "at_least": {"psi_cpu_some": "psi_io_full"}}}],
        [{"order": {"upper": "latency_ms", "lower": "connections", "at_least": {"psi_io_full": "psi_cpu_some"}}},
         {"order": {"upper": "latency_ms", "lower": "connections",
                    "at_least": {"psi_cpu_some": "psi_io_full", "connections": "psi_io_full"}}}]),
    "order everywhere": (
        {"order": {"upper": "latency_ms", "lower": "connections"}},
        [{"order": {"upper": "latency_ms", "lower": "connections", "margin": 1}}],
        [{"order": {"upper": "latency_ms", "lower": "connections", "at_least": {"psi_cpu_some": "psi_io_full"}}}]),
    "robust": (robust(), [robust(radius=0.2), robust(change=1.0), robust([*POINTS, [0, 0.1, 1]])],
               [robust(radius=0.05), robust(change=3.0), robust(POINTS[:1])]),
    "share": ({"share": {"of": limited(maximum=9), "at_least": 0.9}}, [{"share": {"of": limited(maximum=9),
                                                                                  "at_least": 0.95}}],
              [limited(maximum=9), {"share": {"of": limited(maximum=9), "at_least": 0.8}},
               {"share": {"of": limited(maximum=8), "at_least": 0.9}}]),
    "under a condition": (
        limited(maximum=9, when={"connections": [1, 8], "psi_cpu_some": [0.1, 0.1]}),
        [limited(maximum=9), limited(maximum=9, when={"connections": [0, 9]}),
         limited(maximum=9, when={"psi_cpu_some": [0.1, 0.2]})],
        [limited(maximum=9, when={"connections": [1, 7]}), limited(maximum=9, when={"psi_io_full": [0.1, 0.8]}),
         limited(maximum=10)]),
    "an order under a condition": (
        order_in("psi_io_full", when={"connections": [1, 8]})[0],
        [order_in("psi_io_full")[0], order_in("psi_io_full", when={"connections": [1, 8]})[0]],
        [order_in("psi_io_full", when={"connections": [1, 4]})[0], order_in("psi_cpu_some")[0]]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_property_must_be_proved_again_over_at_least_the_same_inputs(kind: str) -> None:
    demanded, enough, less = KINDS[kind]
    champion = made(properties=[demanded])
    assert weaker_in(champion, champion) == ()
    for found in enough:
        assert weaker_in(made(properties=[found]), champion) == (), found
    for found in less:
        told = weaker_in(made(properties=[found]), champion)
        assert told and all(line.endswith("is not proved any more") for line in told), found


def test_two_properties_are_never_put_together() -> None:
    """Each half of the box, together all of it: that the halves meet is nothing to decide here. It counts as weaker."""
    champion = made(properties=[limited(maximum=9)])
    halves = [limited(maximum=9, when={"connections": [1, 32]}), limited(maximum=9, when={"connections": [32, 64]})]
    assert weaker_in(made(properties=halves), champion)


def test_the_same_values_or_more_cover_finite_inputs() -> None:
    def finite(values: list[float]) -> Callable[[Json], Any]:
        return lambda data: data["inputs"][2].update(values=values)

    champion = made(finite([1, 8]))
    assert weaker_in(made(finite([1, 8, 64])), champion) == weaker_in(made(), champion) == ()
    assert weaker_in(made(finite([1, 64])), champion) == (
        "values of connections are 1, 64, the champion's are 1, 8: not all are covered",)


def second(kind: str = "target") -> Callable[[Json], Any]:
    return lambda data: data["outputs"].append({**data["outputs"][0], "name": "limit", "kind": kind})


def test_several_outputs_are_compared_by_their_names() -> None:
    tolerance, rounding = {"latency_ms": 0.004, "limit": 0.004}, {"latency_ms": 0.0004, "limit": 0.0004}
    both = made(second(), tolerance=tolerance, rounding=rounding)
    assert weaker_in(both, both) == weaker_in(both, made()) == ()
    assert weaker_in(made(), both) == ("output limit is not given any more",)
    turned = made(lambda data: (second()(data), data["outputs"].reverse()), tolerance=tolerance, rounding=rounding)
    assert weaker_in(turned, both) == ("outputs stand in another order: limit, latency_ms, the champion's latency_ms, "
                                       "limit",)


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


def test_a_guarantee_of_the_closed_loop_must_stay_as_it_is_said() -> None:
    def guaranteed(statement: str, digest: str = "0") -> Promise:
        spec = {"file": "guarantee.npz", "sha256": 64 * digest, "statement": statement}
        return made(lambda data: data.update(guarantee=spec))

    champion = guaranteed("It holds.")
    assert weaker_in(guaranteed("It holds.", "1"), champion) == weaker_in(champion, made()) == ()
    assert weaker_in(made(), champion) == ("guarantee of the closed loop is none; the champion's: It holds.",)
    assert weaker_in(guaranteed("It holds a little."), champion) == (
        "guarantee of the closed loop is another: It holds a little.; the champion's: It holds.",)


def test_guarantees_about_the_same_are_compared_by_their_numbers() -> None:
    def guaranteed(backlog: float, steps: float, about: str = "It ends.") -> Promise:
        spec = {"file": "guarantee.npz", "sha256": 64 * "0", "statement": f"{about} {backlog:g} s, {steps:g} steps.",
                "about": about, "at_most": {"s of backlog": backlog, "steps": steps}}
        return made(lambda data: data.update(guarantee=spec))

    champion = guaranteed(8.0, 40.0)
    assert weaker_in(guaranteed(7.0, 40.0), champion) == weaker_in(guaranteed(8.0, 3.0), champion) == ()
    assert weaker_in(guaranteed(9.0, 41.0), champion) == (
        "guarantee of the closed loop allows 9 s of backlog, the champion's 8",
        "guarantee of the closed loop allows 41 steps, the champion's 40")
    assert weaker_in(guaranteed(9.0, 40.0), champion, 0.1) == (
        "guarantee of the closed loop allows 9 s of backlog, the champion's 8",)
    assert weaker_in(guaranteed(8.5, 44.0), champion, 0.1) == ()
    (said,) = weaker_in(guaranteed(7.0, 39.0, "It ends, but on Sundays."), champion)
    assert said.startswith("guarantee of the closed loop is another: It ends, but on Sundays.")


NAMES = ("psi_cpu_some", "psi_io_full", "connections")
WAYS = ("increasing", "decreasing")
# of a grid as often as not, so that sides and amounts are equal in many examples
SHARES = st.integers(0, 8).map(lambda eighths: eighths / 8) | st.floats(0.0, 1.0, allow_subnormal=False)


@dataclass(frozen=True)
class Drawn:
    """Boxes, directions and an amount; names, units and limits stay."""

    boxes: tuple[tuple[float, float], ...]
    directions: dict[str, str]
    amount: float

    @property
    def promise(self) -> Promise:
        rules = [rule for name, way in self.directions.items() for rule in order_in(name, direction=way)]
        return made(self.contract, self.amount, properties=rules)

    def contract(self, data: Json) -> None:
        for item, (low, high) in zip(data["inputs"], self.boxes, strict=True):
            item["minimum"], item["maximum"] = low, high

    def keeps(self, old: "Drawn", share: float = 0.0) -> bool:
        """Whether everything is at least as strong; share: of slopes that is let pass."""
        boxes = all(a[0] <= b[0] and a[1] >= b[1] for a, b in zip(self.boxes, old.boxes, strict=True))
        return boxes and self.directions.items() >= old.directions.items() and all(
            self.slope(name) <= old.slope(name) * (1 + share) or old.is_point(name) for name in old.directions)

    def slope(self, name: str) -> float:
        low, high = self.boxes[NAMES.index(name)]
        return self.amount / (high - low) if high > low else 0.0

    def is_point(self, name: str) -> bool:
        low, high = self.boxes[NAMES.index(name)]
        return low == high


DRAWN = st.builds(
    Drawn, st.tuples(*[st.tuples(SHARES, SHARES).map(lambda pair: tuple(sorted(pair)))] * 3),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(WAYS), min_size=1), SHARES.map(lambda share: 8 * share))


@st.composite
def as_strong(draw: st.DrawFn, old: Drawn) -> Drawn:
    """Wider boxes, more orders, a smaller amount; or some of them as they were."""
    boxes = tuple((low * (1 - draw(SHARES)), high + (1 - high) * draw(SHARES)) for low, high in old.boxes)
    more = draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(WAYS)))
    return Drawn(boxes, {**more, **old.directions}, old.amount * (1 - draw(SHARES)))


@st.composite
def flawed(draw: st.DrawFn, old: Drawn) -> Drawn:
    """As strong, but in one place, where it may be weaker: a side of a box, an order, the amount."""
    found, at = draw(as_strong(old)), draw(st.sampled_from(range(3)))
    (low, high), share = old.boxes[at], draw(SHARES)
    cut = share * (high - low)  # rounded: a whole one may be more than is between them
    within = draw(st.sampled_from(((min(low + cut, high), high), (low, max(high - cut, low)))))
    name = draw(st.sampled_from(sorted(old.directions)))
    turned = {one: way for one, way in found.directions.items() if one != name} or {name: WAYS[share > 0]}
    return draw(st.sampled_from((
        replace(found, boxes=(*found.boxes[:at], within, *found.boxes[at + 1:])),
        replace(found, directions=turned), replace(found, amount=old.amount * (1 + share) + share))))


AFTER = {"as strong": as_strong, "flawed": flawed, "another": lambda old: DRAWN}


@st.composite
def histories(draw: st.DrawFn, *kinds: str) -> list[Drawn]:
    """One version after another, each of one of these kinds beside the one before."""
    found = [draw(DRAWN)]
    for kind in kinds:
        found.append(draw(AFTER[kind](found[-1])))
    return found


@settings(deadline=None)
@given(histories("as strong"))
def test_what_is_at_least_as_strong_in_everything_is_not_weaker(versions: list[Drawn]) -> None:
    old, new = versions
    assert new.keeps(old, 1e-12) and weaker_in(new.promise, old.promise) == ()


@settings(deadline=None)
@given(histories("flawed") | histories("another"))
def test_it_is_not_weaker_only_where_everything_is_at_least_as_strong(versions: list[Drawn]) -> None:
    old, new = versions
    if weaker_in(new.promise, old.promise) == ():
        assert new.keeps(old, 1e-9)
    else:
        assert not new.keeps(old, -1e-9)


@settings(deadline=None)
@given(DRAWN)
def test_it_is_never_weaker_than_itself(drawn: Drawn) -> None:
    assert weaker_in(drawn.promise, drawn.promise) == ()


@settings(deadline=None)
@given(histories("as strong", "as strong") | histories("flawed", "flawed") | histories("as strong", "flawed"))
def test_by_steps_that_are_not_weaker_nobody_gets_to_a_weaker_one(versions: list[Drawn]) -> None:
    first, second_, third = (one.promise for one in versions)
    if not weaker_in(second_, first) and not weaker_in(third, second_):
        assert not [line for line in weaker_in(third, first) if "may violate" not in line]  # rounding adds up


def shared(**fields: Any) -> Json:
    return {"share": {"of": limited(maximum=9), "at_least": 0.9, **fields}}


def test_a_share_of_more_inputs_is_not_a_share_of_fewer() -> None:
    """Nine tenths of the box may lie outside of the tenth that the champion's share is about."""
    def wider(data: Json) -> None:
        data["inputs"][2]["maximum"] = 1000

    whole, some = made(properties=[shared()]), made(properties=[shared(when={"connections": [1, 8]})])
    assert weaker_in(some, some) == ()
    for new, old in ((whole, some), (some, whole), (made(wider, properties=[shared()]), whole),
                     (whole, made(lambda data: data["inputs"][2].update(values=[1, 8]), properties=[shared()]))):
        assert [line for line in weaker_in(new, old) if line.endswith("is not proved any more")]


@pytest.mark.parametrize("when", [{"psi_cpu_some": [0.598, 0.6]}, {"psi_cpu_some": [0.6, 0.6]}])
def test_the_leeway_of_a_box_does_not_leave_out_a_condition(when: Json) -> None:
    def shorter(data: Json) -> None:
        data["inputs"][0]["maximum"] = 0.596

    champion, new = made(properties=[limited(maximum=9, when=when)]), made(shorter, properties=[limited(maximum=9)])
    (line,) = weaker_in(new, champion, leeway=0.01)
    assert line.endswith("is not proved any more")


def test_the_leeway_of_a_box_does_not_leave_out_a_value() -> None:
    champion = made(lambda data: data["inputs"][2].update(values=[1, 8, 64]))
    (line,) = weaker_in(made(lambda data: data["inputs"][2].update(maximum=63.9)), champion, leeway=0.01)
    assert line.startswith("box of connections is 1 to 63.9")


def with_fallback(**changed: Any) -> Callable[[Json], Any]:
    own = {"minimum": 0.0, "maximum": 100.0, "most_down": 0.25, "most_up": 1.0, **changed}

    def change(data: Json) -> None:
        data["fallback"] = {"rule": "hpa-cpu", "settings": {}, "safe_ranges": {"latency_ms": own}}

    return change


def test_a_fallback_that_is_gone_and_a_wider_safe_range_promise_less() -> None:
    champion = made(with_fallback())
    assert weaker_in(made(), champion) == ("no fallback is named any more",)
    for wider in ({"minimum": -1.0}, {"maximum": 101.0}, {"most_down": 0.5}, {"most_up": 2.0}, {"safe_side": "less"}):
        (line,) = weaker_in(made(with_fallback(**wider)), champion)
        assert line.startswith("safe range of latency_ms is ")
    assert weaker_in(made(with_fallback(minimum=1.0, most_up=0.5)), champion) == ()
    assert weaker_in(champion, made()) == ()
