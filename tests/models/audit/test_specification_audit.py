"""How often data obey a specification: on data whose shares, noise and worst pairs are known."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.audit.specification_audit import AuditSettings, PropertyAudit, audit, free_columns
from models.verification.language.properties import Condition, Monotonicity, OutputRange, Share

RISES, FALLS = Monotonicity((0,), "increasing"), Monotonicity((0,), "decreasing")


def grid(others: int, values: int) -> np.ndarray:
    """(others * values, 2): every value of the first column under every value of the second."""
    return np.stack(np.meshgrid(np.arange(float(values)), np.arange(float(others))), axis=-1).reshape(-1, 2)


def one(x: np.ndarray, y: np.ndarray, rule: Monotonicity = RISES, **kept: object) -> PropertyAudit:
    (found,) = audit(x, y, [f"f{i}" for i in range(x.shape[1])], [rule], **kept)  # type: ignore[arg-type]
    return found


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(2, 25), seed=st.integers(0, 10 ** 6), direction=st.sampled_from(["increasing", "decreasing"]))
def test_shares_are_those_of_brute_force(rows: int, seed: int, direction: str) -> None:
    generator = np.random.default_rng(seed)
    x, y = generator.integers(0, 3, (rows, 2)).astype(float), generator.integers(0, 4, rows).astype(float)
    found = one(x, y, Monotonicity((0,), direction),  # type: ignore[arg-type]
                settings=AuditSettings(minimum_pairs=1))
    sign = 1 if direction == "increasing" else -1
    wrong = [sign * (y[a] - y[b]) for a in range(rows) for b in range(rows) if x[a, 0] < x[b, 0] and x[a, 1] == x[b, 1]]
    if found.kind == "exact":
        assert found.pairs == len(wrong)
        assert math.isclose(found.obeys, np.mean([v <= 0 for v in wrong]))
        violations = [v for v in wrong if v > 0]
        assert found.mean_violation == pytest.approx(np.mean(violations)) if violations else not found.worst
        assert [pair.violation for pair in found.worst] == sorted(violations, reverse=True)[:5]
        equal = [y[(x == row).all(axis=1)] for row in np.unique(x, axis=0)]
        degrees = sum(len(cell) - 1 for cell in equal)
        noise = math.sqrt(sum(((cell - cell.mean()) ** 2).sum() for cell in equal) / degrees) if degrees else math.nan
        assert found.noise == pytest.approx(noise, nan_ok=True, abs=1e-12)
        assert found.within_noise >= found.obeys
    else:
        assert not wrong


def test_a_known_share_is_found_and_its_verdict_given() -> None:
    x = grid(200, 2)
    y = np.tile([0.0, 1.0], 200)
    y[:2 * 40] = np.tile([1.0, 0.0], 40)  # 40 of 200 pairs contradict
    found = one(x, y)
    assert (found.kind, found.pairs, found.rows, found.obeys, found.within_noise) == ("exact", 200, 400, 0.8, 0.8)
    assert found.obeys_interval.lower < 0.76 and found.obeys_interval.upper > 0.84
    assert found.mean_violation == 1.0
    assert found.verdict == "undecided"  # 0.8 is demanded, and lies within the interval
    assert replace(found, at_least=0.7).verdict == "obeyed"
    assert replace(found, at_least=0.9).verdict == "contradicted"
    assert one(x, y, FALLS).verdict == "contradicted"


def test_ties_obey_both_ways() -> None:
    x = grid(50, 2)
    assert [one(x, np.zeros(100), rule).obeys for rule in (RISES, FALLS)] == [1.0, 1.0]


def test_what_lies_within_the_noise_of_repeats_does_not_contradict() -> None:
    """A feature without effect: half of the pairs obey, nearly all lie within the noise, and that is no support."""
    generator = np.random.default_rng(0)
    x = np.repeat(grid(200, 2), 2, axis=0)
    found = one(x, 0.3 * generator.normal(size=len(x)))
    assert math.isclose(found.noise, 0.3, rel_tol=0.1)
    assert 0.4 < found.obeys < 0.6 and math.isclose(found.within_noise, 0.975, abs_tol=0.015)
    assert found.verdict == "undecided"


def test_noise_that_is_known_takes_the_place_of_what_is_measured() -> None:
    x = grid(50, 2)
    unknown, known = one(x, -0.1 * x[:, 0]), one(x, -0.1 * x[:, 0], noise=0.06)
    assert math.isnan(unknown.noise) and unknown.within_noise == 0.0
    assert known.noise == 0.06 and known.within_noise == 1.0 and known.obeys == 0.0


def test_a_small_fall_within_large_noise_contradicts() -> None:
    generator = np.random.default_rng(0)
    x = np.repeat(grid(400, 2), 2, axis=0)
    found = one(x, 0.3 * generator.normal(size=len(x)) - 0.2 * x[:, 0])
    assert found.within_noise > 0.8 and found.obeys_interval.upper < 0.5
    assert found.verdict == "contradicted"


def test_a_small_rise_within_large_noise_is_obeyed() -> None:
    generator = np.random.default_rng(0)
    x = np.repeat(grid(400, 2), 2, axis=0)
    found = one(x, 0.3 * generator.normal(size=len(x)) + 0.2 * x[:, 0])
    assert found.obeys < 0.8 and found.verdict == "obeyed"


def test_where_no_rows_differ_in_one_feature_alone_rows_are_matched() -> None:
    """The first column hides behind the second: it rises with it, and y falls in it with that one equal."""
    generator = np.random.default_rng(0)
    second = generator.random(1500)
    x = np.stack([second + 0.5 * generator.random(1500), second], axis=1)
    y = 3 * x[:, 1] - x[:, 0]
    rising, falling = one(x, y), one(x, y, FALLS)
    assert np.corrcoef(x[:, 0], y)[0, 1] > 0.5
    assert rising.kind == falling.kind == "matched"
    assert falling.pairs == rising.pairs > 500
    # within the caliper the second column may outweigh the first
    assert falling.obeys > 0.8 and math.isclose(rising.obeys + falling.obeys, 1.0)
    assert (rising.verdict, falling.verdict) == ("contradicted", "obeyed")
    assert 0 < falling.noise < 0.25 * 3 * x[:, 1].std()


def test_where_all_rows_are_of_one_group_matched_pairs_still_have_a_noise() -> None:
    generator = np.random.default_rng(0)
    x = generator.random((500, 2))
    assert one(x, generator.normal(size=500), group=np.zeros(500, dtype=np.int64)).noise > 0.8


def test_matched_rows_differ_in_the_feature_by_the_step_and_in_the_others_by_less_than_the_caliper() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(600, 3)), generator.normal(size=600)
    found = one(x, y, settings=AuditSettings(worst=10 ** 4))
    low, high = np.array([[pair.low, pair.high] for pair in found.worst]).T
    steps = np.abs(x[low] - x[high]) / x.std(axis=0)
    assert len(low) > 50 and (steps[:, 0] >= 0.5).all() and (steps[:, 1:] < 0.25).all()


def test_exact_pairs_are_kept_where_matching_finds_no_more() -> None:
    x = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 50.0], [1.0, 100.0]])
    found = one(x, np.array([0.0, 1.0, 2.0, 3.0]))
    assert (found.kind, found.pairs, found.obeys, found.verdict) == ("exact", 1, 1.0, "undecided")


@pytest.mark.parametrize("x", [np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([[1.0, 2.0]])])
def test_a_constant_feature_has_no_pairs_and_no_verdict(x: np.ndarray) -> None:
    found = one(x, np.arange(float(len(x))))
    assert (found.kind, found.pairs, found.rows, found.worst) == ("none", 0, 0, ())
    assert found.verdict == "undecided"
    assert math.isnan(found.obeys) and math.isnan(found.within_noise_interval.upper)


def test_a_single_column_is_compared_everywhere() -> None:
    found = one(np.arange(12.0)[:, None], np.arange(12.0))
    assert (found.kind, found.pairs, found.obeys) == ("exact", 66, 1.0)


def test_the_worst_pairs_are_named_with_their_values_and_targets() -> None:
    x = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, 5.0], [4.0, 5.0], [1.0, 9.0], [2.0, 9.0]])
    found = one(x, np.array([7.0, 4.0, 9.0, 1.0, 0.0, 1.0]))
    assert [(p.low, p.high, p.low_value, p.high_value, p.low_target, p.high_target, p.violation) for p in found.worst] \
        == [(2, 3, 1.0, 4.0, 9.0, 1.0, 8.0), (0, 1, 1.0, 2.0, 7.0, 4.0, 3.0)]


def test_rows_measured_together_widen_the_interval() -> None:
    generator = np.random.default_rng(0)
    x = grid(400, 2)
    y = np.where(generator.random(20) < 0.8, 1.0, -1.0).repeat(40) * x[:, 0]
    alone, together = one(x, y), one(x, y, group=np.arange(20).repeat(40))
    width = [found.obeys_interval.upper - found.obeys_interval.lower for found in (alone, together)]
    assert alone.obeys == together.obeys and width[1] > 3 * width[0]


def test_products_move_with_their_factors() -> None:
    names, products = ("cores", "nodes", "total", "type"), {"total": ("cores", "nodes")}
    assert free_columns("cores", names, products) == {"cores", "total"}
    assert free_columns("total", names, products) == {"cores", "nodes", "total"}
    assert free_columns("type", names, products) == {"type"}
    with pytest.raises(InputError, match="did you mean 'nodes'"):
        free_columns("cores", names, {"total": ("cores", "node")})
    cores, nodes = grid(3, 4).T + 1
    x = np.stack([cores, nodes, cores * nodes], axis=1)
    (found,) = audit(x, 1 / cores, names[:3], [FALLS], products=products, settings=AuditSettings(minimum_pairs=1))
    assert (found.kind, found.pairs, found.obeys) == ("exact", 3 * 6, 1.0)


def test_only_monotonicities_of_the_output_are_audited_and_a_share_demands_no_more_than_it_says() -> None:
    x = grid(40, 2)
    properties = (Monotonicity((0, 1), "increasing"), Monotonicity((0,), "decreasing", output=1), OutputRange(0, 0.0),
                  Share(Monotonicity((0,), "decreasing"), 0.6))
    found = audit(x, x[:, 0], ["a", "b"], properties)
    assert [(entry.feature, entry.direction, entry.at_least) for entry in found] == [
        ("a", "increasing", 0.8), ("b", "increasing", 0.8), ("a", "decreasing", 0.6)]


def test_json_is_strict() -> None:
    x = np.stack([np.ones(40), np.arange(40.0)], axis=1)
    found = audit(x, -np.arange(40.0), ["a", "b"], [Monotonicity((0, 1), "increasing")])
    written = json.loads(json.dumps([entry.to_json() for entry in found], allow_nan=False))
    assert written[0]["obeys"] is None and written[0]["noise"] is None and written[0]["obeys_interval"] == [None, None]
    assert written[1]["verdict"] == "contradicted" and written[1]["pairs"] == 780
    assert written[1]["worst"][0] == {"low": 0, "high": 39, "low_value": 0.0, "high_value": 39.0, "low_target": 0.0,
                                      "high_target": -39.0, "violation": 39.0}


def test_unusable_input_is_refused() -> None:
    x, y = grid(3, 2), np.zeros(6)
    with pytest.raises(InputError, match="shapes"):
        audit(x, y[:-1], ["a", "b"], [RISES])
    with pytest.raises(InputError, match="finite"):
        audit(x, np.full(6, np.nan), ["a", "b"], [RISES])
    with pytest.raises(InputError, match="group"):
        audit(x, y, ["a", "b"], [RISES], group=np.arange(5))
    for wrong in ({"at_least": 1.0}, {"confidence": 0.0}, {"caliper": 0.0}, {"tolerance": -1.0}, {"partners": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            AuditSettings(**wrong)  # type: ignore[arg-type]


def test_an_order_under_a_condition_is_asked_of_the_rows_that_meet_it() -> None:
    """y rises up to 4 and falls behind it: an order in the one part says nothing of the other."""
    x = grid(6, 9)
    y = -np.abs(x[:, 0] - 4)
    below, above = (Condition(0, 0.0, 4.0),), (Condition(0, 4.0, 8.0),)
    rules = [replace(RISES, when=below), replace(FALLS, when=above)]
    rising, falling = audit(x, y, ["a", "b"], rules)
    assert (rising.direction, rising.obeys) == ("increasing", 1.0) and (falling.direction, falling.obeys) == (
        "decreasing", 1.0)
    (wrong,) = audit(x, y, ["a", "b"], [replace(RISES, when=above)])
    assert wrong.obeys == 0.0
    assert one(x, y).obeys < 1
    assert audit(x, y, ["a", "b"], [replace(RISES, when=(Condition(1, 0.1, 0.2),))]) == ()
