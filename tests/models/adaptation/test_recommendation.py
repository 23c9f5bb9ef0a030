"""Recommendations: the cheapest configuration that meets the deadline, and what to measure next."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from feature_store.measurements import measurements_of
from models.adaptation.encoding import Table, table_of
from models.adaptation.recommendation import recommend
from tests.models.adaptation import simulation


def new_workload(runs: int = 2, level: float = 200.0, slope: float = 0.6) -> Table:
    """Twelve workloads, and `new` with its first runs; its run time is level * nodes^-slope on type a."""
    rows = [("new", nodes, "a", level * nodes**-slope, level * nodes ** (1 - slope) * simulation.PRICE)
            for nodes in (1, 4, 16)[:runs]]
    own = pd.DataFrame(rows, columns=["app", "nodes", "type", "seconds", "usd"])
    return table_of(measurements_of(pd.concat([simulation.frame(), own], ignore_index=True), simulation.mapping(),
                                    "test"))


def test_the_cheapest_that_meets_the_deadline_is_chosen() -> None:
    # 1 node takes 200 s, 4 take 87 s, 8 take 57 s; a node more costs more in all
    found = recommend(new_workload(), "new", deadline=75.0)
    assert found.chosen is not None and found.runs == 2 and found.pool_workloads == 12
    chosen = found.options.iloc[found.chosen]
    assert (chosen["nodes"], chosen["type"]) == (8.0, "a") and chosen["upper"] <= 75.0
    assert chosen["predicted"] == pytest.approx(57.4, rel=0.15)
    assert chosen["cost"] == pytest.approx(57.4 * 8 * simulation.PRICE, rel=0.15)
    meeting = found.options[found.options["meets"]]
    assert chosen["cost"] == meeting["cost"].min()


def test_without_a_deadline_the_cheapest_of_all_is_chosen() -> None:
    found = recommend(new_workload(), "new")
    assert found.chosen == 0 and found.options["cost"].is_monotonic_increasing and found.options["meets"].all()
    assert (found.options.iloc[0]["nodes"], found.options.iloc[0]["type"]) == (1.0, "a")


def test_where_none_meets_the_deadline_none_is_chosen() -> None:
    found = recommend(new_workload(), "new", deadline=1.0)
    assert found.chosen is None and not found.options["meets"].any()


def test_a_configuration_whose_cost_nobody_knows_is_not_recommended() -> None:
    """It is shown, after all that have a cost; where no other meets the deadline, none is chosen."""
    table = new_workload()
    assert table.cost is not None
    deadline = 41.0  # 16 nodes of type a take 38 s, and nothing else is as fast
    assert recommend(table, "new", deadline, risk=True).chosen is not None
    fastest = ((table.configurations["nodes"] == 16) & (table.configurations["type"] == "a")).to_numpy()
    found = recommend(replace(table, cost=np.where(fastest, np.nan, table.cost)), "new", deadline, risk=True)
    last = found.options.iloc[-1]
    assert (last["nodes"], last["type"], last["meets"]) == (16, "a", True) and np.isnan(last["cost"])
    assert found.options["meets"].sum() == 1 and found.chosen is None


def test_a_wider_interval_meets_fewer_deadlines_than_a_narrow_one_and_risk_meets_the_most() -> None:
    wide, narrow, risky = (int(recommend(new_workload(1), "new", 100.0, coverage, risk).options["meets"].sum())
                           for coverage, risk in ((0.99, False), (0.5, False), (0.99, True)))
    assert wide <= narrow <= risky and wide < risky


def test_more_runs_narrow_the_intervals_and_what_to_measure_next_is_not_measured_yet() -> None:
    widths = []
    for runs in (1, 2, 3):
        found = recommend(new_workload(runs), "new")
        assert found.measure_next is not None
        told = (found.measure_next["nodes"], found.measure_next["type"])
        assert told not in [(nodes, "a") for nodes in (1.0, 4.0, 16.0)[:runs]]
        widths.append(float(np.median(np.log(found.options["upper"] / found.options["lower"]))))
    assert widths[0] > widths[1] > widths[2]


def test_all_configurations_measured_leave_nothing_to_measure_next() -> None:
    assert recommend(simulation.table(), "w03").measure_next is None


@pytest.mark.parametrize(("options", "message"), [
    ({"workload": "w3"}, "did you mean 'w03'"), ({"deadline": 0.0}, "deadline must be above 0"),
    ({"deadline": float("nan")}, "deadline must be above 0"), ({"coverage": 1.0}, "coverage must be between")])
def test_bad_input_is_told(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        recommend(simulation.table(), **({"workload": "w03"} | options))  # type: ignore[arg-type]


def test_a_pool_that_is_too_small_and_a_file_without_costs_are_refused() -> None:
    with pytest.raises(InputError, match="at least 3 other workloads, got 2"):
        recommend(simulation.table(3), "w00")
    with pytest.raises(InputError, match="`cost` of a run"):
        recommend(simulation.table(cost=False), "w00")
