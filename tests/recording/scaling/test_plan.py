"""The plan of a scaling campaign: pure, complete, and what its settings and its trace ask for."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from feature_store.errors import InputError
from recording.scaling.arrivals import draw_shape, poisson_arrivals, read_shapes, synthetic_invocations
from recording.scaling.plan import Deployment, Trial, plan_scaling
from recording.scaling.settings import ScalingSettings

INVOCATIONS = synthetic_invocations(np.random.default_rng(0), functions=3, minutes=200)


def trials_of(settings: ScalingSettings) -> list[Trial]:
    return [trial for _, trials in plan_scaling(settings, INVOCATIONS) for trial in trials]


def test_equal_settings_give_an_equal_plan_and_another_seed_another_one() -> None:
    settings = ScalingSettings(seed=4)
    assert plan_scaling(settings, INVOCATIONS) == plan_scaling(settings, INVOCATIONS)
    assert plan_scaling(dataclasses.replace(settings, seed=5), INVOCATIONS) != plan_scaling(settings, INVOCATIONS)


def test_every_deployment_is_swept_at_every_utilisation_in_an_order_of_its_own() -> None:
    settings = ScalingSettings()
    orders = set()
    for deployment, trials in plan_scaling(settings, INVOCATIONS):
        points = [trial for trial in trials if trial.kind == "point"]
        assert sorted(trial.load[0][0] for trial in points) == sorted(settings.utilisations)
        assert {trial.seconds for trial in points} == {settings.warm_up_s + settings.point_s}
        assert trials[0].kind == "start" and {trial.deployment for trial in trials} == {deployment}
        orders.add(tuple(trial.load[0][0] for trial in points))
    assert len(orders) > 10


def test_names_and_seeds_differ_and_every_server_is_stepped_traced_and_resized() -> None:
    trials = trials_of(ScalingSettings())
    assert len({trial.identifier for trial in trials}) == len({trial.seed for trial in trials}) == len(trials)
    for server in ("nginx", "redis", "mysql", "search"):
        kinds = {trial.kind for trial in trials if trial.deployment.server == server}
        assert kinds >= {"start", "point", "steps", "trace", "quota", "instance"}
        assert ("workers" in kinds) == (server != "redis")  # it has one thread
    for trial in trials:
        assert [change.at_s for change in trial.changes] == sorted(change.at_s for change in trial.changes)
        assert all(change.at_s < trial.seconds for change in trial.changes)


def test_only_sweeps_where_only_sweeps_are_asked_for() -> None:
    assert {trial.kind for trial in trials_of(ScalingSettings(sweeps_only=True))} == {"start", "point"}


def test_workers_limit_what_an_instance_may_use() -> None:
    assert Deployment("nginx", 1.5, 1, 2).cores == 2.0
    assert Deployment("nginx", 0.3, 2, 4).cores == pytest.approx(1.2)


@pytest.mark.parametrize(("change", "message"), [
    ({"servers": ("nginx", "postgres")}, "server must be known, got 'postgres'"),
    ({"servers": ()}, "servers must be one or more"),
    ({"servers": ("nginx", "nginx")}, "servers must be one or more, and differ"),
    ({"utilisations": (0.5, float("nan"))}, "utilisations must be one or more in 0.01..3"),
    ({"point_s": 0.5}, "point_s must lie in 2..600"),
    ({"warm_up_s": -1.0}, "warm_up_s must"),
    ({"timeout_s": 0.0}, "timeout_s must"),
    ({"most_attempts": 0}, "most_attempts must lie in 1..10"),
    ({"trace": "/no/such.csv"}, "trace must be a file"),
    ({"seed": -1}, "seed must be 0 or more"),
])
def test_settings_that_make_no_sense_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ScalingSettings(**change)  # type: ignore[arg-type]


def test_arrivals_have_the_rate_of_their_segment() -> None:
    due = poisson_arrivals(np.random.default_rng(1), [100.0, 400.0, 0.0, 50.0], [20.0, 20.0, 10.0, 20.0])
    assert (np.diff(due) >= 0).all() and due.min() >= 0 and due.max() < 70
    counts = np.histogram(due, [0, 20, 40, 50, 70])[0]
    expected = np.array([2000, 8000, 0, 1000])
    assert (abs(counts - expected) <= 5 * np.sqrt(expected)).all()
    between = np.diff(due[due < 20])
    assert between.std() / between.mean() == pytest.approx(1.0, abs=0.1)  # of an exponential law


def test_a_shape_is_the_liveliest_stretch_with_its_highest_minute_as_1() -> None:
    invocations = np.ones((1, 100))
    invocations[0, 60:65] = 9.0
    shape = draw_shape(np.random.default_rng(0), invocations, 20)
    assert len(shape) == 20 and shape.max() == 1.0 and (shape == 1.0).sum() == 5
    assert len(draw_shape(np.random.default_rng(0), invocations, 500)) == 100


def write_trace(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(["HashFunction,1,2,3,4", *rows]) + "\n")
    return path


def test_a_trace_gives_the_functions_that_have_a_shape(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.csv", ["a,10,90,10,20", "b,20,20,20,20", "c,0,1,0,0"])
    assert read_shapes(path).tolist() == [[10, 90, 10, 20]]


@pytest.mark.parametrize(("rows", "message"), [
    (["a,10,-3,10,20"], r"a number of 0 or more in every minute, got '-3'.*line 2, column 2"),
    (["a,10,90,10,20", "b,1,,3,4"], r"a number of 0 or more in every minute, got 'nan'.*line 3, column 2"),
    (["a,10,many,10,20"], "a number of 0 or more in every minute, got 'many'"),
    (["a,0,0,0,0"], "got none in 1"),
])
def test_a_trace_with_gaps_or_nonsense_is_refused(rows: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_shapes(write_trace(tmp_path / "t.csv", rows))


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("time,rate\n1,2\n")
    with pytest.raises(InputError, match="a column for each minute"):
        read_shapes(tmp_path / "t.csv")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(InputError, match="a CSV file of invocations per minute"):
        read_shapes(tmp_path / "empty.csv")
