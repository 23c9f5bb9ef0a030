"""The encoder is the learners that it was made of; its projection keeps what it says; its file brings it back."""

import numpy as np
import pytest

from feature_store.errors import InputError
from models.adaptation.learner import supports
from models.adaptation.pool.pool_encoder import PoolEncoder, exportable_learner, fit_pool_encoder
from models.adaptation.pool.similarity import calibrate_similarity, similarities
from tests.models.adaptation.synthetic_pools import constant, pool, random_support


def test_it_predicts_what_the_learners_predict() -> None:
    made = pool(14, missing=0.2)
    encoder, _ = fit_pool_encoder(made, 8, (1, 2, 3))
    support = random_support(made, 3, seed=4)
    wanted, said = exportable_learner().fit(made).predict(support), encoder.predict(support)
    np.testing.assert_allclose(said.mean, wanted.mean, atol=1e-9)
    np.testing.assert_allclose(said.variance, wanted.variance, atol=1e-9)


def test_metrics_are_not_looked_at() -> None:
    made = pool(10, metrics=2)
    encoder, _ = fit_pool_encoder(made, 4, (1, 2))
    support = random_support(made, 2)
    without = supports(pool(10), np.arange(10), support.at)
    np.testing.assert_array_equal(encoder.embed(support), encoder.embed(without))


def test_as_many_directions_as_curves_have_lose_nothing_and_fewer_lose_little() -> None:
    made = pool(14)  # a level and a slope: two directions, and noise
    support = random_support(made, 3)
    for size, most in ((10, 1e-6), (2, 0.15)):
        encoder, _ = fit_pool_encoder(made, size, (1, 2, 3))
        curves = encoder.predict(support).mean
        back = encoder.centre + encoder.embed(support) @ encoder.decode.T
        assert np.abs(back - curves).max() < most
        assert encoder.size <= size


def test_a_pool_of_one_curve_has_an_embedding_that_says_nothing() -> None:
    encoder, _ = fit_pool_encoder(constant(), 4, (1,))
    support = supports(constant(), np.arange(2), np.zeros((2, 1), dtype=np.int64))
    assert encoder.size == 1
    np.testing.assert_array_equal(encoder.embed(support), np.zeros((2, 1)))


def test_the_file_brings_it_back_and_any_other_is_refused(tmp_path) -> None:
    made = pool(8)
    encoder, _ = fit_pool_encoder(made, 3, (1, 2))
    encoder.save(tmp_path / "encoder.npz")
    support = random_support(made, 2)
    np.testing.assert_array_equal(PoolEncoder.load(tmp_path / "encoder.npz").embed(support), encoder.embed(support))
    content = (tmp_path / "encoder.npz").read_bytes()
    for bad in (b"", b"no numbers", content[: len(content) // 2]):
        (tmp_path / "bad.npz").write_bytes(bad)
        with pytest.raises(InputError, match="readable"):
            PoolEncoder.load(tmp_path / "bad.npz")


def test_similarity_of_the_thesis() -> None:
    one, opposite = np.array([[1.0, 0.0]]), np.array([[-1.0, 0.0]])
    assert similarities(one, one, 4.0)[0, 0] == 1.0
    assert similarities(one, opposite, 4.0)[0, 0] == pytest.approx((1 - 2 / 4 - 1) / 2)
    assert similarities(np.zeros((1, 2)), one, 4.0)[0, 0] == pytest.approx((1 - 1 / 4) / 2)  # no direction, no cosine


def test_a_workload_unlike_the_pool_lies_below_the_threshold() -> None:
    made = pool(20)
    encoder, held = fit_pool_encoder(made, 4, (1, 2, 3))
    known = calibrate_similarity(encoder, made, held)
    support = random_support(made, 3, seed=1)
    strange = type(support)(support.at, support.y + 40.0, support.metrics)
    assert (known.of(encoder.embed(support), encoder.pool) >= known.threshold).mean() > 0.8
    assert (known.of(encoder.embed(strange), encoder.pool) < known.threshold).all()
