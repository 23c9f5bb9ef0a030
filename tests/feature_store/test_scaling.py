import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.preprocessing import MinMaxScaler

from feature_store.errors import InputError
from feature_store.scaling import FeatureScaling, MinMaxScaling

VALUES = hnp.arrays(np.float64, st.tuples(st.integers(1, 20), st.just(3)),
                    elements=st.floats(-1e12, 1e12, allow_subnormal=False))


def _frame(values):
    return pd.DataFrame(values, columns=["a", "b", "c"])


@settings(deadline=None)
@given(VALUES)
def test_unscale_undoes_scale(values):
    scaling = MinMaxScaling.from_frame(_frame(values), ("a", "b", "c"))
    # a value is rounded twice, each time by at most the spacing of the largest number of its column
    spacing = np.spacing(np.abs(values).max(axis=0) + 1.0)
    assert (np.abs(scaling.unscale(scaling.scale(values)) - values) <= 4 * spacing).all()


@settings(deadline=None)
@given(VALUES)
def test_training_values_scale_into_the_unit_interval(values):
    scaled = MinMaxScaling.from_frame(_frame(values), ("a", "b", "c")).scale(values)
    assert (scaled >= 0.0).all()
    assert (scaled <= 1.0).all()


def test_it_agrees_with_scikit_learn():
    values = np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 100.0, 1e-6]
    ours = MinMaxScaling.from_frame(_frame(values), ("a", "b", "c")).scale(values)
    np.testing.assert_allclose(ours, MinMaxScaler().fit_transform(values), atol=1e-14)


@pytest.mark.parametrize("constant", [0.0, 5.0, -3.0, 1e17])
def test_a_constant_column_scales_to_zero(constant):
    scaling = MinMaxScaling.from_frame(pd.DataFrame({"a": [constant, constant]}), ("a",))
    assert scaling.minimum == (constant,)
    assert scaling.maximum[0] == max(constant + 1.0, np.nextafter(constant, np.inf))
    assert scaling.scale(np.array([[constant]])) == 0.0


@settings(deadline=None)
@given(VALUES)
def test_json_keeps_every_bit(values):
    frame = _frame(values)
    scaling = FeatureScaling(MinMaxScaling.from_frame(frame, ("b", "a")), MinMaxScaling.from_frame(frame, ("c",)))
    assert FeatureScaling.from_json(scaling.to_json()) == scaling
    assert list(json.loads(scaling.to_json())["features"]) == ["b", "a"]


def test_a_column_without_a_finite_range_is_refused():
    with pytest.raises(InputError, match=r"range of a column must be finite and not empty.*\(a\)"):
        MinMaxScaling.from_frame(pd.DataFrame({"a": [np.nan, np.nan]}), ("a",))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"features": 3, "target": {}}',
                                  '{"features": {"a": [1]}, "target": {}}',
                                  '{"features": {"a": [2, 1]}, "target": {}}'])
def test_a_damaged_scaling_is_refused(text):
    with pytest.raises(InputError):
        FeatureScaling.from_json(text)
