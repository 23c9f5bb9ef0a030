"""Bad input of few-shot prediction, one by one, through `recommend` and the commands: a message, or finite numbers.

docs/reference/measurements.md, "Bad input", says the same.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner, Result

from feature_store.errors import InputError
from feature_store.measurement_mapping import parse_measurement_mapping
from feature_store.measurements import FAR_LEVEL, measurements_of
from models.adaptation.encoding import table_of
from models.adaptation.pool.validation import SHOTS
from models.adaptation.recommendation import Recommendation, recommend
from models.audit.table_audit import audit_table
from pipelines.command_line import app
from tests.models.adaptation import simulation

MAPPING = {"workload": {"column": "app"},
           "configuration": {"nodes": {"column": "nodes"}, "type": {"column": "type", "kind": "category"}},
           "target": {"name": "runtime_s", "column": "seconds", "unit": "s"}, "cost": {"column": "usd"},
           "failed": [{"column": "status", "is_not": "ok"}]}
# Exponentials of logarithms, and of a posterior whose matrices are inverted.
ROUNDING = 1e-9
WORKLOADS = 6


def pool(workloads: int = WORKLOADS) -> pd.DataFrame:
    return simulation.frame(workloads).assign(status="ok")


def new(*rows: tuple[int, str, float], status: str = "ok") -> pd.DataFrame:
    """Runs of the workload `new`: nodes, type, seconds."""
    return pd.DataFrame([("new", nodes, kind, seconds, seconds * nodes * simulation.PRICE, status)
                         for nodes, kind, seconds in rows], columns=list(pool(1).columns))


def joined(*frames: pd.DataFrame) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True)


def recommended(raw: pd.DataFrame, metrics: tuple[str, ...] = (), coverage: float = 0.9) -> Recommendation:
    """What `recommend` says of `new`, sound as the module docstring has it."""
    mapping = parse_measurement_mapping(MAPPING | {"metrics": {name: {"column": name} for name in metrics}}, "test")
    found = recommend(table_of(measurements_of(raw, mapping, "runs.csv")), "new", coverage=coverage)
    numbers = found.options[["lower", "predicted", "upper", "cost"]].to_numpy()
    assert np.isfinite(numbers).all() and (numbers > 0).all() and (np.diff(numbers[:, :3]) >= 0).all()
    assert found.chosen == 0 and found.measure_next is not None
    return found


def call(folder: Path, raw: pd.DataFrame, command: str, *more: str) -> Result:
    raw.to_csv(folder / "runs.csv", index=False)
    (folder / "mapping.yaml").write_text(yaml.safe_dump(MAPPING, sort_keys=False))
    return CliRunner().invoke(app, [command, str(folder / "runs.csv"), "-m", str(folder / "mapping.yaml"), *more])


def printed(done: Result) -> str:
    return " ".join(done.output.split())


# one sample

def test_a_workload_with_one_sample_is_predicted() -> None:
    found = recommended(joined(pool(), new((4, "a", 87.0))))
    (own,) = found.options[found.options["runs"] > 0].to_dict("records")
    assert found.runs == 1 and own["lower"] <= 87.0 <= own["upper"]


def test_a_workload_of_the_pool_with_one_sample_is_no_obstacle() -> None:
    raw = joined(pool(), new((4, "a", 87.0)))
    assert recommended(raw.drop(raw.index[raw["app"] == "w01"][1:])).pool_workloads == WORKLOADS


@pytest.mark.parametrize("samples", [1, max(SHOTS)])
def test_a_pool_whose_workloads_all_have_too_few_samples_is_refused(samples: int) -> None:
    with pytest.raises(InputError, match=r"pool must have workloads with more than \d measured configurations"):
        recommended(joined(pool().groupby("app").head(samples), new((4, "a", 87.0))))


def test_an_audit_of_workloads_with_one_sample_is_undecided_and_prints_no_nan(tmp_path: Path) -> None:
    raw = pool().groupby("app").head(1)
    done = call(tmp_path, raw, "audit", "--decreasing", "nodes")
    assert done.exit_code == 0 and "nodes decreasing 0 - - - undecided 0 of 0 with 30 pairs" in printed(done)
    overall = json.loads(call(tmp_path, raw, "audit", "--decreasing", "nodes", "--json").stdout)["nodes"]["overall"]
    assert overall["pairs"] == 0 and overall["obeys"] is None and overall["verdict"] == "undecided"


# identical samples

def test_identical_samples_say_what_one_does() -> None:
    once, often = (recommended(joined(pool(), *[new((4, "a", 87.0))] * times)) for times in (1, 5))
    assert often.runs == 1 and often.options["runs"].max() == 5
    columns = ["lower", "predicted", "upper", "cost"]
    np.testing.assert_allclose(often.options[columns], once.options[columns], rtol=ROUNDING)


def test_a_file_where_all_runs_are_identical_twice_is_taken() -> None:
    raw = joined(pool(), new((4, "a", 87.0), (16, "b", 50.0)))
    assert recommended(joined(raw, raw)).runs == 2


# a constant target

@pytest.mark.parametrize("usd", [None, 1.0])
def test_a_target_that_is_constant_everywhere_is_predicted_with_little_doubt(usd: float | None) -> None:
    raw = joined(pool(), new((1, "a", 100.0), (4, "a", 100.0))).assign(seconds=100.0)
    found = recommended(raw if usd is None else raw.assign(usd=usd))
    for column in ("lower", "predicted", "upper"):
        np.testing.assert_allclose(found.options[column], 100.0, rtol=ROUNDING)


def test_a_constant_target_of_the_workload_alone_is_predicted() -> None:
    rows = [(nodes, kind, 50.0) for nodes in (1, 2, 4, 8) for kind in "ab"]
    found = recommended(joined(pool(), new(*rows)))
    own = found.options[found.options["runs"] > 0]
    assert len(own) == 8 and (own["lower"] <= 50.0).all() and (own["upper"] >= 50.0).all()


def test_a_workload_at_another_level_than_a_constant_pool_is_predicted_near_its_own() -> None:
    found = recommended(joined(pool().assign(seconds=100.0), new((1, "a", 5.0))))
    assert found.options["predicted"].between(4.999, 10.0).all()  # the pool knows no other level, and may pull


def test_an_audit_of_a_constant_target_finds_both_directions_obeyed() -> None:
    mapping = parse_measurement_mapping(MAPPING, "test")
    table = table_of(measurements_of(pool().assign(seconds=100.0), mapping, "runs.csv"))
    for found in (audit_table(table, {"nodes": "decreasing"}), audit_table(table, {"nodes": "increasing"})):
        assert (found["nodes"].overall.obeys, found["nodes"].overall.verdict) == (1.0, "obeyed")


@pytest.mark.parametrize("coverage", [0.01, 0.1, 0.5, 0.99])
def test_the_prediction_lies_inside_its_interval_however_narrow_that_is(coverage: float) -> None:
    # exp(mean - variance) does not where the interval is narrower than the variance
    recommended(joined(pool(), new((4, "a", 87.0))), coverage=coverage)


# failed runs only

def test_a_workload_with_failed_runs_only_is_named(tmp_path: Path) -> None:
    raw = joined(pool(), new((4, "a", 87.0), (8, "a", 50.0), status="killed"))
    done = call(tmp_path, raw, "recommend", "--workload", "new")
    assert done.exit_code == 2
    assert "error: workload must have a run that did not fail, got 'new', all of whose runs failed" in printed(done)


def test_workloads_of_the_pool_with_failed_runs_only_are_left_out() -> None:
    raw = joined(pool(), new((4, "a", 87.0)))
    raw.loc[raw["app"] == "w01", "status"] = "killed"
    assert recommended(raw).pool_workloads == WORKLOADS - 1
    raw.loc[raw["app"] != "new", "status"] = "killed"
    with pytest.raises(InputError, match="pool must have at least 3 other workloads, got 0"):
        recommended(raw)


# an unseen category

@pytest.mark.parametrize("rows", [[(4, "z", 87.0)], [(4, "z", 87.0), (8, "z", 60.0), (4, "a", 90.0)],
                                  [(300, "z", 87.0)]])
def test_a_category_that_no_workload_of_the_pool_has_is_predicted_by_likeness(rows: list[tuple[int, str, float]]
                                                                              ) -> None:
    found = recommended(joined(pool(), new(*rows)))
    unseen = found.options[found.options["type"] == "z"]
    assert len(found.options) == 10 + len(unseen) and (unseen["runs"] == 1).all()
    # what was measured there is known; the rest is nearer to it than to nothing
    assert np.abs(np.log(unseen["predicted"] / 87.0)).max() < np.log(2)


def test_a_category_of_one_workload_of_the_pool_alone_is_a_candidate() -> None:
    raw = pool()
    raw.loc[(raw["app"] == "w01") & (raw["nodes"] == 16), "type"] = "z"  # both rows: averaged
    found = recommended(joined(raw, new((4, "a", 87.0))))
    assert (found.options["type"] == "z").sum() == 1


# a metric missing for one workload

@pytest.mark.parametrize("without", [["new"], ["w01"], ["w01", "new"]])
def test_a_metric_that_one_workload_lacks_is_done_without(without: list[str]) -> None:
    raw = joined(pool(), new((1, "a", 200.0), (4, "a", 87.0)))
    raw = raw.assign(cpu=np.where(raw["app"].isin(without), np.nan, 3 * raw["seconds"]), io=raw["nodes"])
    recommended(raw, ("cpu", "io"))


def test_a_metric_that_the_workload_alone_has_changes_nothing() -> None:
    raw = joined(pool(), new((1, "a", 200.0), (4, "a", 87.0)))
    none = recommended(raw)
    alone = recommended(raw.assign(cpu=np.where(raw["app"] == "new", 5.0, np.nan)), ("cpu",))
    np.testing.assert_allclose(alone.options["predicted"], none.options["predicted"], rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, 5.0, np.nan])
def test_a_metric_that_never_varies_changes_nothing(value: float) -> None:
    raw = joined(pool(), new((1, "a", 200.0), (4, "a", 87.0)))
    none, constant = recommended(raw), recommended(raw.assign(cpu=value), ("cpu",))
    np.testing.assert_allclose(constant.options["predicted"], none.options["predicted"], rtol=1e-6)


# other units

@pytest.mark.parametrize("factor", [1e3, 1e-3])
@pytest.mark.parametrize("workload", ["new", "w02"])
def test_units_that_differ_by_a_thousand_are_flagged_and_predicted(workload: str, factor: float,
                                                                   tmp_path: Path) -> None:
    raw = joined(pool(), new((1, "a", 200.0), (4, "a", 87.0)))
    raw.loc[raw["app"] == workload, "seconds"] *= factor
    found = recommended(raw)
    (own,) = found.options.query("nodes == 4 and type == 'a'")["predicted"]
    assert own == pytest.approx(87.0 * (factor if workload == "new" else 1.0), rel=0.2)
    done = call(tmp_path, raw, "recommend", "--workload", "new")
    assert done.exit_code == 0 and f"note: workload {workload}: the median runtime_s is" in printed(done)
    assert printed(done).count("note:") == 1


def test_every_workload_in_units_of_its_own_gives_finite_numbers() -> None:
    raw = joined(pool(), new((1, "a", 200.0), (4, "a", 87.0)))
    recommended(raw.assign(seconds=raw["seconds"] * 1000.0 ** pd.factorize(raw["app"])[0]))


@pytest.mark.parametrize("own", [0.125, 1.0, 10.6])
@pytest.mark.parametrize("factor", [1e3, 1e-3])
def test_a_thousandfold_is_flagged_at_the_levels_that_public_measurements_have(own: float, factor: float) -> None:
    # 0.125 to 10.6 times the median: the ends of CloudBandit's workloads
    levels = [0.5, 0.8, 1.0, 1.25, 2.0]
    raw = pd.DataFrame({"app": list("abcde") + ["far"], "nodes": 1, "type": "a", "status": "ok", "usd": 1.0,
                        "seconds": [100 * level for level in levels] + [100 * own * factor]})
    mapping = parse_measurement_mapping(MAPPING, "test")
    (flag,) = measurements_of(raw, mapping, "runs.csv").flags
    assert flag.startswith("workload far: the median runtime_s is")
    raw.loc[5, "seconds"] = 100 * own
    assert measurements_of(raw, mapping, "runs.csv").flags == () and 10.6 < FAR_LEVEL < 1000 / 10.6


# a small pool, and a large support

@pytest.mark.parametrize("workloads", [0, 1, 2])
def test_a_pool_of_fewer_than_three_workloads_is_refused(workloads: int, tmp_path: Path) -> None:
    done = call(tmp_path, joined(pool(workloads), new((4, "a", 87.0))), "recommend", "--workload", "new")
    assert done.exit_code == 2
    assert f"error: pool must have at least 3 other workloads, got {workloads}" in printed(done)


def test_a_pool_of_three_workloads_is_the_smallest() -> None:
    assert recommended(joined(pool(3), new((4, "a", 87.0)))).pool_workloads == 3


def test_an_audit_of_one_workload_is_undecided(tmp_path: Path) -> None:
    done = call(tmp_path, pool(1), "audit", "--decreasing", "nodes")
    assert done.exit_code == 0 and "undecided" in printed(done)


def test_more_samples_than_intervals_are_calibrated_for_are_all_used() -> None:
    # level 300 s, slope -0.5, on type a alone: 5 configurations, 8 runs of each
    rows = [(nodes, "a", 300.0 * nodes**-0.5) for nodes in (1, 2, 4, 8, 16)] * 8
    found = recommended(joined(pool(), new(*rows)))
    own = found.options[found.options["runs"] > 0]
    assert found.runs == len(own) == 5 > max(SHOTS) and own["runs"].sum() == 40
    np.testing.assert_allclose(own["predicted"], 300.0 * own["nodes"] ** -0.5, rtol=0.1)
