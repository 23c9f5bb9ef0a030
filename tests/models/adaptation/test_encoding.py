import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_store.errors import InputError
from feature_store.measurement_mapping import parse_measurement_mapping
from feature_store.measurements import measurements_of
from models.adaptation.encoding import SPAN, CategoryCode, NumberCode, fit_encoder, table_of

# Sums of a few dozen float64 values of size 1.
TOLERANCE = 1e-12


def numbers(*values):
    return pd.DataFrame({"n": np.array(values, dtype=float)})


def table(rows, metrics=(), cost=False, configuration=None):
    """rows: (workload, nodes, target[, metrics..., cost])."""
    names = ["job", "nodes", "took", *metrics, *(["price"] if cost else [])]
    fields = {"cost": {"column": "price"}} if cost else {}
    mapping = parse_measurement_mapping({
        "workload": {"column": "job"}, "configuration": configuration or {"nodes": {"column": "nodes"}},
        "target": {"name": "runtime_s", "column": "took"}, "metrics": {name: {"column": name} for name in metrics},
        **fields}, "m")
    return table_of(measurements_of(pd.DataFrame(rows, columns=names), mapping, "runs"))


@pytest.mark.parametrize(("values", "logarithm"), [
    ((1, 2), True), ((1, 1.99), False), ((4, 8, 64), True), ((0, 1, 8), False), ((-4, 8), False), ((3, 3), False),
    ((1e-300, 1e300), True), ((1e150, 1.5e150), False),
])
def test_numbers_above_zero_that_span_a_factor_of_two_are_taken_in_logarithms(values, logarithm):
    (code,) = fit_encoder(numbers(*values), {"n": "number"}).codes
    assert isinstance(code, NumberCode)
    assert code.logarithm is logarithm
    assert SPAN == 2.0


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=30, unique=True))
def test_numbers_are_standardised(values):
    frame = numbers(*values)
    encoder = fit_encoder(frame, {"n": "number"})
    x = encoder.encode(frame)
    kept = np.log(values) if encoder.codes[0].logarithm else np.array(values)
    # values that differ by rounding alone keep few digits
    digits = 1e-9 * max(1.0, np.abs(kept).max() / kept.std() * 1e-4)
    assert x.shape == (len(values), 1)
    assert abs(x.mean()) < digits
    assert abs(x.std() - 1) < digits


@pytest.mark.parametrize("value", [0.1, 3.0, 0.0, 1e-12])
def test_a_number_that_never_varies_is_zero_and_others_keep_its_unit(value):
    encoder = fit_encoder(numbers(*[value] * 3), {"n": "number"})
    assert encoder.encode(numbers(*[value] * 3)).tolist() == [[0.0]] * 3
    assert encoder.encode(numbers(value + 1))[0, 0] == pytest.approx(1.0)
    assert not encoder.distance(numbers(*[value] * 3)).any()


def test_a_doubling_is_the_same_step_everywhere():
    x = fit_encoder(numbers(1, 2, 4, 8), {"n": "number"}).encode(numbers(16, 32, 64))[:, 0]
    np.testing.assert_allclose(np.diff(x), np.diff(x)[0], rtol=TOLERANCE)


def test_a_category_is_one_column_a_value_and_an_unseen_value_has_zeros():
    seen = pd.DataFrame({"zone": ["b", "a", "b"], "n": [1.0, 2.0, 3.0], "kind": ["k", "k", "l"]})
    encoder = fit_encoder(seen, {"zone": "category", "n": "number", "kind": "category"})
    assert encoder.names == ("zone", "n", "kind")
    assert encoder.codes[0] == CategoryCode("zone", ("a", "b"))
    assert encoder.encode(seen)[:, :2].tolist() == [[0, 1], [1, 0], [0, 1]]
    new = pd.DataFrame({"zone": ["d", "a", "c", "c"], "n": 1.0, "kind": "k"})
    assert encoder.encode(new)[:, :2].tolist() == [[0, 0], [1, 0], [0, 0], [0, 0]]


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_logarithm_of_no_positive_number_is_an_error(value):
    encoder = fit_encoder(numbers(1, 4), {"n": "number"})
    with pytest.raises(InputError, match=f"n must be above 0, got {value:g}"):
        encoder.encode(numbers(2, value))


@pytest.mark.parametrize("value", [np.nan, np.inf, "two", None])
@pytest.mark.parametrize("logarithm", [True, False])
def test_what_is_no_finite_number_is_an_error(value, logarithm):
    encoder = fit_encoder(numbers(1, 4 if logarithm else 1.5), {"n": "number"})
    with pytest.raises(InputError, match="n must hold finite numbers, got"):
        encoder.encode(pd.DataFrame({"n": pd.Series([1.0, value], dtype=object)}))


def test_a_missing_column_is_named():
    with pytest.raises(InputError, match="configuration must have the column 'n', got m"):
        fit_encoder(numbers(1, 4), {"n": "number"}).encode(pd.DataFrame({"m": [1.0]}))


def test_no_configuration_is_encoded_as_no_row():
    assert fit_encoder(numbers(1, 4), {"n": "number"}).encode(numbers()).shape == (0, 1)


@given(st.lists(st.tuples(st.floats(0.1, 1e4), st.sampled_from("abc")), min_size=2, max_size=15, unique=True))
def test_distances_are_symmetric_with_a_zero_diagonal(rows):
    frame = pd.DataFrame(rows, columns=["n", "zone"])
    distance = fit_encoder(frame, {"n": "number", "zone": "category"}).distance(frame)
    assert distance.shape == (2, len(rows), len(rows))
    np.testing.assert_array_equal(distance, distance.transpose(0, 2, 1))
    assert not np.diagonal(distance, axis1=1, axis2=2).any()
    assert (distance >= 0).all()
    assert set(distance[1].ravel()) <= {0.0, 1.0}


def test_distances_of_a_number_have_the_mean_one():
    frame = numbers(1, 3, 4, 20, 100)
    assert fit_encoder(frame, {"n": "number"}).distance(frame).mean() == pytest.approx(1.0)


def test_two_unseen_values_of_a_category_differ():
    encoder = fit_encoder(pd.DataFrame({"zone": ["a", "b"]}), {"zone": "category"})
    assert encoder.distance(pd.DataFrame({"zone": ["c", "d", "c"]}))[0].tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_runs_of_one_configuration_are_averaged_in_logarithms():
    found = table([("b", 2, 10.0), ("a", 1, 5.0), ("b", 2, 40.0), ("b", 1, 7.0)])
    assert found.workloads == ("a", "b")
    assert found.configurations["nodes"].tolist() == [1.0, 2.0]
    np.testing.assert_allclose(found.pool.y, [[np.log(5), np.nan], [np.log(7), np.log(20)]], rtol=TOLERANCE)
    assert found.pool.runs.tolist() == [[1, 0], [1, 2]]
    assert found.pool.workloads == 2


def test_the_noise_is_the_pooled_variance_within_cells():
    found = table([("a", 1, np.exp(1.0)), ("a", 1, np.exp(1.2)), ("a", 2, np.exp(9.0)),
                   ("b", 1, np.exp(2.0)), ("b", 1, np.exp(2.3)), ("b", 1, np.exp(2.6))])
    # squares (0.01 + 0.01) + (0.09 + 0 + 0.09) over 1 + 2 degrees of freedom
    assert found.pool.noise == pytest.approx(0.2 / 3)


def test_without_repeats_the_noise_is_not_known():
    assert np.isnan(table([("a", 1, 5.0), ("a", 2, 5.0)]).pool.noise)


def test_identical_repeats_have_no_noise():
    assert table([("a", 1, 5.0), ("a", 1, 5.0)]).pool.noise == 0.0


def test_costs_are_averaged_as_they_are():
    found = table([("a", 1, 5.0, 2.0), ("a", 1, 5.0, 4.0), ("b", 2, 5.0, 1.0)], cost=True)
    np.testing.assert_array_equal(found.cost, [[3.0, np.nan], [np.nan, 1.0]])
    assert table([("a", 1, 5.0)]).cost is None


def test_metrics_that_are_missing_stay_so_and_others_are_averaged():
    found = table([("a", 1, 5.0, 1.0, None), ("a", 1, 6.0, 3.0, None), ("a", 2, 7.0, None, None),
                   ("b", 1, 8.0, 0.0, None), ("b", 2, 8.0, None, None), ("b", 2, 8.0, 8.0, None)], ("cpu", "io"))
    median = 3.0  # of what is above 0
    expected = [[np.mean(np.log1p(np.array([1.0, 3.0]) / median)), np.nan], [0.0, np.log1p(8.0 / median)]]
    np.testing.assert_allclose(found.pool.metrics[..., 0], expected, rtol=TOLERANCE)
    assert np.isnan(found.pool.metrics[..., 1]).all()
    assert found.pool.runs.tolist() == [[2, 1], [1, 2]]


def test_without_metrics_the_last_axis_is_empty():
    assert table([("a", 1, 5.0), ("a", 2, 5.0)]).pool.metrics.shape == (1, 2, 0)


def test_the_arrays_of_a_table_belong_to_its_configurations():
    configuration = {"nodes": {"column": "nodes"}, "index": {"column": "job", "kind": "category"}}
    rows = [("b", 4, 1.0), ("a", 4, 2.0), ("b", 1, 3.0), ("a", 2, 4.0)]
    found = table(rows, configuration=configuration)
    assert found.configurations.to_numpy().tolist() == [[1.0, "b"], [2.0, "a"], [4.0, "a"], [4.0, "b"]]
    np.testing.assert_array_equal(found.pool.x, found.encoder.encode(found.configurations))
    np.testing.assert_array_equal(found.pool.distance, found.encoder.distance(found.configurations))
    for job, nodes, took in rows:
        at = found.configurations.index[(found.configurations["nodes"] == nodes)
                                        & (found.configurations["index"] == job)][0]
        assert found.pool.y[found.workloads.index(job), at] == np.log(took)


def test_rows_of_workloads_are_found_and_unknown_ones_named():
    found = table([("a", 1, 5.0), ("b", 2, 5.0), ("c", 2, 5.0)])
    assert found.rows(["c", "a"]).tolist() == [2, 0]
    assert found.pool.part(found.rows(["c"])).y.shape == (1, 2)
    with pytest.raises(InputError, match="workload must be in the table, got 'd'; known: a, b, c"):
        found.rows(["d"])
