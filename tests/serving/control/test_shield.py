"""Whatever a policy says: what leaves the shield may be set."""

import math
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.control.contract.signals import Ceiling, SafeSide
from serving.control.shield import Budget, Limit, Reason, Shield
from serving.fallback_spec import SafeRange

CPU = Limit("target_cpu", "cpu", SafeRange(0.125, 2.0, 0.25, 1.0))
REPLICAS = Limit("target_replicas", "replicas", SafeRange(1.0, 32.0, 0.25, 1.0), whole=True)
BUDGET = Budget("cores", ("target_replicas", "target_cpu"), 16.0)
wanted = st.floats(-1e9, 1e9)


def _sees(shield, targets, present, lowered=None):
    """What may be set in a step that is observed and satisfied."""
    return shield.allowed(targets, present, lowered or {}, blind=False, missed=False)


def _allowed(shield, cpu, replicas, present_cpu=1.0, present_replicas=8.0, **lowered):
    return _sees(shield, {"target_cpu": cpu, "target_replicas": replicas},
                 {"cpu": present_cpu, "replicas": present_replicas}, lowered)


@given(wanted, wanted, st.floats(0.125, 2.0), st.integers(1, 32), st.floats(0, 0.3), st.floats(0, 600),
       st.floats(0, 900))
def test_every_target_ends_in_its_range_at_its_rate_and_in_the_budget(cpu, replicas, now_cpu, now, hysteresis, cool,
                                                                      ago):
    limits = [Limit("target_cpu", "cpu", CPU.safe, False, hysteresis, cool),
              Limit("target_replicas", "replicas", REPLICAS.safe, True, hysteresis, cool)]
    found = _sees(
        Shield(limits, [BUDGET]), {"target_cpu": cpu, "target_replicas": replicas},
        {"cpu": now_cpu, "replicas": float(now)}, {"target_cpu": ago, "target_replicas": ago}).targets
    assert 0.125 <= found["target_cpu"] <= 2.0
    assert 1 <= found["target_replicas"] <= 32
    assert found["target_replicas"] == int(found["target_replicas"])
    assert 0.75 * now_cpu - 1e-9 <= found["target_cpu"] <= max(2.0 * now_cpu, 0.125) + 1e-9
    assert min(0.75 * now, now - 1) <= found["target_replicas"] <= max(2 * now, now + 1)
    cores = found["target_cpu"] * found["target_replicas"]
    grown = found["target_cpu"] > now_cpu * (1 + 1e-9) or found["target_replicas"] > now
    assert cores <= 16.0 * (1 + 1e-5) or not grown or cores <= now_cpu * now * (1 + 1e-9)
    if ago < cool:
        assert found["target_cpu"] >= now_cpu - 1e-12
        assert found["target_replicas"] >= now


@given(st.floats(0.75, 2.0), st.integers(6, 16))
def test_what_may_be_set_goes_through_unchanged_and_again(cpu, replicas):
    shield = Shield([CPU, REPLICAS])
    found = _allowed(shield, cpu, float(replicas))
    assert found.changes == ()
    assert found.targets == {"target_cpu": cpu, "target_replicas": float(replicas)}


def test_what_is_changed_is_said_in_the_order_in_which_it_was():
    found = _allowed(Shield([CPU, REPLICAS], [BUDGET]), 5.0, 500.0)
    assert [(one.control, one.reason) for one in found.changes] == [
        ("target_cpu", "range"), ("target_replicas", "range"), ("target_replicas", "rate"),
        ("target_replicas", "budget")]
    assert found.targets == {"target_cpu": 2.0, "target_replicas": 8.0}
    assert str(found.changes[1]) == "target_replicas 500 -> 32 (range)"


def test_a_budget_takes_nothing_away_that_is_there():
    found = _allowed(Shield([CPU, REPLICAS], [Budget("cores", ("target_replicas", "target_cpu"), 2.0)]), 1.5, 10.0)
    assert found.targets == {"target_cpu": 1.0, "target_replicas": 8.0}
    less = _allowed(Shield([CPU, REPLICAS], [Budget("cores", ("target_replicas", "target_cpu"), 2.0)]), 0.8, 7.0)
    assert less.targets == {"target_cpu": 0.8, "target_replicas": 7.0}


def test_five_hundred_replicas_never_become_one_in_a_step():
    wide = Limit("target_replicas", "replicas", SafeRange(1.0, 1000.0, 0.25, 1.0), whole=True)
    found = _sees(Shield([wide]), {"target_replicas": 1.0}, {"replicas": 500.0})
    assert found.targets == {"target_replicas": 375.0}


def test_what_a_network_rounds_is_no_change():
    found = _allowed(Shield([CPU, REPLICAS]), 2.0000001, 16.0000005)
    assert found.changes == ()
    assert found.targets["target_replicas"] == 16.0


def test_hysteresis_and_cool_down_hold_what_is_there():
    still = Limit("target_cpu", "cpu", CPU.safe, False, 0.05, 60.0)
    shield = Shield([still])
    assert _sees(shield, {"target_cpu": 1.04}, {"cpu": 1.0}, {}).changes[0].reason == "hysteresis"
    held = _sees(shield, {"target_cpu": 0.8}, {"cpu": 1.0}, {"target_cpu": 45.0})
    assert (held.targets["target_cpu"], held.changes[0].reason) == (1.0, "cool_down")
    assert _sees(shield, {"target_cpu": 0.8}, {"cpu": 1.0}, {"target_cpu": 60.0}).targets["target_cpu"] == 0.8
    assert _sees(shield, {"target_cpu": 1.5}, {"cpu": 1.0}, {"target_cpu": 1.0}).targets["target_cpu"] == 1.5


def test_a_target_that_is_held_stays_as_it_is_and_that_is_no_change():
    held = Limit("target_replicas", "replicas", REPLICAS.safe, whole=True, held=True)
    found = _allowed(Shield([CPU, held], [BUDGET]), 1.5, 30.0)
    assert found.targets == {"target_cpu": 1.5, "target_replicas": 8.0}
    assert found.changes == ()


def test_what_is_set_outside_of_the_range_is_brought_back_at_its_rate():
    found = _allowed(Shield([CPU, REPLICAS]), 1.0, 60.0, present_replicas=60.0)
    assert found.targets["target_replicas"] == 45.0
    assert [one.reason for one in found.changes] == ["range", "rate"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nothing_may_be_set_of_what_is_no_number(value):
    shield = Shield([CPU, REPLICAS])
    with pytest.raises(InputError, match="target must be a finite number"):
        _allowed(shield, value, 8.0)
    with pytest.raises(InputError, match="present value must be a finite number"):
        _allowed(shield, 1.0, 8.0, present_cpu=value)
    with pytest.raises(InputError, match="target must be a finite number"):
        _sees(shield, {"target_cpu": 1.0}, {"cpu": 1.0, "replicas": 8.0}, {})


@pytest.mark.parametrize("make", [
    lambda: Limit("a", "b", CPU.safe, hysteresis=1.0), lambda: Limit("a", "b", CPU.safe, cool_down_s=math.nan),
    lambda: Budget("cores", ("target_cpu",), 0.0), lambda: Shield([CPU], [BUDGET])])
def test_unusable_rules_are_refused(make):
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize(("blind", "missed", "reason"), [
    (True, False, "blind"), (True, True, "blind"), (False, True, "missed")])
def test_while_blind_or_missed_nothing_is_taken_away(blind, missed, reason):
    """A fallback with a limit of its own would go there without having looked."""
    shield = Shield([CPU, REPLICAS])
    present, targets = {"cpu": 1.0, "replicas": 8.0}, {"target_cpu": 0.8, "target_replicas": 10.0}
    assert _sees(shield, targets, present).targets == targets
    found = shield.allowed(targets, present, {}, blind=blind, missed=missed)
    assert found.targets == {"target_cpu": 1.0, "target_replicas": 10.0}
    assert [(one.control, one.reason) for one in found.changes] == [("target_cpu", reason)]


def test_what_an_operator_raised_above_the_range_stays_until_the_service_is_seen_to_be_well():
    shield, raised, targets = Shield([CPU]), {"cpu": 4.0}, {"target_cpu": 2.0}
    for blind, missed in ((True, True), (True, False), (False, True)):
        assert shield.allowed(targets, raised, {}, blind=blind, missed=missed).targets == {"target_cpu": 4.0}
    assert _sees(shield, targets, raised).targets == {"target_cpu": 3.0}, "then at the rate"


_RATES = st.floats(0.0, 1.0)
_NOW = st.floats(1e-3, 1e4)


@given(st.lists(st.tuples(wanted, _NOW, st.floats(1e-3, 1e4), st.floats(1e-3, 1e4), _RATES, st.floats(0.0, 3.0),
                          st.booleans(), st.floats(0, 0.9), st.floats(0, 600), st.floats(0, 900), st.booleans(),
                          st.sampled_from(get_args(SafeSide))),
                min_size=1, max_size=3),
       st.one_of(st.none(), st.floats(1e-3, 1e6)), st.booleans(), st.booleans())
def test_nothing_moves_away_from_its_safe_side_while_blind_missed_or_cooling(rows, budget, blind, missed):
    """What README and docs say, over all that an operator, a bundle, a policy and someone else may come up with."""
    limits, targets, present, ago = [], {}, {}, {}
    for number, (want, now, low, high, down, up, whole, hysteresis, cool_s, ago_s, held, side) in enumerate(rows):
        control, current = f"target_{number}", f"now_{number}"
        safe = SafeRange(min(low, high), max(low, high), down, up, side)
        limits.append(Limit(control, current, safe, whole, hysteresis, cool_s, held))
        targets[control], present[current], ago[control] = want, float(round(now) or 1) if whole else now, ago_s
    budgets = [] if budget is None else [Budget("all", tuple(targets), budget)]
    found = Shield(limits, budgets).allowed(targets, present, ago, blind=blind, missed=missed).targets
    for limit in limits:
        if blind or missed or ago[limit.control] < limit.cool_down_s:
            value, now = found[limit.control], present[limit.current]
            assert value >= now if limit.safe.safe_side == "more" else value <= now


def test_the_page_names_the_rules_in_the_order_in_which_the_shield_has_them():
    page = Path("docs/reference/control.md").read_text(encoding="utf-8").split("## The shield")[1].split("\n## ")[0]
    places = [page.index(f"*{reason.replace('_', '-')}*") for reason in get_args(Reason)]
    assert places == sorted(places)


MHZ = (800.0, 1000.0, 1500.0, 3000.0)


@given(wanted, st.sampled_from(MHZ), st.sampled_from(["more", "less"]), st.booleans(), st.booleans(),
       st.floats(0, 0.3), st.floats(1.0, 1e4))
def test_what_has_levels_is_set_to_one_of_them_and_moves_as_it_may(target: float, now: float, side: SafeSide,
                                                                   blind: bool, missed: bool, hysteresis: float,
                                                                   budget: float) -> None:
    limit = Limit("target_mhz", "mhz", SafeRange(800.0, 3000.0, 0.5, 1.0, side), False, hysteresis, levels=MHZ)
    shield = Shield([limit], [Budget("clock", ("target_mhz",), budget)])
    (found,) = shield.allowed({"target_mhz": target}, {"mhz": now}, {}, blind=blind, missed=missed).targets.values()
    assert found in MHZ and now / 2.0 <= found <= now * 2.0
    if (blind or missed) and budget >= 3000.0:
        assert found >= now if side == "more" else found <= now
    if found > now:
        assert found <= budget * (1 + 1e-6)


def test_what_somebody_else_set_between_two_levels_leads_back_to_one() -> None:
    limit = Limit("target_mhz", "mhz", SafeRange(800.0, 3000.0, 0.5, 1.0), levels=MHZ)
    shield = Shield([limit])
    assert _sees(shield, {"target_mhz": 1600.0}, {"mhz": 1600.0}).targets == {"target_mhz": 3000.0}
    assert _sees(shield, {"target_mhz": 100.0}, {"mhz": 9000.0}).targets == {"target_mhz": 3000.0}


@given(wanted, st.floats(100.0, 9000.0), st.sampled_from(["more", "less"]), st.booleans(), st.booleans())
def test_a_level_in_reach_leads_nowhere_away_from_the_safe_side_while_blind_or_missed(target, now, side, blind, missed):
    """A clock in its turbo, above all levels, or between two of them."""
    shield = Shield([Limit("target_mhz", "mhz", SafeRange(800.0, 3000.0, 0.5, 1.0, side), levels=MHZ)])
    (found,) = shield.allowed({"target_mhz": target}, {"mhz": now}, {}, blind=blind, missed=missed).targets.values()
    if blind or missed:
        assert found >= now if side == "more" else found <= now
        assert found == now or found in MHZ
    else:
        assert found in MHZ


HOT = SafeRange(1.0, 4.0, 0.75, 1.0, ceilings={"room_c": Ceiling(3.0, 1.0, 2.0)})


@given(wanted, st.floats(1.0, 4.0), st.floats(0.0, 8.0), st.booleans(), st.booleans(), st.floats(0.0, 900.0))
def test_a_ceiling_holds_whatever_is_said_above(target, now, room, blind, missed, ago):
    limit = Limit("target_ghz", "ghz", HOT, cool_down_s=300.0)
    found = Shield([limit]).allowed({"target_ghz": target}, {"ghz": now, "room_c": room}, {"target_ghz": ago},
                                    blind=blind, missed=missed)
    ceiling = 4.0 if room >= 3.0 else 2.0 if room <= 1.0 else 1.0 + room
    assert found.targets["target_ghz"] <= ceiling + 1e-9
    without = Shield([replace(limit, safe=replace(HOT, ceilings={}))]).allowed(
        {"target_ghz": target}, {"ghz": now}, {"target_ghz": ago}, blind=blind, missed=missed).targets["target_ghz"]
    assert found.targets["target_ghz"] == pytest.approx(min(without, ceiling))
    assert ("ceiling" in [one.reason for one in found.changes]) == (without > ceiling * (1 + 2e-6))


def test_of_a_signal_that_is_not_seen_no_ceiling_follows_and_a_level_is_the_one_that_a_policy_would_set():
    limit = Limit("target_ghz", "ghz", HOT)
    assert _sees(Shield([limit]), {"target_ghz": 4.0}, {"ghz": 3.0, "room_c": math.nan}).targets["target_ghz"] == 4.0
    levels = replace(limit, levels=(1.0, 1.9, 2.6, 4.0))
    found = _sees(Shield([levels]), {"target_ghz": 4.0}, {"ghz": 4.0, "room_c": 0.5})
    assert found.targets["target_ghz"] == 2.6  # what 2.0 is rounded to
    assert str(found.changes[0]) == "target_ghz 4 -> 2.6 (ceiling)"
