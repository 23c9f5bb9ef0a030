"""The exported encoder says what the pool encoder says, whatever the order and number of runs."""

import numpy as np
import onnxruntime
import pytest

from models.adaptation.learner import NONE, supports
from models.adaptation.pool.pool_encoder import fit_pool_encoder
from models.adaptation.pool.similarity import calibrate_similarity
from models.export.encoder_model import build_encoder
from tests.models.adaptation.synthetic_pools import pool as synthetic_pool

RUNS, SIZE = 3, 6


@pytest.fixture(scope="module")
def built():
    pool = synthetic_pool(workloads=12, seed=3)
    encoder, held = fit_pool_encoder(pool, 4, (1, 2, 3))
    table = np.random.default_rng(0).uniform(0, 50, (pool.y.shape[1], 3)).astype(np.float32).astype(np.float64)
    predictability = calibrate_similarity(encoder, pool, held)
    model = build_encoder(encoder, table, RUNS, SIZE, predictability.reach, {"task": "sizing"})
    return pool, encoder, table, predictability, onnxruntime.InferenceSession(model)


def _run(session, table, at, y):
    at, y = np.asarray(at), np.asarray(y)
    there = at != NONE
    return dict(zip(("embedding", "similarity", "unknown"), session.run(None, {
        "configuration": table[np.where(there, at, 0)].astype(np.float32),
        "target": np.where(there, np.exp(y), np.nan).astype(np.float32), "there": there.astype(np.float32)}),
        strict=True))


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_it_is_the_encoder(built, runs):
    pool, encoder, table, predictability, session = built
    rng = np.random.default_rng(runs)
    for workload in range(5):
        at = np.full(RUNS, NONE)
        at[:runs] = rng.permutation(pool.y.shape[1])[:runs]
        support = supports(pool, np.array([workload]), at[None])
        said = _run(session, table, at, support.y[0])
        wanted = encoder.embed(support)
        np.testing.assert_allclose(said["embedding"][: encoder.size], wanted[0], rtol=1e-3, atol=1e-3)
        assert not said["embedding"][encoder.size:].any()
        np.testing.assert_allclose(said["similarity"], predictability.of(wanted, encoder.pool), atol=1e-3)
        assert said["unknown"] == 0


def test_the_order_of_runs_does_not_matter_nor_where_the_empty_places_are(built):
    pool, _, table, _, session = built
    y = pool.y[0]
    first = _run(session, table, [2, 5, NONE], [y[2], y[5], 0.0])
    for at in ([5, 2, NONE], [NONE, 2, 5], [5, NONE, 2]):
        again = _run(session, table, at, [y[i] if i != NONE else 123.0 for i in at])
        np.testing.assert_allclose(again["embedding"], first["embedding"], atol=1e-3)


def test_a_configuration_that_is_not_in_the_table_is_reported(built):
    pool, _, table, _, session = built
    moved = table.copy()
    moved[1] = moved[1] + 5.0
    assert _run(session, moved, [1, NONE, NONE], [pool.y[0, 1], 0, 0])["unknown"] > 1e-3
